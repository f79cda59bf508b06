"""Before and after: the first and the last held-out evaluation, and their paired difference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brorl.report.load import Counts, read_counts
from brorl.stats.intervals import Interval, bootstrap_band, mean_interval
from brorl.stats.paired import differences, paired_t
from brorl.stats.pass_at_k import doubling_ks, pass_at_k, pass_at_k_table

LEVEL = 0.95
_RESAMPLES = 1000


class Line(NamedTuple):
    """pass@k before and after. `after` and `change` are None where there is one evaluation."""

    k: int
    before: Interval
    after: Interval | None
    change: Interval | None  # paired over problems; None where the problems are not recorded


class BeforeAfter(NamedTuple):
    """The headline of a run."""

    first_step: int
    last_step: int
    problems: int
    lines: tuple[Line, ...]

    def change(self, k: int) -> Interval | None:
        """Of pass@k."""
        return next((line.change for line in self.lines if line.k == k), None)


class PassCurve(NamedTuple):
    """pass@k against k at one step, with a band that holds the whole curve."""

    step: int
    ks: list[int]
    value: list[float]
    low: list[float]
    high: list[float]


def before_after(run: Path, metrics: list[dict[str, Any]]) -> BeforeAfter | None:
    """From what the run recorded; None where it has no held-out evaluation."""
    rows = [r for r in metrics if "eval/pass@1" in r]
    if not rows:
        return None
    first, last = rows[0], rows[-1]
    ks = [k for k in recorded_ks(last) if f"eval/pass@{k}" in first]
    later = last["step"] > first["step"]
    counts = [read_counts(run, r["step"]) for r in (first, last)] if later else [None, None]
    lines = [
        Line(
            k,
            _interval(first, k),
            _interval(last, k) if later else None,
            _change(counts[0], counts[1], k),
        )
        for k in ks
    ]
    return BeforeAfter(first["step"], last["step"], int(last["eval/problems"]), tuple(lines))


def pass_curves(run: Path, metrics: list[dict[str, Any]]) -> list[PassCurve]:
    """The curve before and the curve after, of the evaluations whose problems are recorded."""
    steps = [r["step"] for r in metrics if "eval/pass@1" in r]
    found = []
    for step in dict.fromkeys(steps[:1] + steps[-1:]):
        counts = read_counts(run, step)
        if counts:
            found.append(_curve(step, list(counts.values())))
    return found


def recorded_ks(row: Mapping[str, Any]) -> list[int]:
    """The k of every eval/pass@k in a line of metrics, ascending."""
    names = (name.removeprefix("eval/pass@") for name in row if name.startswith("eval/pass@"))
    return sorted(int(k) for k in names if k.isdecimal())


def _interval(row: Mapping[str, Any], k: int) -> Interval:
    name = f"eval/pass@{k}"
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def _change(
    before: Mapping[str, Counts] | None, after: Mapping[str, Counts] | None, k: int
) -> Interval | None:
    """After minus before, on the problems that both evaluations have with n >= k."""
    if before is None or after is None:
        return None
    ids = [i for i in before if i in after and min(before[i].n, after[i].n) >= k]
    if len(ids) < 2:
        return None
    scores = [
        pass_at_k([of[i].c for i in ids], [of[i].n for i in ids], k) for of in (before, after)
    ]
    return paired_t(differences(*scores), level=LEVEL).difference


def _curve(step: int, counts: list[Counts]) -> PassCurve:
    right, total = [p.c for p in counts], [p.n for p in counts]
    ks = doubling_ks(min(total))
    table_KJ = pass_at_k_table(right, total, ks)
    low_J, high_J = bootstrap_band(table_KJ, level=LEVEL, resamples=_RESAMPLES, seed=0)
    # Few problems resampled vary too little: a band for all k is never inside that of one.
    alone = [mean_interval(column_K, level=LEVEL) for column_K in table_KJ.T]
    low_J = np.minimum(low_J, [x.low for x in alone])
    high_J = np.maximum(high_J, [x.high for x in alone])
    return PassCurve(
        step,
        list(ks),
        _rounded(table_KJ.mean(axis=0)),
        _rounded(low_J.clip(0, 1)),
        _rounded(high_J.clip(0, 1)),
    )


def _rounded(values: Any) -> list[float]:
    rounded: list[float] = np.round(values, 6).tolist()
    return rounded
