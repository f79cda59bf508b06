"""pass@k and its relatives from n recorded samples a problem, without resampling.

Axes:  K problems · J values of k
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.errors import ShapeError

Counts = NDArray[np.int64]

# exp(-38) < 2**-54: a chance of missing below this leaves 1 - miss at exactly 1.0 in float64.
_CERTAIN_NATS = 38.0


def checked_counts(correct: ArrayLike, total: ArrayLike, k: int) -> tuple[Counts, Counts]:
    """`correct` and `total` as int64 of one shape, with 0 <= correct <= total and k <= total.

    Raises:
        ShapeError: scores that are not integers (a score of 0.5 is not half a success), k < 1,
            a problem with fewer than k samples, or a count outside [0, total].
    """
    c, n = np.asarray(correct), np.asarray(total)
    for name, array in (("correct", c), ("total", n)):
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise ShapeError(f"{name} must be integer counts, got {array.dtype}")
    try:
        c, n = np.broadcast_arrays(c.astype(np.int64), n.astype(np.int64))
    except ValueError as error:
        raise ShapeError(
            f"correct and total must broadcast, got shapes {list(c.shape)} and {list(n.shape)}"
        ) from error
    if k < 1 or n.min(initial=k) < k:
        fewest = int(n.min()) if n.size else 0
        raise ShapeError(f"need 1 <= k <= n, got k={k} and a problem with n={fewest} samples")
    if (c < 0).any() or (c > n).any():
        at = int(np.flatnonzero((c < 0) | (c > n))[0])
        raise ShapeError(
            f"need 0 <= correct <= total, got {c.flat[at]} of {n.flat[at]} at index {at}"
        )
    return c, n


def pass_at_k(correct: ArrayLike, total: ArrayLike, k: int) -> NDArray[np.float64]:
    """P(at least one of k drawn without replacement is correct) = 1 - C(n-c, k) / C(n, k).

    Unbiased for 1 - (1 - p)**k when the n samples are i.i.d. with success rate p.

    The ratio of binomials is symmetric in c and k, so with a = min(c, k), b = max(c, k)

        log(miss) = sum over i < a of log1p(-b / (n - i))

    It has at most sqrt(38 n) terms that matter (1,394 at n = 51,200): where a·b > 38 n the miss
    is below half a unit in the last place of 1. Neither factorials nor their logarithms appear,
    so nothing overflows and nothing large cancels: the relative error is a few 1e-15, also where
    pass@k is small.

    Args:
        correct: int, any shape: c, the correct samples per problem; 0 <= c <= n.
        total: int, broadcasts against `correct`: n, the samples per problem; n >= k.
        k: >= 1.

    Returns:
        float64 of the broadcast shape, in [0, 1]. Per problem: average it yourself,
        and keep the vector for the paired test.

    Raises:
        ShapeError: see checked_counts.

    Source:
        Chen et al. 2021, arXiv:2107.03374, eq. 1.
    """
    c, n = checked_counts(correct, total, k)
    value = np.zeros(c.shape)
    certain = (n - c < k) | (c * float(k) > _CERTAIN_NATS * n)
    value[certain] = 1.0
    open_ = ~certain & (c > 0)
    value[open_] = -np.expm1(_log_miss(c[open_], n[open_], k))
    return value


def pass_hat_k(correct: ArrayLike, total: ArrayLike, k: int) -> NDArray[np.float64]:
    """P(all of k drawn without replacement are correct) = C(c, k) / C(n, k), pass^k.

    Unbiased for p**k: reliability, where pass@k is reach. Falls with k.

    Args, Returns and Raises: as pass_at_k.

    Source:
        Yao et al. 2024 (tau-bench), arXiv:2406.12045, sec. 3.
    """
    c, n = checked_counts(correct, total, k)
    value = np.zeros(c.shape)
    wrong = n - c
    value[wrong == 0] = 1.0
    open_ = (wrong > 0) & (c >= k)
    value[open_] = np.exp(_log_miss(wrong[open_], n[open_], k))
    return value


def _log_miss(c: Counts, n: Counts, k: int) -> NDArray[np.float64]:
    """log C(n-c, k) / C(n, k) for vectors with 0 < c, 0 < k and c + k <= n, once per pair."""
    pairs, back = np.unique(np.stack([c, n]), axis=1, return_inverse=True)
    logs = [np.log1p(-max(a, k) / (b - np.arange(min(a, k)))).sum() for a, b in pairs.T.tolist()]
    return np.asarray(logs, dtype=np.float64)[back.ravel()]


def pass_at_k_curve(
    correct_K: ArrayLike, total_K: ArrayLike, ks: Sequence[int]
) -> NDArray[np.float64]:
    """pass@k averaged over problems, for several k.

    Args:
        correct_K: int [K], the correct samples per problem. K >= 1.
        total_K: int [K] or one number: the samples per problem, every one >= max(ks).
        ks: the values of k, each >= 1.

    Returns:
        float64 [J], one mean over problems per k, in the order of `ks`.

    Raises:
        ShapeError: no problem, not 1-d, or what checked_counts refuses.
    """
    mean: NDArray[np.float64] = pass_at_k_table(correct_K, total_K, ks).mean(axis=0)
    return mean


def pass_at_k_table(
    correct_K: ArrayLike, total_K: ArrayLike, ks: Sequence[int]
) -> NDArray[np.float64]:
    """pass@k per problem and k: float64 [K, J]. Arguments and errors as pass_at_k_curve."""
    correct = np.asarray(correct_K)
    if correct.ndim != 1 or not correct.size:
        raise ShapeError(f"correct must be [K] with K >= 1, got shape {list(correct.shape)}")
    columns = [pass_at_k(correct, total_K, k) for k in ks]
    return np.stack(columns, axis=1) if columns else np.empty((correct.size, 0))


def doubling_ks(n: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to n, and n itself: where a pass@k curve is drawn. n >= 1."""
    if n < 1:
        raise ShapeError(f"need n >= 1 samples, got {n}")
    powers = [1 << i for i in range(n.bit_length())]
    return tuple(powers if powers[-1] == n else [*powers, n])
