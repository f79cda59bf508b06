"""What becomes of a group of a given width, in expectation over the groups that a run recorded.

Axes:  G groups · U distinct pairs of (right, total) among them
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from brorl.stats.shrinkage import Posterior, Prior, shrink

Array = NDArray[np.float64]


class Shares(NamedTuple):
    """Expectations for a group of one width, or one that grows in waves."""

    kept: float  # chance that a group passes dynamic sampling
    solved: float  # that it has a right answer
    samples: float  # that it costs
    kept_samples: float  # that the update sees, of any group: 0 of a dropped one
    variance: float  # of rewards within kept groups, p (1 - p) as sampled


class Rated(NamedTuple):
    """Rates of the recorded groups; groups of equal counts are held once."""

    rates: Posterior  # [U]
    times_U: Array  # groups of each

    def mean(self, values_U: Array) -> float:
        """Over groups."""
        return float(values_U @ self.times_U / self.times_U.sum())


def rated(right_G: ArrayLike, total_G: ArrayLike, prior: Prior) -> Rated:
    """Shrunk rates of groups."""
    pairs, times = np.unique(np.stack([right_G, total_G], axis=1), axis=0, return_counts=True)
    return Rated(shrink(pairs[:, 0], pairs[:, 1], prior), times.astype(np.float64))


def shares(
    right: Rated,
    zero: Rated | None,
    totals: Sequence[int],
    *,
    stop_right: int,
    keep_per_group: int | None,
) -> Shares:
    """Expectations over groups for one width or waves.

    Args:
        right: rates of a score of 1.
        zero: rates of a score of 0 where scores give part credit; None: one minus the right ones.
            Groups that agree on another score are few and taken as kept.
        totals: group sizes after each wave; one for a fixed width.
        stop_right: right answers at which a group stops; not read for one wave.
        keep_per_group: as the recipe's.
    """
    first, last = totals[0], totals[-1]
    all_right = right.mean(right.rates.all_right(first))
    if zero is None:
        all_wrong = right.mean(right.rates.all_wrong(last))
    else:
        all_wrong = zero.mean(zero.rates.all_right(last))
    reach = [1.0, *(right.mean(right.rates.fewer_than(stop_right, n)) for n in totals[:-1])]
    stop = [a - b for a, b in zip(reach, [*reach[1:], 0.0], strict=True)]
    sizes = [min(n, keep_per_group or n) for n in totals]
    kept = max(0.0, 1 - all_right - all_wrong)
    kept_samples = sum(s * n for s, n in zip(stop, sizes, strict=True))
    kept_samples -= sizes[0] * all_right + sizes[-1] * all_wrong
    samples = sum(s * n for s, n in zip(stop, totals, strict=True))
    spread = right.mean(right.rates.variance()) * (last - 1) / last
    variance = spread / kept if kept > 0 else 0.0
    solved = 1 - right.mean(right.rates.all_wrong(last))
    return Shares(kept, solved, samples, kept_samples, variance)


def direct_pass_rate(right_G: Array, total_G: Array, n: int) -> float:
    """Mean over groups of 1 - C(c, n)/C(N, n) - C(N-c, n)/C(N, n): no Beta, unbiased for n <= N."""
    return float(np.mean(1 - _chosen(right_G, total_G, n) - _chosen(total_G - right_G, total_G, n)))


def _chosen(k: Array, total: Array, n: int) -> Array:
    """C(k, n) / C(total, n), 0 where k < n."""
    fits = k >= n
    safe = np.where(fits, k, n)
    log = gammaln(safe + 1) - gammaln(safe - n + 1) - gammaln(total + 1) + gammaln(total - n + 1)
    return np.where(fits, np.exp(log), 0.0)
