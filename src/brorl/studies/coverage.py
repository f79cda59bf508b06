"""Does width keep a step from taking probability away from answers that are known to be right?

Question    The paper's theory is of one softmax step on single tokens: what a step leaves unsampled
            can lose probability even where it is right, and that term shrinks as N grows. Is it so
            on a real policy, whose answers share all of its parameters?
Prediction  On real next-token distributions the unsampled second moment falls with N as Lemma 2
            says. In one plain gradient step of fixed size the largest fall in log-probability of a
            known-correct answer becomes smaller as N grows, since the estimate of the gradient gets
            less noisy; and first-order theory, with the gradients of the real policy, predicts the
            measured change of each correct answer.
Design      Varied: N, on two policies of each seed: the warm start, and the same policy after
            training with N = 16. Equal: prompts, the size of the step (plain ascent on the mean
            over all answers of advantage times log-prob, advantage = reward minus group mean), the
            policy before it, which is put back after each step. The known-correct answer of a
            prompt is its gold. Not equal: answers in a step, N times prompts.
Decided by  Holds where, on both policies, the unsampled second moment at the largest N is below
            that at the smallest in every seed, the interval of (largest fall at the largest N minus
            that at the smallest) lies above 0, and predicted and measured changes correlate at 0.9
            or more at every N. Refuted where that interval lies below 0 or a moment rises in
            every seed. Else not decided.
Cost        15 minutes on two cores: 2 arms, 3 seeds, 60,000 generated samples a run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from brorl.stats.paired import paired_t
from brorl.studies.runner.analysis import above, all_of, in_every_seed, interval_json, mean, shown
from brorl.studies.runner.contract import (
    Arm,
    Chart,
    Count,
    Findings,
    Knobs,
    Line,
    Study,
    Table,
    check_grows,
    measured_policies,
)
from brorl.studies.runner.results import Results

if TYPE_CHECKING:
    from brorl.studies.runner.gradients import Answers, Step
    from brorl.studies.runner.measure import GradedGroup, Opened
    from brorl.tasks.problem import Problem

LEAST_CORRELATION = 0.9


class CoverageKnobs(Knobs):
    """Attributes: widths, ascending; prompts; steps tried at each N; their size."""

    samples: Count = 60_000  # of the training with N = 16
    widths: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)] = (
        4,
        16,
        64,
        256,
    )
    prompts: Annotated[int, Field(ge=2)] = 48
    repeats: Annotated[int, Field(ge=1)] = 4
    step_size: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.02

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_grows("widths", self.widths)
        return self


class Tried(NamedTuple):
    """One step of width N: changes of the golds' log-probs, and what was left unsampled."""

    predicted_K: list[float]
    measured_K: list[float]
    moment: float
    moment_expected: float
    gradient_norm: float


def arms(knobs: CoverageKnobs) -> list[Arm]:
    """Two policies; their steps are tried on them, not trained."""
    return measured_policies(knobs.samples)


def measure(run: Path, knobs: CoverageKnobs) -> dict[str, Any]:
    """`repeats` steps of every width, each from the same policy."""
    from brorl.studies.runner.gradients import text_gradients
    from brorl.studies.runner.measure import opened

    with opened(run) as at:
        problems = at.data.train[: knobs.prompts]
        golds = [_gold(at, p) for p in problems]
        heat = at.settings.rollout.temperature
        slopes = list(text_gradients(at.policy, golds, temperature=heat))
        found = {}
        for n in knobs.widths:
            tried = [_try(at, problems, golds, slopes, n, k, knobs) for k in range(knobs.repeats)]
            found[str(n)] = [t._asdict() for t in tried]
        return found


def _gold(at: "Opened", problem: "Problem") -> "Answers":
    """The gold of a problem as tokens with the end token, as an answer that is right."""
    from brorl.studies.runner.gradients import Answers

    text = str(problem.worked or problem.gold)
    ids = at.policy.tokenizer(text, add_special_tokens=False).input_ids
    tokens = np.array([*ids, at.policy.tokenizer.eos_token_id], dtype=np.int32)
    return Answers(at.policy.encode(problem.prompt), [tokens], [np.ones(len(tokens), np.float32)])


def _try(
    at: "Opened",
    problems: Sequence["Problem"],
    golds: Sequence["Answers"],
    slopes: Sequence["Step"],
    n: int,
    repeat: int,
    knobs: CoverageKnobs,
) -> Tried:
    """Sample N answers a prompt, step, measure, and put the weights back."""
    import torch

    from brorl.studies.runner.gradients import moved, policy_gradient, text_logprobs
    from brorl.studies.runner.measure import graded_groups

    heat = at.settings.rollout.temperature
    groups = graded_groups(at, problems, samples=n, purpose=f"step {repeat} of {n}")
    weighted = [_centred(g) for g in groups]
    count = float(n * len(problems))
    step = policy_gradient(at.policy, weighted, temperature=heat, denominator=count)
    predicted = [knobs.step_size * slope.dot(step) for slope in slopes]
    with torch.no_grad():
        before = text_logprobs(at.policy, golds, temperature=heat)
        with moved(at.policy, step, knobs.step_size):
            after = text_logprobs(at.policy, golds, temperature=heat)
    moment, expected = _moments(at, weighted)
    return Tried(predicted, (after - before).tolist(), moment, expected, step.norm)


def _centred(group: "GradedGroup") -> "Answers":
    """Advantages: reward minus the group's mean, the same for every token of an answer."""
    from brorl.studies.runner.gradients import Answers

    advantages = np.array(group.scores) - np.mean(group.scores)
    weights = [
        np.full(len(t), a, np.float32) for t, a in zip(group.tokens, advantages, strict=True)
    ]
    return Answers(group.prompt, group.tokens, weights)


def _moments(at: "Opened", groups: "list[Answers]") -> tuple[float, float]:
    """Means over prompts at the first answer token: what N draws left, and Lemma 2."""
    import torch

    from brorl.theory.coverage import expected_unsampled_second_moment, unsampled_second_moment

    with torch.no_grad():
        hidden = at.policy.read_prompts([g.prompt for g in groups]).last_hidden_GD
        p_GV = torch.softmax(at.policy.logits(hidden).double(), dim=-1).cpu().numpy()
    found, lemma = [], []
    for p_V, group in zip(p_GV, groups, strict=True):
        drawn = np.zeros(len(p_V), dtype=bool)
        drawn[[int(t[0]) for t in group.tokens]] = True
        all_V = np.ones_like(drawn)
        found.append(unsampled_second_moment(p_V, all_V, drawn).total)
        expected = expected_unsampled_second_moment(p_V, all_V, [len(group.tokens)])
        lemma.append(float(expected.total_W[0]))
    return float(np.mean(found)), float(np.mean(lemma))


def judge(results: Results[CoverageKnobs]) -> Findings:
    """By the rule of the docstring."""
    widths = results.knobs.widths
    answers: list[bool | None] = []
    told, rows, lines, figures = [], [], [], {}
    for arm in results.arms:
        at = {n: _Seen([run.measured[str(n)] for run in results.of(arm)]) for n in widths}
        low, high = at[widths[0]], at[widths[-1]]
        falls = [b < a for a, b in zip(low.moment, high.moment, strict=True)]
        gain_S = np.array(high.worst) - np.array(low.worst)
        gain = paired_t(gain_S, level=results.knobs.level).difference
        fits = min(seen.correlation for seen in at.values())
        answers += [in_every_seed(falls), above(gain, 0.0)]
        answers.append(True if fits >= LEAST_CORRELATION else None)
        told.append(
            f"{arm}: unsampled second moment {mean(low.moment):.3g} at N = {widths[0]} and "
            f"{mean(high.moment):.3g} at {widths[-1]}; largest fall {mean(low.worst):+.4f} and "
            f"{mean(high.worst):+.4f} nats, difference {shown(gain, signed=True)}; lowest "
            f"correlation of predicted and measured changes {fits:.2f}"
        )
        rows += [[arm, n, *seen.row()] for n, seen in at.items()]
        lines.append(Line(arm, list(widths), [mean(at[n].worst) or 0.0 for n in widths]))
        figures[arm] = {"gain": interval_json(gain), "correlation": fits}
    columns = (
        "policy", "N", "unsampled second moment", "Lemma 2", "mean change, nats",
        "largest fall, nats", "golds that fell", "correlation", "gradient norm",
    )  # fmt: skip
    note = "Means over seeds and repeated steps. Changes are of the log-prob of each prompt's gold."
    table = Table("One step of fixed size", columns, rows, note)
    chart = Chart("Largest fall of a known-correct answer", "N", "nats", lines, log_x=True)
    return Findings(all_of(answers), "; ".join(told) + ".", [table], [chart], figures)


class _Seen:
    """All steps of one policy at one width: lists over seeds, means over repeats."""

    def __init__(self, per_seed: list[list[dict[str, Any]]]) -> None:
        flat = [t for seed in per_seed for t in seed]
        self.moment = [float(np.mean([t["moment"] for t in s])) for s in per_seed]
        self.worst = [float(np.mean([min(t["measured_K"]) for t in s])) for s in per_seed]
        self._expected = float(np.mean([t["moment_expected"] for t in flat]))
        self._norm = float(np.mean([t["gradient_norm"] for t in flat]))
        measured = np.concatenate([t["measured_K"] for t in flat])
        predicted = np.concatenate([t["predicted_K"] for t in flat])
        self._change, self._fell = float(measured.mean()), float((measured < 0).mean())
        spread = measured.std() * predicted.std()
        self.correlation = (
            float(np.mean((measured - measured.mean()) * (predicted - predicted.mean())) / spread)
            if spread > 0
            else 0.0
        )

    def row(self) -> list[float | None]:
        """For the table."""
        return [mean(self.moment), self._expected, self._change, mean(self.worst), self._fell,
                self.correlation, self._norm]  # fmt: skip


STUDY = Study(
    knobs=CoverageKnobs,
    arms=arms,
    judge=judge,
    minutes=15,
    smoke={"study.widths": [4, 16], "study.prompts": 6, "study.repeats": 2, "study.samples": 256},
    measure=measure,
)
