"""What becomes of a group of a given width, in expectation over the groups that a run recorded.

Axes:  G groups
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from brorl.stats.shrinkage import Posterior

Array = NDArray[np.float64]


class Shares(NamedTuple):
    """Expectations for a group of one width, or one that grows in waves."""

    kept: float  # chance that a group passes dynamic sampling
    solved: float  # that it has a right answer
    samples: float  # that it costs
    kept_samples: float  # that the update sees, of any group: 0 of a dropped one
    variance: float  # of rewards within kept groups, p (1 - p) as sampled


def shares(
    right: Posterior,
    zero: Posterior | None,
    totals: Sequence[int],
    *,
    stop_right: int,
    keep_per_group: int | None,
) -> Shares:
    """Expectations over groups for one width or waves.

    Args:
        right: rates of a score of 1, one a group.
        zero: rates of a score of 0 where scores give part credit; None: one minus the right ones.
            Groups that agree on another score are few and taken as kept.
        totals: group sizes after each wave; one for a fixed width.
        stop_right: right answers at which a group stops; not read for one wave.
        keep_per_group: as the recipe's.
    """
    first, last = totals[0], totals[-1]
    all_right = _mean(right.all_right(first))
    all_wrong = _mean(right.all_wrong(last) if zero is None else zero.all_right(last))
    reach = [1.0, *(_mean(right.fewer_than(stop_right, n)) for n in totals[:-1])]
    stop = [a - b for a, b in zip(reach, [*reach[1:], 0.0], strict=True)]
    sizes = [min(n, keep_per_group or n) for n in totals]
    kept = max(0.0, 1 - all_right - all_wrong)
    kept_samples = sum(s * n for s, n in zip(stop, sizes, strict=True))
    kept_samples -= sizes[0] * all_right + sizes[-1] * all_wrong
    samples = sum(s * n for s, n in zip(stop, totals, strict=True))
    variance = _mean(right.variance()) * (last - 1) / last / kept if kept > 0 else 0.0
    return Shares(kept, 1 - _mean(right.all_wrong(last)), samples, kept_samples, variance)


def direct_pass_rate(right_G: Array, total_G: Array, n: int) -> float:
    """Mean over groups of 1 - C(c, n)/C(N, n) - C(N-c, n)/C(N, n): no Beta, unbiased for n <= N."""
    return float(np.mean(1 - _chosen(right_G, total_G, n) - _chosen(total_G - right_G, total_G, n)))


def _chosen(k: Array, total: Array, n: int) -> Array:
    """C(k, n) / C(total, n), 0 where k < n."""
    fits = k >= n
    safe = np.where(fits, k, n)
    log = gammaln(safe + 1) - gammaln(safe - n + 1) - gammaln(total + 1) + gammaln(total - n + 1)
    return np.where(fits, np.exp(log), 0.0)


def _mean(values: Array) -> float:
    return float(values.mean())
