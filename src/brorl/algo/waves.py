"""The rule of adaptive width, what it is expected to cost, and what it makes of the objective.

A group is sampled in waves to growing totals n_1 < n_2 < ... and stops at the first total at
which it holds `stop_right` right answers, or at the last one. Whether wave j + 1 is drawn thus
depends on the count at n_j alone, since a count that is small now was small before:

    P(reach wave j + 1) = P(Binomial(n_j, p) < stop_right)

No torch here: the planner reads this before any is loaded. Estimates that allow for the
stopping are in `stopping`.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, assert_never

from brorl.errors import ConfigError, ShapeError

Baseline = Literal["group", "unbiased"]


def check_waves(waves: Sequence[int], *, stop_right: int) -> None:
    """Refuse waves that don't grow, and a stop that the first wave can't reach.

    With stop_right <= waves[0] a group that is all right stops at its first wave.

    Raises:
        ConfigError: no wave, a first wave below 2, totals that don't grow, or stop_right
            outside 1 ... waves[0].
    """
    totals = list(waves)
    if not totals or totals[0] < 2:
        raise ConfigError(f"rollout.waves must start with at least 2 samples, got {totals}")
    if any(b <= a for a, b in pairwise(totals)):
        raise ConfigError(f"rollout.waves are totals and must grow, got {totals}")
    if not 1 <= stop_right <= totals[0]:
        raise ConfigError(
            f"rollout.stop_right must lie in 1 ... {totals[0]} (the first wave), got {stop_right}"
        )


def samples_to_add(right: int, drawn: int, *, waves: Sequence[int], stop_right: int) -> int:
    """How many samples one group gets next; 0 where it is done.

    Args:
        right: right answers so far.
        drawn: samples asked for so far, 0 or one of `waves`. Samples lost to grader errors
            count here: a group doesn't grow because a worker died.
        waves: growing totals.
        stop_right: right answers at which a group stops.

    Raises:
        ConfigError: see `check_waves`.
        ShapeError: `drawn` is no total of a wave, or `right` isn't in 0 ... drawn.
    """
    check_waves(waves, stop_right=stop_right)
    if drawn not in (0, *waves) or not 0 <= right <= drawn:
        raise ShapeError(
            f"need drawn in {[0, *waves]} and 0 <= right <= drawn, got {drawn}, {right}"
        )
    larger = [total for total in waves if total > drawn]
    return larger[0] - drawn if larger and right < stop_right else 0


def reach_chances(p: float, *, waves: Sequence[int], stop_right: int) -> list[float]:
    """P(a group of success probability p gets to each wave): one number per wave, the first 1.

    Args:
        p: in [0, 1]. A `Fraction` gives exact fractions.
        waves: growing totals.
        stop_right: right answers at which a group stops.

    Raises:
        ConfigError: see `check_waves`.
        ShapeError: p outside [0, 1].
    """
    check_waves(waves, stop_right=stop_right)
    _require_chance(p)
    below = [sum(_binomial(n, t, p) for t in range(stop_right)) for n in waves[:-1]]
    return [p**0, *below]


def expected_samples(p: float, *, waves: Sequence[int], stop_right: int) -> float:
    """E[n], the mean width of a group: sum over waves of P(reach) · (samples it adds).

    Args, Raises: as `reach_chances`.
    """
    chances = reach_chances(p, waves=waves, stop_right=stop_right)
    added = [b - a for a, b in pairwise([0, *waves])]
    return sum(c * m for c, m in zip(chances, added, strict=True))


def prompt_weight(p: float, *, waves: Sequence[int], stop_right: int, baseline: Baseline) -> float:
    """How strongly the rule pulls on a prompt: the expected update of its group is w(p) · grad p.

    The update meant is the sum over the group's samples of (r - b) · grad log pi, as the token
    sums over a global denominator have it, for rewards 0 and 1. It always points along grad p,
    so adaptive width ascends the sum over prompts of W(p) with W' = w. With q = 1 - p, and c
    right answers among n samples when the group stops,

        group     b = c / n                       w = E[c (n - c) / n] / (p q)
        unbiased  b = stopping.unbiased_baseline  w = E[n] - 1

    For a fixed width both are N - 1: the objective is the mean of p. For waves w falls from
    about the last total at p = 0 to about the first at p = 1, so hard prompts count more, by up
    to their ratio. `stopping.unbiased_advantages` have w = 1 whatever the rule.

    Args:
        p: in (0, 1). A `Fraction` gives exact fractions.
        waves: growing totals; one alone is a fixed width.
        stop_right: right answers at which a group stops.
        baseline: see above.

    Raises:
        ConfigError: see `check_waves`.
        ShapeError: p outside (0, 1).

    Source:
        Wald's identity for the second line: E[sum of r grad log pi] = E[n] grad p for any
        stopping rule, and the baseline takes one sample's worth of it away. Both lines are
        checked by enumeration in tests/algo/test_stopping.py.
    """
    if p in (0, 1):
        raise ShapeError(f"need 0 < p < 1: at {p} there is no gradient to weigh")
    match baseline:
        case "unbiased":
            return expected_samples(p, waves=waves, stop_right=stop_right) - 1
        case "group":
            return _expected_product(p, waves, stop_right) / (p * (1 - p))
        case _:
            assert_never(baseline)


def _expected_product(p: float, waves: Sequence[int], stop_right: int) -> float:
    """E[c (n - c) / n] over where the group stops, from the moments of the last wave's count.

    Reached wave j with t < stop_right right before it, and X of the wave's m samples right:
    all X count, less those with t + X < stop_right where another wave follows.
    """
    check_waves(waves, stop_right=stop_right)
    _require_chance(p)
    total = 0 * p
    for j, n in enumerate(waves):
        before = waves[j - 1] if j else 0
        m = n - before
        for t in range(min(stop_right, before + 1)):
            mean, square = m * p, m * p * (1 - p) + (m * p) ** 2  # of X: E[X], E[X^2]
            product = t * (n - t) + (n - 2 * t) * mean - square  # E[(t + X) (n - t - X)]
            if j + 1 < len(waves):
                go_on = range(min(stop_right - t, m + 1))
                product -= sum(_binomial(m, x, p) * (t + x) * (n - t - x) for x in go_on)
            total += _binomial(before, t, p) * product / n
    return total


def _binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


def _require_chance(p: float) -> None:
    if not 0 <= p <= 1:
        raise ShapeError(f"a success probability lies in [0, 1], got {p}")
