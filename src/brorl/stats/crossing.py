"""Where the pass@k curves of two policies cross: does training sharpen, or widen what is reached?

The reasoning-boundary view of arXiv:2504.13837: B may lead at k = 1 and A at large k.

Axes:  K problems · J values of k · R resamples
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.errors import ShapeError
from brorl.stats.intervals import bootstrap_band, bootstrap_means


class Crossing(NamedTuple):
    """The first k at which the sign of B - A turns, and how sure that is."""

    k: float | None  # interpolated on a log axis; None where the curves do not cross
    low: float | None  # percentile interval among the resamples that cross
    high: float | None
    share: float  # of resamples that cross, in [0, 1]
    difference_J: NDArray[np.float64]  # mean over problems of B - A at each k
    low_J: NDArray[np.float64]  # simultaneous band: all k at once
    high_J: NDArray[np.float64]


def pass_at_k_crossing(
    a_KJ: ArrayLike,
    b_KJ: ArrayLike,
    ks: Sequence[int],
    *,
    level: float,
    resamples: int,
    seed: int,
) -> Crossing:
    """Compare two pass@k curves of the same problems.

    Args:
        a_KJ, b_KJ: float [K, J], pass@k per problem (brorl.stats.pass_at_k.pass_at_k_table).
        ks: the J values of k, increasing, each >= 1.
        level: of the interval and the band.
        resamples: R, over problems; both curves take the same problems.
        seed: of the stream (seed, "stats", "bootstrap").

    Returns:
        Crossing. k is the first crossing only. A curve that touches 0 without changing side
        does not cross.

    Raises:
        ShapeError: shapes differ, ks do not increase, no problem.
    """
    a, b = np.asarray(a_KJ, dtype=np.float64), np.asarray(b_KJ, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or a.shape[1] != len(ks) or not a.size:
        raise ShapeError(
            f"need two [K, {len(ks)}] with K >= 1, got {list(a.shape)} and {list(b.shape)}"
        )
    if ks[0] < 1 or any(y <= x for x, y in pairwise(ks)):
        raise ShapeError(f"ks must increase from at least 1, got {list(ks)}")
    d_KJ = b - a
    low_J, high_J = bootstrap_band(d_KJ, level=level, resamples=resamples, seed=seed)
    found = [
        k
        for row_J in bootstrap_means(d_KJ, resamples=resamples, seed=seed)
        if (k := _first_crossing(row_J, ks)) is not None
    ]
    ends = np.quantile(found, [0.5 - level / 2, 0.5 + level / 2]) if found else (None, None)
    mean_J = d_KJ.mean(axis=0)
    return Crossing(
        _first_crossing(mean_J, ks),
        None if ends[0] is None else float(ends[0]),
        None if ends[1] is None else float(ends[1]),
        len(found) / resamples,
        mean_J,
        low_J,
        high_J,
    )


def _first_crossing(difference_J: NDArray[np.float64], ks: Sequence[int]) -> float | None:
    """k where the sign turns for the first time, linear in log k between the two that differ."""
    last: int | None = None
    for j, x in enumerate(difference_J):
        if abs(x) < 1e-12:
            continue
        if last is not None and (x > 0) != (difference_J[last] > 0):
            weight = difference_J[last] / (difference_J[last] - x)
            return float(np.exp((1 - weight) * np.log(ks[last]) + weight * np.log(ks[j])))
        last = j
    return None
