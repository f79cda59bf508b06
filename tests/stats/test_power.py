"""Power against simulated tests, the paper's own test from its summary numbers, and Holm."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.multiplicity import holm
from brorl.stats.paired import paired_t, t_test
from brorl.stats.power import (
    design_effect,
    from_summary,
    pairs_needed,
    power_of,
    smallest_detectable,
)


@pytest.mark.parametrize(("difference", "k"), [(0.0, 10), (0.5, 12), (0.3, 60)])
def test_power_is_the_share_of_rejections(difference, k):
    """Statistical: 4,000 t-tests of normal differences, 4 standard errors."""
    d = generator(1, "power", k).normal(difference, 1, (4000, k))
    t = d.mean(1) / (d.std(1, ddof=1) / np.sqrt(k))
    share = (2 * stats.t.sf(np.abs(t), k - 1) <= 0.05).mean()
    want = power_of(difference, 1 / np.sqrt(k), k - 1, alpha=0.05)
    assert abs(share - want) < 4 * np.sqrt(want * (1 - want) / 4000)


def test_power_at_zero_is_alpha_and_is_symmetric():
    assert power_of(0.0, 1.0, 7, alpha=0.03) == pytest.approx(0.03)
    assert power_of(-2.0, 1.0, 7, alpha=0.05) == power_of(2.0, 1.0, 7, alpha=0.05)


@pytest.mark.parametrize(("difference", "df"), [(0.5, 3), (2.0, 9), (3.0, 40)])
def test_power_matches_the_non_central_t(difference, df):
    """Oracle: scipy's own distribution, where it is not nan."""
    edge = stats.t.ppf(0.975, df)
    want = stats.nct.sf(edge, df, difference) + stats.nct.cdf(-edge, df, difference)
    assert power_of(difference, 1.0, df, alpha=0.05) == pytest.approx(want, abs=1e-9)


def test_power_of_many_degrees_of_freedom_is_the_normal_one():
    """Identity in the limit; at 1e6 degrees of freedom the two differ by about 1e-6."""
    want = stats.norm.sf(1.959964 - 2.5) + stats.norm.cdf(-1.959964 - 2.5)
    assert power_of(2.5, 1.0, 1e6, alpha=0.05) == pytest.approx(want, abs=3e-6)


@pytest.mark.parametrize("df", [1, 5, 29, 1e6])
def test_smallest_detectable_has_the_power_it_claims(df):
    """Identity; at many degrees of freedom 1.959964 + 0.841621 = 2.801585 standard errors."""
    found = smallest_detectable(0.02, df, alpha=0.05, power=0.8)
    assert power_of(found, 0.02, df, alpha=0.05) == pytest.approx(0.8, abs=1e-9)
    if df == 1e6:
        assert found == pytest.approx(0.02 * 2.801585, rel=1e-5)


def test_nothing_varies_nothing_hides():
    assert smallest_detectable(0.0, 9, alpha=0.05, power=0.8) == 0.0


def test_pairs_needed_is_the_first_that_suffices():
    """Identity, and the textbook 34 pairs at d = 0.5, alpha 0.05, power 0.8 (Cohen 1988, and
    G*Power's manual)."""
    assert pairs_needed(0.5, 1.0, alpha=0.05, power=0.8) == 34
    k = pairs_needed(0.02, 0.3, alpha=0.05, power=0.9)
    have, fewer = (power_of(0.02, 0.3 / np.sqrt(n), n - 1, alpha=0.05) for n in (k, k - 1))
    assert fewer < 0.9 <= have
    assert pairs_needed(50.0, 1.0, alpha=0.05, power=0.8) == 2


def test_the_papers_own_test_from_its_summary():
    """BroRL, arXiv:2510.01180v1: difference 0.0033, t = 4.84, p = 6.5e-7 one-tailed, more than
    10,000 pairs. Implied: standard error 6.8e-4, one difference varies by 0.068."""
    got = from_summary(0.0033, 4.84, 10_001)
    assert f"{got.p_greater:.1e}" == "6.6e-07"  # at the limit of many pairs it is 6.5e-7:
    assert f"{from_summary(0.0033, 4.84, 10**7).p_greater:.1e}" == "6.5e-07"
    assert f"{got.standard_error:.1e}" == "6.8e-04"
    assert got.spread == pytest.approx(0.0682, abs=5e-5)
    assert got.p_two_sided == pytest.approx(2 * got.p_greater)
    again = t_test(0.0033, got.standard_error, 10_000, level=0.95)
    assert (again.t, again.p_greater) == pytest.approx((4.84, got.p_greater))


def test_design_effect_is_what_clusters_do():
    """Statistical: the variance of means of 12 clusters of 25 with correlation 0.1, over 4,000
    sets, is 1 + 24 · 0.1 = 3.4 times that of independent ones; sqrt(2/4000) relative error."""
    rng = generator(3, "deff")
    shared, own = np.sqrt(0.1), np.sqrt(0.9)
    sets = shared * rng.normal(size=(4000, 12, 1)) + own * rng.normal(size=(4000, 12, 25))
    want = design_effect(25, 0.1) / 300
    assert want * 300 == pytest.approx(3.4)
    assert sets.mean((1, 2)).var() == pytest.approx(want, rel=4 * np.sqrt(2 / 4000))


def test_holm_by_hand():
    """p = .01, .04, .03, .005: sorted .005·4 = .02, .01·3 = .03, .03·2 = .06, then .06 again."""
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]).tolist() == []
    assert holm([0.9, 0.9]).tolist() == [1.0, 1.0]
    assert holm([0.0, 1.0]).tolist() == [0.0, 1.0]  # both ends are p-values


def closed_testing(p, alpha):
    """Oracle: reject i if every subset that holds i has a p of at most alpha / its size."""
    m = len(p)
    subsets = [s for s in product((False, True), repeat=m) if any(s)]
    passes = {s: min(x for x, k in zip(p, s, strict=True) if k) <= alpha / sum(s) for s in subsets}
    return [all(passes[s] for s in subsets if s[i]) for i in range(m)]


@pytest.mark.parametrize("seed", range(20))
def test_holm_is_closed_testing_with_bonferroni(seed):
    p = generator(seed, "holm").random(5) ** 3
    for alpha in (0.01, 0.05, 0.2):
        assert (holm(p) <= alpha).tolist() == closed_testing(p.tolist(), alpha)


def test_holm_holds_the_family_wise_level():
    """Statistical: 5 benchmarks without any change, 1,000 families: at most 5 % + 4 errors have
    one rejection, while the plain tests make one in 23 %."""
    rng, any_holm, any_plain = generator(8, "fwer"), 0, 0
    for _ in range(1000):
        p = [paired_t(rng.normal(size=20), level=0.95).p_two_sided for _ in range(5)]
        any_holm += bool((holm(p) <= 0.05).any())
        any_plain += min(p) <= 0.05
    assert any_holm / 1000 <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 1000)
    assert any_plain / 1000 > 0.18


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: power_of(1, 0, 5, alpha=0.05), "standard_error > 0"),
        (lambda: power_of(1, 1, 5, alpha=5), "alpha in"),
        (lambda: smallest_detectable(1, 5, alpha=0.05, power=0.01), "alpha < power < 1"),
        (lambda: pairs_needed(0, 1, alpha=0.05, power=0.8), "other than 0"),
        (lambda: pairs_needed(1, 1, alpha=0.05, power=1), "alpha < power < 1"),
        (lambda: from_summary(0.1, -2, 10), "difference/t > 0"),
        (lambda: from_summary(0.1, 2, 1), "need 2 pairs"),
        (lambda: design_effect(0.5, 0.1), "m >= 1"),
        (lambda: design_effect(5, 1.5), "correlation"),
        (lambda: holm([0.5, 1.5]), r"in \[0, 1\]"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
