"""How far do engine and trainer disagree, what makes it worse, and what do the corrections do?

Question    The engine that samples and the trainer that scores are two programs. How large is the
            difference of their log-probs as batch, width, length and precision change, does what an
            answer is depend on what was sampled beside it, and what do tis, icepop and
            seq-mask-tis then make of the gradient?
Prediction  With the trainer's own float32 weights the k3 estimate of the divergence stays below
            1e-9 nats a token whatever batch, width and length, and sampled tokens do not depend on
            the batch. With an engine in bfloat16 it is at least a hundred times as large, grows
            with neither batch nor width, and the tail of sequence ratios widens with length. At
            that size tis and icepop leave the direction of the gradient (cosine above 0.99 to the
            exactly weighted one) and seq-mask-tis, whose bounds are a thousandth, does not.
Design      Varied: engine (float32, bfloat16, and vLLM where it is installed), prompts sampled
            together, N, answer length (the end token is ignored, so that answers reach it), on two
            policies of each seed. Equal: weights, prompts, streams, temperature 1. The gradient is
            that of mean advantage times log-prob over one batch of the bfloat16 engine; "exact"
            weighs each token by the whole ratio.
Decided by  Holds where all of it is seen in every seed and both policies: k3 of float32 below 1e-9
            in every cell, all sampled tokens equal alone and in company, bfloat16 at least 100
            times as large in every cell, its k3 at the largest N less than twice that at the
            smallest, and the cosines on the sides named above. Refuted where one of these fails in
            every seed of a policy. Else not decided.
Cost        10 minutes on two cores: 2 arms, 3 seeds, 60,000 generated samples a run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from brorl.studies.runner.analysis import all_of, in_every_seed, mean
from brorl.studies.runner.contract import (
    Arm,
    Chart,
    Count,
    Findings,
    Knobs,
    Line,
    Plain,
    Study,
    Table,
    check_grows,
    measured_policies,
)
from brorl.studies.runner.results import Results

if TYPE_CHECKING:
    from brorl.policy.model import Policy
    from brorl.rollout.engine import Completion, Engine
    from brorl.studies.runner.gradients import Answers
    from brorl.studies.runner.measure import GradedGroup, Opened

Widths = Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]
FLOOR, RATIO, CLOSE, GROWTH = 1e-9, 100.0, 0.99, 2.0
CORRECTIONS: dict[str, tuple[float, float]] = {  # usual bounds: brorl.algo.importance
    "tis": (0.0, 2.0),
    "icepop": (0.5, 5.0),
    "seq-mask-tis": (0.999, 1.002),
}


class MismatchKnobs(Knobs):
    """Attributes: widths, prompts together and answer lengths to cross, each ascending."""

    samples: Count = 60_000  # of the training with N = 16
    widths: Widths = (16, 256)
    prompts: Annotated[tuple[Count, ...], Field(min_length=2)] = (1, 16)
    lengths: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)] = (8, 32, 128)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in ("widths", "prompts", "lengths"):
            check_grows(name, getattr(self, name))
        return self


def arms(knobs: MismatchKnobs) -> list[Arm]:
    """Two policies, only measured."""
    return measured_policies(knobs.samples)


def measure(run: Path, knobs: MismatchKnobs) -> dict[str, Any]:
    """Every cell of the design, and the gradient under each correction."""
    from brorl.studies.runner.measure import opened

    with opened(run) as at:
        cells = []
        for name, engine in _engines(at, knobs):
            for width, prompts, length in _crossed(knobs, name):
                found = _cell(at, engine, width, prompts, length)
                cells.append({"engine": name, "n": width, "prompts": prompts, "length": length}
                             | found)  # fmt: skip
            engine.close()
        return {"cells": cells, "gradient": _gradients(at, knobs), "vllm": _has_vllm()}


def _crossed(knobs: MismatchKnobs, engine: str) -> Iterator[tuple[int, int, int]]:
    """From the smallest cell each axis is grown alone; vLLM is slow and grows the width alone."""
    w, p, t = knobs.widths[0], knobs.prompts[0], knobs.lengths[0]
    yield w, p, t
    yield from ((x, p, t) for x in knobs.widths[1:])
    if engine != "vllm":
        yield from ((w, x, t) for x in knobs.prompts[1:])
        yield from ((w, p, x) for x in knobs.lengths[1:])


def _has_vllm() -> bool:
    from importlib.util import find_spec

    return find_spec("vllm") is not None


def _engines(at: "Opened", knobs: MismatchKnobs) -> "Iterator[tuple[str, Engine]]":
    """Engines over the same weights; a policy whose end token never comes."""
    from brorl.rollout.embedded import EmbeddedEngine
    from brorl.rollout.factory import open_engine
    from brorl.rollout.options import VllmOptions

    budget = at.settings.rollout.memory_budget
    endless = replace(at.policy, eos_ids=frozenset({-1}))
    yield "float32", EmbeddedEngine(endless, memory_budget=budget)
    yield "bfloat16", EmbeddedEngine(_half(endless), memory_budget=budget)
    if _has_vllm():
        longest = max(len(at.policy.encode(p.prompt)) for p in at.data.train)
        yield (
            "vllm",
            open_engine(
                "vllm",
                at.policy,
                memory_budget=budget,
                max_tokens=lambda: longest + knobs.lengths[0],
                vllm=VllmOptions(),
            ),
        )


def _half(policy: "Policy") -> "Policy":
    """The same weights rounded to bfloat16, as an engine on a GPU holds them."""
    import copy

    import torch

    return replace(policy, model=copy.deepcopy(policy.model).to(torch.bfloat16))


def _cell(
    at: "Opened", engine: "Engine", width: int, prompts: int, length: int
) -> dict[str, float]:
    """Sample, score again with the trainer, and sample the first group once more on its own."""
    import torch

    from brorl.algo.importance import mismatch
    from brorl.rollout.engine import Request, Sampling
    from brorl.seeds import derive_seed
    from brorl.studies.runner.gradients import Answers, score_tokens

    requests = [
        Request(p.id, p.id, at.policy.encode(p.prompt), 0, width,
                derive_seed(at.settings.seed, "study", "mismatch", p.id))
        for p in at.data.train[:prompts]
    ]  # fmt: skip
    sampling = Sampling(1.0, 1.0, 0, length)
    engine.forget()
    groups = list(engine.sample(requests, sampling))
    engine.forget()
    (alone,) = engine.sample(requests[:1], sampling)
    engine.forget()
    pieces = [
        Answers(r.prompt, [c.tokens for c in g], [c.logprobs for c in g])
        for r, g in zip(requests, groups, strict=True)
    ]
    with torch.no_grad():
        trainer = score_tokens(at.policy, pieces, temperature=1.0)
        apart = score_tokens(at.policy, pieces[:1], temperature=1.0)
    said = torch.from_numpy(np.concatenate([w for p in pieces for w in p.weights]))
    found = mismatch(trainer, said, torch.ones_like(said, dtype=torch.bool))
    assert found is not None
    first = trainer[: len(apart)]
    return found._asdict() | _sequences(trainer - said, pieces) | {
        "tokens_alone": _share(groups[0], alone, lambda a, b: np.array_equal(a.tokens, b.tokens)),
        "bits_alone": _share(groups[0], alone, lambda a, b: np.array_equal(a.logprobs, b.logprobs)),
        "score_bits_alone": float((first == apart).float().mean()),
        "score_difference_alone": float((first - apart).abs().max()),
    }  # fmt: skip


def _sequences(log_rho: Any, pieces: "Sequence[Answers]") -> dict[str, float]:
    """Whole answers: spread and largest of the log ratio."""
    lengths = [len(t) for p in pieces for t in p.tokens]
    sums = np.array([float(part.double().sum()) for part in log_rho.split(lengths)])
    return {"sequence_sd": float(sums.std()), "sequence_max": float(np.abs(sums).max())}


def _share(
    a: "Sequence[Completion]",
    b: "Sequence[Completion]",
    same: "Callable[[Completion, Completion], bool]",
) -> float:
    return float(np.mean([same(x, y) for x, y in zip(a, b, strict=True)]))


def _gradients(at: "Opened", knobs: MismatchKnobs) -> dict[str, dict[str, float]]:
    """Norm and cosine to the exactly weighted gradient, for every way to weigh tokens."""
    import torch

    from brorl.algo.importance import importance_weights
    from brorl.rollout.embedded import EmbeddedEngine
    from brorl.studies.runner.gradients import Answers, policy_gradient, score_tokens
    from brorl.studies.runner.measure import graded_groups

    engine = EmbeddedEngine(_half(at.policy), memory_budget=at.settings.rollout.memory_budget)
    groups = graded_groups(
        at._replace(engine=engine), at.data.train[: knobs.prompts[-1]],
        samples=knobs.widths[-1], purpose="gradient",
    )  # fmt: skip
    pieces = [Answers(g.prompt, g.tokens, g.logprobs) for g in groups]
    lengths = [len(t) for g in groups for t in g.tokens]
    with torch.no_grad():
        old = score_tokens(at.policy, pieces, temperature=1.0)
    said = torch.from_numpy(np.concatenate([w for g in groups for w in g.logprobs]))
    advantage = np.repeat(
        np.concatenate([np.array(g.scores) - np.mean(g.scores) for g in groups]), lengths
    )
    sequence = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths))
    mask = torch.ones_like(said, dtype=torch.bool)
    weights: dict[str, Any] = {"exact": (old - said).exp(), "none": torch.ones_like(said)}
    for name, (least, cap) in CORRECTIONS.items():
        weights[name] = importance_weights(
            old, said, mask, sequence, tis_type=name, cap=cap, min=least  # type: ignore[arg-type]
        ).weight  # fmt: skip
    steps = {}
    for name, weight in weights.items():
        split = np.split((advantage * weight.numpy()).astype(np.float32), np.cumsum(lengths)[:-1])
        steps[name] = policy_gradient(
            at.policy, _weighted(groups, split), temperature=1.0, denominator=float(len(lengths))
        )
    exact = steps["exact"]
    return {
        name: {"norm": step.norm, "cosine_exact": step.cosine(exact),
               "cosine_none": step.cosine(steps["none"]),
               "left_out": float((weights[name] == 0).float().mean())}
        for name, step in steps.items()
    }  # fmt: skip


def _weighted(
    groups: "Sequence[GradedGroup]", split: Sequence[NDArray[np.float32]]
) -> "list[Answers]":
    from brorl.studies.runner.gradients import Answers

    arrays = iter(split)
    return [Answers(g.prompt, g.tokens, [next(arrays) for _ in g.tokens]) for g in groups]


def judge(results: Results[MismatchKnobs]) -> Findings:
    """By the rule of the docstring."""
    answers, told, rows, corrections = [], [], [], []
    figures: dict[str, Any] = {}
    for arm in results.arms:
        seeds = [run.measured for run in results.of(arm)]
        checks = [_checks(m, results.knobs) for m in seeds]
        for name in checks[0]:
            seen = [c[name] for c in checks]
            answers.append(in_every_seed(seen))
        failed = sorted({name for c in checks for name, ok in c.items() if not ok})
        told.append(f"{arm}: {'all seen' if not failed else 'not seen: ' + ', '.join(failed)}")
        rows += _cells(arm, seeds)
        for name in seeds[0]["gradient"]:
            of = [m["gradient"][name] for m in seeds]
            keys = ("norm", "cosine_exact", "cosine_none", "left_out")
            corrections.append([arm, name, *(mean([g[k] for g in of]) for k in keys)])
        figures[arm] = {"not_seen": failed, "vllm": seeds[0]["vllm"]}
    vllm = any(m["vllm"] for run in results.of(results.arms[0]) for m in [run.measured])
    note = "Means over seeds. " + (
        "" if vllm else "vLLM is not installed here, so its cells are missing."
    )
    columns = (
        "policy", "engine", "N", "prompts together", "answer tokens", "k3, nats a token",
        "largest ratio", "ESS", "sd of sequence log ratio", "same tokens alone",
        "same bits alone", "same score bits alone",
    )  # fmt: skip
    cells = Table("Engine against trainer", columns, rows, note)
    gradient = Table(
        "What each correction makes of the gradient (bfloat16 engine)",
        ("policy", "weights", "norm", "cosine to exact", "cosine to none", "tokens at 0"),
        corrections,
    )
    holds = all_of(answers)
    return Findings(holds, "; ".join(told) + ".", [cells, gradient], _charts(results), figures)


def _checks(measured: Any, knobs: MismatchKnobs) -> dict[str, bool]:
    """The claims of the prediction, for one run."""
    cells, gradient = measured["cells"], measured["gradient"]
    of = {name: [c for c in cells if c["engine"] == name] for name in ("float32", "bfloat16")}
    pairs = list(zip(of["float32"], of["bfloat16"], strict=True))
    narrow, wide = (
        next(c for c in of["bfloat16"] if (c["n"], c["prompts"], c["length"])
             == (n, knobs.prompts[0], knobs.lengths[0]))
        for n in (knobs.widths[0], knobs.widths[-1])
    )  # fmt: skip
    by_length = [c["sequence_sd"] for c in sorted(of["bfloat16"], key=lambda c: c["length"])]
    return {
        "float32 below the floor": all(c["k3"] < FLOOR for c in of["float32"]),
        "tokens do not depend on the batch": all(c["tokens_alone"] == 1 for c in of["float32"]),
        "bfloat16 a hundred times as large": all(
            b["k3"] >= RATIO * max(a["k3"], 1e-300) for a, b in pairs
        ),
        "no growth with N": wide["k3"] < GROWTH * narrow["k3"],
        "tails grow with length": by_length[-1] > by_length[0],
        "tis and icepop keep the direction": all(
            gradient[name]["cosine_exact"] > CLOSE for name in ("tis", "icepop")
        ),
        "seq-mask-tis does not": gradient["seq-mask-tis"]["cosine_exact"] <= CLOSE,
    }


def _cells(arm: str, seeds: Sequence[Any]) -> list[list[Plain]]:
    keys = (
        "k3", "ratio_max", "ess", "sequence_sd", "tokens_alone", "bits_alone", "score_bits_alone",
    )  # fmt: skip
    rows: list[list[Plain]] = []
    for i, cell in enumerate(seeds[0]["cells"]):
        same = [m["cells"][i] for m in seeds]
        where: list[Plain] = [arm, cell["engine"], cell["n"], cell["prompts"], cell["length"]]
        rows.append([*where, *(mean([c[k] for c in same]) for k in keys)])
    return rows


def _charts(results: Results[MismatchKnobs]) -> list[Chart]:
    lines = []
    for arm in results.arms:
        for name in ("float32", "bfloat16"):
            cells = [
                c for run in results.of(arm) for c in run.measured["cells"]
                if c["engine"] == name and c["n"] == results.knobs.widths[0]
                and c["prompts"] == results.knobs.prompts[0]
            ]  # fmt: skip
            lengths = sorted({c["length"] for c in cells})
            sd = [mean([c["sequence_sd"] for c in cells if c["length"] == t]) or 0 for t in lengths]
            lines.append(Line(f"{arm}, {name}", lengths, [max(x, 1e-12) for x in sd]))
    return [Chart("Spread of whole answers' log ratio", "answer tokens", "nats, standard deviation",
                  lines, log_x=True, log_y=True)]  # fmt: skip


STUDY = Study(
    knobs=MismatchKnobs,
    arms=arms,
    judge=judge,
    minutes=10,
    base={"model.shape.heads": 2, "model.shape.kv_heads": 2},  # 32 wide: vLLM takes no narrower
    smoke={"study.widths": [4, 16], "study.prompts": [1, 4], "study.lengths": [2, 8],
           "study.samples": 256},
    measure=measure,
)  # fmt: skip
