"""Confidence intervals for a mean over problems of scores in [0, 1].

The unit that is drawn is the problem: the interval says what another draw of as many problems
of the same kind would show. Samples of one problem are not independent evidence about others,
so n samples of K problems are K observations, never n·K. docs/statistics.md has the measured
coverage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator

_FEWEST_DF = 4.0
_BLOCK = 1 << 22  # numbers in one block of resampling counts: 32 MiB


class Interval(NamedTuple):
    """A point estimate and the ends of its interval, in the unit of what was measured."""

    value: float
    low: float
    high: float


def mean_interval(values_K: ArrayLike, *, level: float) -> Interval:
    """Interval for the mean over problems of per-problem scores in [0, 1].

    Wilson's score interval with an effective number of problems. For right-or-wrong scores the
    variance is m(1-m); averages of n samples vary less. The ratio

        phi = (sum (x - m)**2 · K/(K-1) / (m(1-m)) + 1) / (K + 1),   at most 1

    (one made-up right-or-wrong problem keeps it away from 0) gives K/phi effective problems.
    The normal quantile becomes Student's t with Satterthwaite's degrees of freedom for the
    variance, 2K / (kurtosis - 1), between 4 and K - 1: few problems that are not at 0 or 1 say
    little about the variance. With right-or-wrong scores, many problems and a mean that is not
    extreme this is Wilson's interval. It never leaves [0, 1] and has width > 0 at means 0 and 1.

    Chosen by measured coverage among Student's t, Wilson with other weights, and added
    pseudo-scores. Nominal 95 %: 93 to 97 % with 200 or more problems and means 0.1 to 0.9, and
    at least 90 % with 30 problems and means near 0 or 1; docs/statistics.md has the table.

    Args:
        values_K: float [K], each in [0, 1]: per problem, the mean score, or its pass@k. K >= 1.
        level: nominal coverage in (0, 1), 0.95 for a 95 % interval.

    Returns:
        Interval with value = mean. One problem alone gives [0, 1]: it says nothing about others.

    Raises:
        ShapeError: no problem, not 1-d, a value outside [0, 1] or not finite, or a bad level.

    Source:
        Wilson 1927, JASA 22:209; the effective sample size is Kish's (Survey Sampling, 1965);
        the degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946). The
        combination is our own.
    """
    x = unit_scores(values_K)
    check_level(level)
    k, m = x.size, float(x.mean())
    if k == 1:
        return Interval(m, 0.0, 1.0)
    spread = float(np.square(x - m).sum()) if np.ptp(x) > 0 else 0.0  # not rounding of equal ones
    binary = m * (1.0 - m)
    phi = 1.0 if spread == 0.0 and binary == 0.0 else (spread * k / (k - 1) / binary + 1) / (k + 1)
    low, high = _score_interval(m, k / min(phi, 1.0), _t_quantile(x, m, spread, level))
    return Interval(m, low, high)


def _t_quantile(x: NDArray[np.float64], m: float, spread: float, level: float) -> float:
    """Student's quantile with the degrees of freedom that mean_interval's docstring states."""
    k = x.size
    df = k - 1.0
    if spread > 0.0:
        kurtosis = float(np.power(x - m, 4).mean()) / (spread / k) ** 2
        df = min(df, max(_FEWEST_DF, 2 * k / max(kurtosis - 1.0, 1e-9)))
    return float(stats.t.ppf(0.5 + level / 2, df))


def _score_interval(m: float, n: float, z: float) -> tuple[float, float]:
    """The values mu with |m - mu| <= z·sqrt(mu(1-mu)/n), in [0, 1]; n need not be whole."""
    shrink = 1.0 / (1.0 + z * z / n)
    centre = (m + z * z / (2 * n)) * shrink
    half = z * shrink * float(np.sqrt(m * (1 - m) / n + z * z / (4 * n * n)))
    # Rounding alone may put an end on the wrong side of 0, 1 or m itself.
    return max(0.0, min(centre - half, m)), min(1.0, max(centre + half, m))


def strata_interval(groups: Sequence[ArrayLike], *, level: float) -> Interval:
    """Interval for the mean of group means, the groups fixed and their problems drawn.

        value = mean over G of mean_g,   SE**2 = sum over G of s_g**2 / K_g / G**2

    with Student's t on Satterthwaite's degrees of freedom, cut to [0, 1]. For the mean over
    tasks or benchmarks, where a large one must not weigh more than a small one.

    Args:
        groups: G >= 1 vectors of scores in [0, 1], each with at least 2 problems.
        level: nominal coverage in (0, 1).

    Raises:
        ShapeError: no group, one with fewer than 2 problems, a score outside [0, 1].

    Source:
        stratified means: Cochran 1977, Sampling Techniques, sec. 5.4.
    """
    check_level(level)
    scores = [unit_scores(group) for group in groups]
    if not scores or min(x.size for x in scores) < 2:
        sizes = [x.size for x in scores]
        raise ShapeError(f"need groups of at least 2 problems each, got sizes {sizes}")
    value = float(np.mean([x.mean() for x in scores]))
    parts = np.array([x.var(ddof=1) / x.size for x in scores])
    if not parts.any():
        return Interval(value, value, value)
    df = parts.sum() ** 2 / (np.square(parts) / [x.size - 1 for x in scores]).sum()
    half = float(stats.t.ppf(0.5 + level / 2, df) * np.sqrt(parts.sum())) / len(scores)
    return Interval(value, max(0.0, value - half), min(1.0, value + half))


def wilson(successes: int, trials: int, *, level: float) -> Interval:
    """Wilson's interval for a share of independent right-or-wrong trials.

    Applies where each trial is a problem of its own (one greedy answer each), or where all
    samples are of one problem. Several samples of several problems need mean_interval.

    Args:
        successes: in [0, trials].
        trials: >= 1.
        level: nominal coverage in (0, 1).

    Raises:
        ShapeError: no trial, successes outside [0, trials], or a bad level.

    Source:
        Wilson 1927, JASA 22:209.
    """
    check_level(level)
    if not 0 <= successes <= trials or trials < 1:
        raise ShapeError(f"need 0 <= successes <= trials, trials >= 1: got {successes}, {trials}")
    share = successes / trials
    return Interval(share, *_score_interval(share, trials, float(stats.norm.ppf(0.5 + level / 2))))


def bootstrap_means(values_KJ: ArrayLike, *, resamples: int, seed: int) -> NDArray[np.float64]:
    """Means over problems drawn again with replacement: whole problems, never single samples.

    Args:
        values_KJ: float [K, J] or [K]: J quantities of each problem; a resample takes the same
            problems for all of them. K >= 1.
        resamples: R >= 1.
        seed: of the stream (seed, "stats", "bootstrap").

    Returns:
        float64 [R, J], or [R] for a vector.

    Raises:
        ShapeError: no problem, more than 2 axes, a value that is not finite, or resamples < 1.
    """
    values = np.asarray(values_KJ, dtype=np.float64)
    if values.ndim not in (1, 2) or not values.shape[0] or not np.isfinite(values).all():
        raise ShapeError(f"need finite [K] or [K, J] with K >= 1, got shape {list(values.shape)}")
    if resamples < 1:
        raise ShapeError(f"need resamples >= 1, got {resamples}")
    k = values.shape[0]
    rng = generator(seed, "stats", "bootstrap")
    rows = max(1, _BLOCK // k)
    means = []
    for start in range(0, resamples, rows):
        r = min(rows, resamples - start)
        drawn = rng.integers(k, size=(r, k)) + np.arange(r)[:, None] * k
        counts_RK = np.bincount(drawn.ravel(), minlength=r * k).reshape(r, k)
        means.append(counts_RK @ values / k)
    return np.concatenate(means)


def bootstrap_interval(values_K: ArrayLike, *, level: float, resamples: int, seed: int) -> Interval:
    """Percentile interval of the mean, resampling problems. For means and differences alike.

    Too narrow where few problems differ from the rest (docs/statistics.md): mean_interval is
    the better choice for scores in [0, 1].

    Args and errors: as bootstrap_means, with `level` the nominal coverage in (0, 1).

    Source:
        Efron 1979, Annals of Statistics 7:1.
    """
    check_level(level)
    x = np.asarray(values_K, dtype=np.float64)
    if x.ndim != 1:
        raise ShapeError(f"values must be [K], got shape {list(x.shape)}")
    means = bootstrap_means(x, resamples=resamples, seed=seed)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(x.mean()), float(low), float(high))


def bootstrap_band(
    values_KJ: ArrayLike, *, level: float, resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A band that holds all J means at once with the stated chance, e.g. a whole pass@k curve.

    Half-width q·s_j: s_j the bootstrap standard deviation of mean j, q the `level` quantile over
    resamples of max over j of |mean*_j - mean_j| / s_j.

    Args:
        values_KJ: float [K, J].
        level, resamples, seed: as bootstrap_interval.

    Returns:
        (low_J, high_J), float64 [J]. A column with no spread has low = high = its mean.

    Source:
        the studentised maximum: Davison and Hinkley 1997, Bootstrap Methods, sec. 4.2.4.
    """
    check_level(level)
    values = np.asarray(values_KJ, dtype=np.float64)
    if values.ndim != 2:
        raise ShapeError(f"values must be [K, J], got shape {list(values.shape)}")
    deviations = bootstrap_means(values, resamples=resamples, seed=seed) - values.mean(axis=0)
    s = deviations.std(axis=0)
    varies = s > 1e-12  # below: equal values, and the rounding of their sums
    z = np.abs(deviations[:, varies]) / s[varies]
    q = float(np.quantile(z.max(axis=1), level)) if varies.any() else 0.0
    half = np.where(varies, q * s, 0.0)
    return values.mean(axis=0) - half, values.mean(axis=0) + half


def unit_scores(values_K: ArrayLike) -> NDArray[np.float64]:
    """`values_K` as float64 [K], K >= 1, each in [0, 1]; ShapeError where it is not that."""
    x = np.asarray(values_K, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ShapeError(f"scores must be [K] with K >= 1 problems, got shape {list(x.shape)}")
    bad = np.flatnonzero(~((x >= 0.0) & (x <= 1.0)))
    if bad.size:
        raise ShapeError(f"a score lies in [0, 1], got {x[bad[0]]} at index {bad[0]}")
    return x


def check_level(level: float) -> None:
    """Raise ShapeError unless 0 < level < 1."""
    if not 0.0 < level < 1.0:
        raise ShapeError(f"a level lies in (0, 1), 0.95 for 95 %: got {level}")
