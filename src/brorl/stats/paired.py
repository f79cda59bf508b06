"""Two policies on the same problems: tests on the K differences of their per-problem scores.

    t          the mean difference is 0; fast, and right for many problems
    sign-flip  the differences are symmetric about 0; exact at any K, no distribution assumed
    Wilcoxon   the same null by ranks; one wild problem cannot decide it

Each takes the problem as the unit. Problems of one benchmark or task are alike, and two runs of
one recipe differ: brorl.stats.clustered is for that.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.intervals import Interval, check_level

_BLOCK = 1 << 22  # signs held at once: 32 MiB as float64
_DIGITS = 12  # scores are averages of few numbers; what differs below is rounding, so a tie


class PairedT(NamedTuple):
    """The paired t-test and the interval that belongs to it."""

    difference: Interval  # mean difference, score units
    t: float  # nan where every difference is the same
    df: float
    p_two_sided: float
    p_greater: float  # against "the mean difference is 0 or less"


class SignFlip(NamedTuple):
    """The sign-flip permutation test of the mean difference."""

    p_two_sided: float
    exact: bool  # all sign vectors, or a Monte Carlo sample of them
    sign_vectors: int  # how many were looked at


class WinsTiesLosses(NamedTuple):
    """Problems on which the difference is above, at or below 0."""

    wins: int
    ties: int
    losses: int


def differences(a_K: ArrayLike, b_K: ArrayLike) -> NDArray[np.float64]:
    """b - a per problem, rounded to 12 digits so that equal averages tie: float64 [K].

    Raises:
        ShapeError: not two vectors of one length K >= 1, or a value that is not finite.
    """
    a, b = np.asarray(a_K, dtype=np.float64), np.asarray(b_K, dtype=np.float64)
    if a.shape != b.shape:
        raise ShapeError(f"need one pair a problem, got {list(a.shape)} and {list(b.shape)}")
    return _checked(b - a)


def paired_t(difference_K: ArrayLike, *, level: float) -> PairedT:
    """Student's paired t-test and interval: mean d ± t·s/sqrt(K), K - 1 degrees of freedom.

    Args:
        difference_K: float [K], score of B minus score of A on each problem. K >= 2.
        level: of the interval, in (0, 1).

    Returns:
        PairedT. Differences that are all equal have no spread: t is nan, p is 1 where they are
        0 and 0 where they are not, and the interval is the point.

    Raises:
        ShapeError: fewer than 2 problems, a value that is not finite, or a bad level.
    """
    d = _checked(difference_K)
    if d.size < 2:
        raise ShapeError(f"a paired t-test needs 2 problems, got {d.size}")
    return t_test(float(d.mean()), float(d.std(ddof=1) / np.sqrt(d.size)), d.size - 1, level=level)


def t_test(difference: float, standard_error: float, df: float, *, level: float) -> PairedT:
    """The t-test of one estimate against 0, from the estimate and its standard error >= 0."""
    check_level(level)
    if not (np.isfinite(difference) and standard_error >= 0 and df > 0):
        raise ShapeError(
            f"need a finite difference, a standard error >= 0 and df > 0, got {difference}, "
            f"{standard_error} and {df}"
        )
    if standard_error == 0.0:
        point = Interval(difference, difference, difference)
        p = 1.0 if difference == 0.0 else 0.0
        greater = 1.0 if difference <= 0.0 else 0.0
        return PairedT(point, float("nan"), df, p, greater)
    t = difference / standard_error
    half = float(stats.t.ppf(0.5 + level / 2, df)) * standard_error
    return PairedT(
        Interval(difference, difference - half, difference + half),
        t,
        df,
        float(2 * stats.t.sf(abs(t), df)),
        float(stats.t.sf(t, df)),
    )


def sign_flip(difference_K: ArrayLike, *, exact_up_to: int, draws: int, seed: int) -> SignFlip:
    """Share of sign vectors whose |sum| is at least the observed one.

    Under "A and B are exchangeable on every problem" each difference is as likely with either
    sign. Zeros do not enter: flipping them changes nothing.

    Args:
        difference_K: float [K].
        exact_up_to: with at most this many nonzero differences all 2**m vectors are looked at;
            0 <= exact_up_to <= 24.
        draws: sign vectors otherwise, >= 1. Then p = (hits + 1) / (draws + 1): never 0, and no
            smaller than 1 / (draws + 1) however clear the case.
        seed: of the stream (seed, "stats", "sign-flip").

    Raises:
        ShapeError: no problem, a value that is not finite, or a bad count.

    Source:
        Fisher 1935, The Design of Experiments; the + 1: Phipson and Smyth 2010, SAGMB 9:39.
    """
    d = _checked(difference_K)
    _check_exact(exact_up_to)
    if draws < 1:
        raise ShapeError(f"need draws >= 1, got {draws}")
    d = d[d != 0.0]
    # Sums in another order differ by rounding; a sum as large as the observed one is a hit.
    reach = abs(d.sum()) - 1e-9 * np.abs(d).sum()
    if d.size <= exact_up_to:
        sums = np.zeros(1)
        for x in d:
            sums = np.concatenate([sums + x, sums - x])
        return SignFlip(float((np.abs(sums) >= reach).mean()), True, sums.size)
    rng = generator(seed, "stats", "sign-flip")
    hits, rows = 0, max(1, _BLOCK // d.size)
    for start in range(0, draws, rows):
        r = min(rows, draws - start)
        bits = np.unpackbits(
            np.frombuffer(rng.bytes(r * -(-d.size // 8)), np.uint8).reshape(r, -1), axis=1
        )[:, : d.size]
        hits += int((np.abs(d.sum() - 2.0 * (bits.astype(np.float64) @ d)) >= reach).sum())
    return SignFlip((hits + 1) / (draws + 1), False, draws)


def wilcoxon(difference_K: ArrayLike, *, exact_up_to: int) -> float:
    """Two-sided p of the signed-rank test, zeros ranked and then dropped (Pratt's way).

    Args:
        difference_K: float [K].
        exact_up_to: at most this many nonzero differences: exact over all sign vectors, ties
            included; above: the normal approximation with its tie correction.

    Raises:
        ShapeError: no problem, a value that is not finite, or exact_up_to outside [0, 24].

    Source:
        Wilcoxon 1945, Biometrics Bulletin 1:80; Pratt 1959, JASA 54:655 (zeros).
    """
    d = _checked(difference_K)
    _check_exact(exact_up_to)
    signed_rank_K = np.sign(d) * stats.rankdata(np.abs(d))
    if np.count_nonzero(d) <= exact_up_to:
        return sign_flip(signed_rank_K, exact_up_to=exact_up_to, draws=1, seed=0).p_two_sided
    z = signed_rank_K.sum() / np.sqrt(np.square(signed_rank_K).sum())
    return float(2 * stats.norm.sf(abs(z)))


def effect_size(difference_K: ArrayLike) -> float:
    """Cohen's d of paired data: mean difference over the standard deviation of the differences.

    0 where every difference is 0; inf with the sign of the mean where they are equal and not 0.
    Not comparable between evaluations with other numbers of samples a problem: more samples
    make the differences less noisy and the same gain a larger effect. K >= 2.

    Source:
        Cohen 1988, Statistical Power Analysis, sec. 2.3.5 (d_z).
    """
    d = _checked(difference_K)
    if d.size < 2:
        raise ShapeError(f"an effect size needs 2 problems, got {d.size}")
    mean, spread = float(d.mean()), float(d.std(ddof=1))
    if spread > 0.0:
        return mean / spread
    return 0.0 if mean == 0.0 else float(np.copysign(np.inf, mean))


def wins_ties_losses(difference_K: ArrayLike) -> WinsTiesLosses:
    """Problems that B does better, equally well and worse. ShapeError as for `differences`."""
    sign = np.sign(_checked(difference_K))
    return WinsTiesLosses(int((sign > 0).sum()), int((sign == 0).sum()), int((sign < 0).sum()))


def _checked(difference_K: ArrayLike) -> NDArray[np.float64]:
    d = np.asarray(difference_K, dtype=np.float64)
    if d.ndim != 1 or not d.size or not np.isfinite(d).all():
        raise ShapeError(f"differences must be finite [K], K >= 1, got shape {list(d.shape)}")
    return np.asarray(np.round(d, _DIGITS), dtype=np.float64)


def _check_exact(exact_up_to: int) -> None:
    if not 0 <= exact_up_to <= 24:
        raise ShapeError(f"need 0 <= exact_up_to <= 24 (16 million sums), got {exact_up_to}")
