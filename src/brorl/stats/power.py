"""What a design could have seen, and what a published t-value says when its units cluster."""

from typing import NamedTuple

import numpy as np
from scipy import integrate, optimize, special, stats

from brorl.errors import ShapeError


def power_of(difference: float, standard_error: float, df: float, *, alpha: float) -> float:
    """Chance that a two-sided t-test at `alpha` rejects 0 when the true difference is this.

    With s the sample standard deviation over the true one, Z standard normal, and
    delta = |difference| / standard_error,

        power = 1 - E over s of P(|Z + delta| <= t_quantile · s)

    integrated over the chi distribution of s: scipy's non-central t is nan for few degrees of
    freedom and a large delta.

    Args:
        difference: true mean difference, any unit.
        standard_error: of its estimate, same unit, > 0.
        df: degrees of freedom, > 0.
        alpha: two-sided level, in (0, 1).

    Raises:
        ShapeError: a number outside its range.
    """
    if not (standard_error > 0 and df > 0 and 0 < alpha < 1 and np.isfinite(difference)):
        raise ShapeError(
            f"need standard_error > 0, df > 0, alpha in (0, 1), got {standard_error}, {df}, {alpha}"
        )
    edge = float(stats.t.ppf(1 - alpha / 2, df))
    delta = abs(difference) / standard_error
    chi = stats.chi(df, scale=1 / np.sqrt(df))

    def missed(s: float) -> float:
        inside = special.ndtr(edge * s - delta) - special.ndtr(-edge * s - delta)
        return float(inside * chi.pdf(s))

    ends = chi.ppf([1e-15, 1 - 1e-15])
    chance, _ = integrate.quad(missed, *ends, epsabs=1e-11, epsrel=1e-10, limit=200)
    return min(1.0, max(0.0, 1.0 - float(chance)))


def smallest_detectable(standard_error: float, df: float, *, alpha: float, power: float) -> float:
    """The true difference that a two-sided test at `alpha` finds with chance `power`.

    About 2.8 standard errors at alpha 0.05 and power 0.8. From the standard error that was seen:
    it says what this design could have found, not whether the difference found is real.

    Args:
        standard_error: of the mean difference, >= 0; 0 gives 0.
        df: degrees of freedom, > 0.
        alpha: two-sided level.
        power: wanted chance, in (alpha, 1).

    Raises:
        ShapeError: a number outside its range.
    """
    if not alpha < power < 1:
        raise ShapeError(f"need alpha < power < 1, got alpha={alpha} and power={power}")
    if standard_error == 0:
        return 0.0
    high = 1.0
    while power_of(high, 1.0, df, alpha=alpha) < power:
        high *= 2
    shift = optimize.brentq(lambda x: power_of(x, 1.0, df, alpha=alpha) - power, 0, high)
    return float(shift) * standard_error


def pairs_needed(difference: float, spread: float, *, alpha: float, power: float) -> int:
    """Problems for a paired test to find `difference` with chance `power`.

    Args:
        difference: true mean difference, not 0.
        spread: standard deviation of the per-problem differences, > 0, same unit.
        alpha, power: as smallest_detectable.

    Returns:
        The smallest K >= 2 whose paired t-test has at least that power.
    """
    if difference == 0 or not spread > 0:
        raise ShapeError(f"need a difference other than 0 and a spread > 0: {difference}, {spread}")
    if not alpha < power < 1:
        raise ShapeError(f"need alpha < power < 1, got alpha={alpha} and power={power}")

    def enough(k: int) -> bool:
        return power_of(difference, spread / np.sqrt(k), k - 1, alpha=alpha) >= power

    low, high = 1, 2
    while not enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


class FromSummary(NamedTuple):
    """A published paired t-test, recomputed from its summary numbers."""

    standard_error: float  # of the mean difference
    spread: float  # standard deviation of one difference
    p_greater: float  # one-tailed
    p_two_sided: float


def from_summary(difference: float, t: float, pairs: int) -> FromSummary:
    """What difference, t and the number of pairs imply: SE = difference / t, SD = SE·sqrt(pairs).

    Raises:
        ShapeError: fewer than 2 pairs, or difference and t not of one sign.
    """
    if pairs < 2 or not difference * t > 0:
        raise ShapeError(f"need 2 pairs and difference/t > 0, got {pairs}, {difference} and {t}")
    se = difference / t
    return FromSummary(
        se,
        se * float(np.sqrt(pairs)),
        float(stats.t.sf(t, pairs - 1)),
        float(2 * stats.t.sf(abs(t), pairs - 1)),
    )


def design_effect(cluster_size: float, correlation: float) -> float:
    """Factor on the variance of a mean when units come in clusters: 1 + (m - 1)·rho.

    Args:
        cluster_size: m >= 1, units in a cluster (all alike).
        correlation: rho in [0, 1], of two differences of one cluster.

    Source:
        Kish 1965, Survey Sampling, sec. 5.4.
    """
    if not (cluster_size >= 1 and 0 <= correlation <= 1):
        raise ShapeError(
            f"need m >= 1 and 0 <= correlation <= 1, got {cluster_size} and {correlation}"
        )
    return 1 + (cluster_size - 1) * correlation
