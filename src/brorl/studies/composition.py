"""Does reward on nested functions teach nesting, and does it take wide groups?

Question    A policy knows functions on text, and two nested ones a little. Trained by reward on
            single functions or on two nested ones, how does it do on one to six nested functions,
            and on functions that it never saw, by N?
Prediction  Reward on two nested functions carries over to three, reward on single ones does not:
            on three nested functions the former ends above the latter, at every N
            (arXiv:2509.25123, where level 2 gave 27 % on level 3 and level 1 next to nothing).
Design      Varied: the level that is trained, 1 or 2, and rollout.n, with N times prompts a step
            the same. Equal: the start of each seed, a policy that was shown worked answers of
            levels 1 and 2 (shown level 1 alone, it was right on level 2 in none of 16 tries, so
            that reward had nothing to begin with: it writes no steps in between); the training
            functions; held-out problems of levels 1 to 6, as many of each; generated samples,
            mini-batches, rate, loss. Answers of held-out problems may be 66 tokens long. After each
            run, and for its start, the same levels are asked of functions that no training saw.
Decided by  Holds where at every N the interval of (trained on level 2 minus trained on level 1) in
            pass@1 on level 3 at equal generated samples lies above 0. Refuted where it lies below 0
            at one N. Else not decided. Other levels, pass@16 and unseen functions are told beside
            it.
Cost        16 minutes on two cores: 6 arms, 3 seeds, 80,000 generated samples a run.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from brorl.record.rundir import CONFIG
from brorl.studies.runner.analysis import above, all_of, comparison_json, mean, shown
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
    check_divides,
)
from brorl.studies.runner.results import Results
from brorl.train.recipe import load_settings

DECIDES = 3  # nested functions
START = {"steps": 0, "max_samples": 1, "task.levels": [1, 2]}
"""Nothing but the warm start."""


class CompositionKnobs(Knobs):
    """Attributes: widths, prompts times N of a step; samples of a problem with unseen functions."""

    samples: Count = 80_000
    evals: Count = 4
    widths: Annotated[tuple[Annotated[int, Field(ge=2, le=65_536)], ...], Field(min_length=1)] = (
        16,
        64,
        256,
    )
    batch: Count = 512
    unseen_samples: Count = 16

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_divides(self.batch, self.widths)
        return self


def name(level: int, n: int) -> str:
    """Of an arm."""
    return f"level{level}-n{n}"


def arms(knobs: CompositionKnobs) -> list[Arm]:
    """Both levels at every width, the narrowest first."""
    return [
        Arm(
            name(level, n),
            f"trained on level {level}, N = {n}, {knobs.batch // n} prompts a step",
            {"rollout.n": n, "prompts_per_step": knobs.batch // n, "task.levels": [level]},
            start=START,
            factors={"level": level, "n": n},
        )
        for n in knobs.widths
        for level in (1, 2)
    ]


def measure(run: Path, knobs: CompositionKnobs) -> dict[str, Any]:
    """pass@1 by level on functions that no training saw: of the run, and of its start."""
    start = load_settings(run / CONFIG, (), may_change=()).init.from_
    assert start is not None
    return {
        "unseen": _unseen(run, knobs.unseen_samples),
        "unseen_before": _unseen(Path(start), knobs.unseen_samples),
    }


def _unseen(run: Path, samples: int) -> dict[str, float]:
    from brorl.rollout.engine import Sampling
    from brorl.studies.runner.measure import opened, sampled
    from brorl.tasks.build import build_task

    with opened(run) as at:
        held = build_task({**(at.settings.task or {}), "eval_functions": "held_out"}, {})
        e = at.settings.eval
        sampling = Sampling(
            e.temperature,
            e.top_p,
            e.top_k,
            e.max_new_tokens or at.settings.rollout.max_new_tokens,
        )
        found = sampled(
            at, held.problems("eval"), samples=samples, purpose="unseen", sampling=sampling
        )
    shares: dict[str, list[float]] = {}
    for problem in found.problems:
        shares.setdefault(problem.task, []).append(problem.c / problem.n)
    return {task: sum(x) / len(x) for task, x in shares.items()}


def judge(results: Results[CompositionKnobs]) -> Findings:
    """By the rule of the docstring."""
    by_level = {int(task.rsplit("-", 1)[1]): ids for task, ids in results.by_task.items()}
    found = {
        n: results.compare(name(1, n), name(2, n), only=by_level[DECIDES])
        for n in results.knobs.widths
    }
    holds = all_of(above(c.difference, 0.0) for c in found.values())
    because = (
        f"On {DECIDES} nested functions, trained on level 2 minus trained on level 1: "
        + "; ".join(f"{shown(c.difference, signed=True)} at N = {n}" for n, c in found.items())
        + "."
    )
    ks = sorted({1, min(16, int(min(run.count_EK.min() for run in results.runs.values())))})
    return Findings(
        holds,
        because,
        [*(_levels(results, by_level, k) for k in ks), _unseen_table(results)],
        [_chart(results, by_level)],
        {str(n): comparison_json(c) for n, c in found.items()},
    )


def _levels(results: Results[CompositionKnobs], by_level: dict[int, list[str]], k: int) -> Table:
    """pass@k of each arm on each level; before training in the first row."""
    first = results.arms[0]
    rows: list[list[Plain]] = [
        [
            "start",
            *(shown(results.level(first, amount=0.0, k=k, only=ids)) for ids in by_level.values()),
        ]
    ]
    rows += [
        [arm, *(shown(results.level(arm, k=k, only=ids)) for ids in by_level.values())]
        for arm in results.arms
    ]
    columns = ("trained on", *(f"level {level}" for level in by_level))
    note = "At the largest common amount; the functions are those of training."
    return Table(f"pass@{k} by nested functions", columns, rows, note)


def _unseen_table(results: Results[CompositionKnobs]) -> Table:
    tasks = list(results.of(results.arms[0])[0].measured["unseen"])
    before = results.of(results.arms[0])

    def row(label: str, key: str, arm: str) -> list[Plain]:
        return [label, *(mean([r.measured[key][t] for r in results.of(arm)]) for t in tasks)]

    rows = [row("start", "unseen_before", before[0].arm)]
    rows += [row(arm, "unseen", arm) for arm in results.arms]
    columns = ("trained on", *(task.rsplit("/", 1)[1].replace("-", " ") for task in tasks))
    note = "Means over seeds and problems, at the end of each run."
    return Table("pass@1 on functions that no training saw", columns, rows, note)


def _chart(results: Results[CompositionKnobs], by_level: dict[int, list[str]]) -> Chart:
    levels = list(by_level)
    first = results.arms[0]
    told = {"start": [results.level(first, amount=0.0, only=by_level[x]) for x in levels]}
    told |= {arm: [results.level(arm, only=by_level[x]) for x in levels] for arm in results.arms}
    lines = [
        Line(arm, levels, [i.value for i in x], [i.low for i in x], [i.high for i in x])
        for arm, x in told.items()
    ]
    return Chart("Held-out pass@1 by nested functions", "nested functions", "pass@1", lines)


STUDY = Study(
    knobs=CompositionKnobs,
    arms=arms,
    judge=judge,
    measure=measure,
    minutes=16,
    base={
        "task.name": "composition",
        "task.prompt": "{expression}=",
        "task.eval_levels": [1, 2, 3, 4, 5, 6],
        "task.eval_functions": "train",
        "task.train_size": 512,
        "task.eval_size": 258,
        "warmstart.steps": 2000,
        "warmstart.until": 0.4,
        "rollout.max_new_tokens": 32,
        "eval.max_new_tokens": 66,
        "dynamic_sampling.max_empty_steps": 1_000_000,
    },
    smoke={
        "study.samples": 128,
        "study.evals": 1,
        "study.widths": [4, 16],
        "study.batch": 32,
        "study.unseen_samples": 2,
        "task.eval_size": 18,
        # Forty steps leave no answer right: groups without spread are kept, for the path's sake.
        "dynamic_sampling.enable": False,
    },
)
