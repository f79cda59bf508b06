"""From curves to one row per width, and to the effects of a two-factor sweep."""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from brorl.simulator.curves import Curve

SUMMED = (
    "sampled_correct",
    "sampled_wrong",
    "unsampled",
    "never_drawn",
    "decay",
    "exact_change",
)
"""Fields of Record that a row gives as sums over the steps."""


class Effect(NamedTuple):
    """A difference of the total change of correct mass, in probability."""

    value: float  # mean over replicates
    standard_error: float | None  # of that mean, replicates paired; None with one replicate


class Effects(NamedTuple):
    """What two factors did at one width, each changed from its first to its last value."""

    n: int
    reference: Effect  # total change of correct mass with both factors at their first value
    first: Effect  # of changing the first factor alone
    second: Effect  # of changing the second factor alone
    both: Effect  # of changing both
    interaction: Effect  # both - first - second


def summarise(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """One row per width, in the order of the curves.

    `correct_mass_start`, `correct_mass` and `improved_share` are of the start and the end of the
    run, `worst_change` is the smallest over the run, the names in SUMMED are sums over the steps.
    With several replicates a row holds their means, `worst_change` the smallest of all, and
    `per_seed` the same for each replicate.
    """
    widths = list(dict.fromkeys(curve.n for curve in curves))
    return [_row([curve for curve in curves if curve.n == n]) for n in widths]


def _row(replicates: Sequence[Curve]) -> dict[str, Any]:
    each = [_ends(curve) for curve in replicates]
    row: dict[str, Any] = {"n": replicates[0].n}
    row |= {name: statistics.fmean(ends[name] for ends in each) for name in each[0]}
    row["worst_change"] = min(ends["worst_change"] for ends in each)
    if len(each) > 1:
        row["per_seed"] = [
            {"replicate": curve.replicate} | ends
            for curve, ends in zip(replicates, each, strict=True)
        ]
    return row


def _ends(curve: Curve) -> dict[str, float]:
    mass = curve.column("correct_mass")
    ends = {
        "correct_mass_start": float(mass[0]),
        "correct_mass": float(mass[-1]),
        "improved_share": float(curve.column("improved_share")[-1]),
        "worst_change": float(curve.column("worst_change").min()),
    }
    return ends | {name: math.fsum(curve.column(name)) for name in SUMMED}


def effects(corners: Sequence[Sequence[Curve]]) -> list[Effects]:
    """Effects of two factors on the total change of correct mass, per width.

    Args:
        corners: curves with (first, second) factor at (first, first), (first, last),
            (last, first), (last, last) value, each with the same widths and replicates.
    """
    neither, second, first, both = (_changes(curves) for curves in corners)
    return [
        Effects(
            n,
            _effect(neither[n]),
            _effect(_minus(first[n], neither[n])),
            _effect(_minus(second[n], neither[n])),
            _effect(_minus(both[n], neither[n])),
            _effect(_minus(_minus(both[n], first[n]), _minus(second[n], neither[n]))),
        )
        for n in neither
    ]


def _changes(curves: Sequence[Curve]) -> dict[int, list[float]]:
    """Total change of correct mass by width, one number per replicate."""
    changes: dict[int, list[float]] = {}
    for curve in curves:
        mass = curve.column("correct_mass")
        changes.setdefault(curve.n, []).append(float(mass[-1] - mass[0]))
    return changes


def _minus(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


def _effect(values: Sequence[float]) -> Effect:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Effect(statistics.fmean(values), error)
