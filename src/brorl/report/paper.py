"""Runs in the layout of the paper's tables 1 and 2, and what a point of held-out score cost.

A run has a row for where it started, one for about half of its evaluations and one for the last,
as the paper shows an arm at several steps. Samples are counted before dynamic sampling filters,
hours leave evaluation out, scores are pass@1 in hundredths, a column a category of the held-out
problems, and their average is the plain mean of the columns.

Source: arXiv:2510.01180v1, tables 1 and 2 (layout only).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.report.budgets import BUDGETS
from brorl.report.facts import Part, Table, width
from brorl.report.heldout import BeforeAfter
from brorl.report.load import RunRecord, read_counts, read_problems
from brorl.stats.intervals import Interval

MOST_CATEGORIES = 11  # columns, as many as the paper's widest table has
NO_GAIN = "no gain beyond doubt"
OTHER_PROBLEMS = "The runs were evaluated on different problems: their scores do not compare."

Budgets = Mapping[str, NDArray[np.float64]]


class Arm(NamedTuple):
    """A run as these tables need it."""

    name: str
    number: int  # of its colour
    record: RunRecord
    budgets: Budgets
    found: BeforeAfter | None


def paper_table(arms: Sequence[Arm]) -> Table | None:
    """A row a run and evaluation; None where no run has two of them.

    A start that several runs share (equal scores) is shown once.
    """
    scores = {arm.number: _scores(arm) for arm in arms}
    if all(len(of_arm) < 2 for of_arm in scores.values()):
        return None
    names = list(dict.fromkeys(c for found in scores.values() for s in found.values() for c in s))
    shown = names if 1 < len(names) <= MOST_CATEGORIES else []
    rows: list[tuple[Part, ...]] = []
    bases: list[Mapping[str, float]] = []
    for arm in arms:
        for at, (step, of_step) in enumerate(scores[arm.number].items()):
            if at == 0 and of_step in bases:
                continue
            if at == 0:
                bases.append(of_step)
            rows.append((*_spent(arm, step), *_cells(of_step, shown)))
    columns = (
        "run",
        "N",
        "prompts a step",
        "steps",
        "samples, thousands",
        "hours",
        "pass rate",
        "samples/s",
        *shown,
        "average" if shown else "pass@1",
    )
    note = (
        "Samples before the filter; hours without evaluation; pass rate of samples and samples per "
        "second of generation up to that step; pass@1 in hundredths."
    )
    if not _same_problems(arms):
        note += f" {OTHER_PROBLEMS}"
    return Table(columns, tuple(rows), note, "In the paper’s layout")


def cost_table(arms: Sequence[Arm]) -> Table | None:
    """What each hundredth of held-out pass@1 cost in every budget; None where no run gained.

    Spent over the gain, and over both ends of the gain's interval; only where the whole interval
    is above 0.
    """
    gains = {arm.number: arm.found.change(1) if arm.found else None for arm in arms}
    if not any(gain is not None and gain.low > 0 for gain in gains.values()):
        return None
    names = [n for n in BUDGETS if n != "step" and any(n in arm.budgets for arm in arms)]
    rows = [
        (
            Part(arm.name, f"run{arm.number % 8}"),
            *(_cost(arm.budgets.get(name), gains[arm.number]) for name in names),
        )
        for arm in arms
    ]
    note = "Spent over the gain, [over its upper, over its lower end]; a point is 0.01 of pass@1."
    labels = [BUDGETS[name].split(",")[0] for name in names]
    return Table(("run", *labels), tuple(rows), note, "Cost per point gained")


def _scores(arm: Arm) -> dict[int, dict[str, float]]:
    """Step to pass@1 by category, of the first, the middle and the last evaluation on record."""
    steps = [int(r["step"]) for r in arm.record.metrics if "eval/pass@1" in r]
    picked = dict.fromkeys(steps[i] for i in (0, len(steps) // 2, -1)) if steps else {}
    found = {}
    for step in picked:
        problems = read_problems(arm.record.path, step)
        if problems:
            by_category: dict[str, list[float]] = {}
            for p in problems:
                by_category.setdefault(p.category, []).append(p.c / p.n)
            found[step] = {name: float(np.mean(rates)) for name, rates in by_category.items()}
    return found


def _same_problems(arms: Sequence[Arm]) -> bool:
    """Whether the last evaluations of all runs that have one are of the same problems."""
    asked = set()
    for arm in arms:
        steps = [int(r["step"]) for r in arm.record.metrics if "eval/pass@1" in r]
        counts = read_counts(arm.record.path, steps[-1]) if steps else None
        if counts:
            asked.add(frozenset(counts))
    return len(asked) < 2


def _spent(arm: Arm, step: int) -> tuple[Part, ...]:
    """The cells that do not depend on the score."""
    steps = [int(r["step"]) for r in arm.record.metrics]
    at = steps.index(step)
    here = {name: float(axis[at]) for name, axis in arm.budgets.items()}
    generated, kept = here.get("generated"), here.get("kept")
    clocks = [r.get("time/generate") for r in arm.record.metrics[: at + 1] if r["step"] > 0]
    known = [float(t) for t in clocks if t is not None]
    seconds = sum(known) if len(known) == len(clocks) else 0.0
    config = arm.record.config
    return (
        Part(arm.name if step else f"{arm.name}, start", f"run{arm.number % 8}"),
        Part(width(config) or "–"),
        Part(f"{config.get('prompts_per_step', '–')}"),
        Part(f"+{step}" if step else "0"),
        Part(_number(None if generated is None else generated / 1000)),
        Part(_number(None if "seconds" not in here else here["seconds"] / 3600)),
        Part(f"{100 * kept / generated:.0f} %" if generated and kept is not None else "–"),
        Part(_number(generated / seconds if generated and seconds else None)),
    )


def _cells(scores: Mapping[str, float], shown: Sequence[str]) -> list[Part]:
    columns = [f"{100 * scores[name]:.2f}" if name in scores else "–" for name in shown]
    return [Part(text) for text in [*columns, f"{100 * np.mean(list(scores.values())):.2f}"]]


def _cost(axis: NDArray[np.float64] | None, gain: Interval | None) -> Part:
    if axis is None or not axis.size:
        return Part("–")
    if gain is None or gain.low <= 0:
        return Part(NO_GAIN)
    value, low, high = (float(axis[-1]) / (100 * g) for g in (gain.value, gain.high, gain.low))
    return Part(f"{_number(value)} [{_number(low)}, {_number(high)}]")


def _number(value: float | None) -> str:
    """Three digits, or whole where it has more."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def tables(arms: Sequence[Arm]) -> list[Table]:
    """Those that have something to show."""
    found: list[Any] = [paper_table(arms), cost_table(arms)]
    return [table for table in found if table is not None]
