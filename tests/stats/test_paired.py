"""Paired tests against scipy, against enumeration, and against their own null distribution."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.paired import (
    differences,
    effect_size,
    paired_t,
    sign_flip,
    t_test,
    wilcoxon,
    wins_ties_losses,
)

FLIP = {"exact_up_to": 12, "draws": 4000, "seed": 0}


def sample(seed, k, shift=0.1):
    return generator(seed, "d").normal(shift, 1, k)


@pytest.mark.parametrize(("seed", "k"), [(0, 2), (1, 7), (2, 300)])
def test_t_matches_scipy(seed, k):
    """Oracle."""
    d = sample(seed, k).round(6)
    want = stats.ttest_1samp(d, 0)
    ends = want.confidence_interval(0.9)
    got = paired_t(d, level=0.9)
    assert (got.t, got.p_two_sided, got.df) == pytest.approx((want.statistic, want.pvalue, k - 1))
    assert got.difference == pytest.approx((d.mean(), ends.low, ends.high))
    one_sided = stats.ttest_1samp(d, 0, alternative="greater").pvalue
    assert got.p_greater == pytest.approx(one_sided)


def test_no_spread_is_a_case():
    """By hand: all 0 is no evidence, all 0.5 is as certain as this test can be."""
    assert paired_t([0.0] * 5, level=0.95)[3:] == (1.0, 1.0)
    same = paired_t([0.5] * 5, level=0.95)
    assert same.difference == (0.5, 0.5, 0.5)
    assert same[3:] == (0.0, 0.0)
    assert paired_t([-0.5] * 5, level=0.95)[3:] == (0.0, 1.0)
    assert np.isnan(same.t)


def test_equal_averages_tie_whatever_their_rounding():
    """By hand: 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit; the ranks must not see it."""
    d = differences([0.2, 0.1, 0.0], [0.3, 0.2, 0.0])
    assert d[0] == d[1]
    assert wins_ties_losses(d) == (2, 1, 0)
    assert wins_ties_losses(differences([0.1 + 0.2], [0.3])) == (0, 1, 0)


@pytest.mark.parametrize("seed", range(4))
def test_sign_flip_exact_by_enumeration(seed):
    """Oracle: every sign vector written out."""
    d = generator(seed, "d").integers(-3, 4, 8) / 16
    sums = [
        abs(sum(s * x for s, x in zip(signs, d, strict=True)))
        for signs in product((1, -1), repeat=8)
    ]
    got = sign_flip(d, **FLIP)
    assert got.exact
    assert got.sign_vectors == 2 ** np.count_nonzero(d)
    assert got.p_two_sided == pytest.approx(np.mean([s >= abs(d.sum()) - 1e-12 for s in sums]))


def test_sign_flip_monte_carlo_agrees_with_the_exact_value():
    """Statistical: 40,000 draws, 4 standard errors."""
    d = sample(3, 12, shift=0.3)
    exact = sign_flip(d, **FLIP).p_two_sided
    drawn = sign_flip(d, exact_up_to=0, draws=40_000, seed=1)
    assert not drawn.exact
    assert abs(drawn.p_two_sided - exact) < 4 * np.sqrt(exact * (1 - exact) / 40_000)


def test_sign_flip_blocks_and_odd_sizes(monkeypatch):
    """Statistical: 13 differences do not fill their bytes; small blocks must not repeat draws."""
    d = sample(4, 13, shift=0.4)
    exact = sign_flip(d, exact_up_to=13, draws=1, seed=0).p_two_sided
    monkeypatch.setattr("brorl.stats.paired._BLOCK", 64)
    drawn = sign_flip(d, exact_up_to=0, draws=20_000, seed=1)
    assert abs(drawn.p_two_sided - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)


def test_sign_flip_is_never_zero_by_luck():
    got = sign_flip(np.ones(60), exact_up_to=12, draws=99, seed=0)
    assert got == (0.01, False, 99)


def test_sign_flip_repeats_by_seed():
    d = sample(0, 30, shift=0.2)
    p = [sign_flip(d, exact_up_to=0, draws=500, seed=s).p_two_sided for s in (1, 1, 2)]
    assert p[0] == p[1] != p[2]


@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_matches_scipy(seed):
    """Oracle: scipy's exact test without ties, its normal approximation with ties and zeros."""
    d = sample(seed, 11).round(6)
    want = stats.wilcoxon(d, method="exact").pvalue
    assert wilcoxon(d, exact_up_to=12) == pytest.approx(want)
    tied = generator(seed, "tied").integers(-3, 5, 200) / 16
    want = stats.wilcoxon(tied, zero_method="pratt", method="approx").pvalue
    assert wilcoxon(tied, exact_up_to=12) == pytest.approx(want)


def test_wilcoxon_exact_with_ties_by_hand():
    """|d| = 1, 1, 2, all positive, ranks 1.5, 1.5, 3: only +++ and --- reach 6, p = 2/8."""
    assert wilcoxon([1, 1, 2], exact_up_to=12) == 0.25
    assert wilcoxon([1, 1, -2], exact_up_to=12) == 1.0
    assert wilcoxon([0.0, 0.0], exact_up_to=12) == 1.0


@pytest.mark.parametrize("test", ["t", "flip", "wilcoxon"])
def test_rejects_at_its_level_when_nothing_is_there(test):
    """Statistical: 1,000 nulls of 40 problems with tied, skew scores; 5 % within 4 errors."""
    rng, hits = generator(9, "null"), 0
    for i in range(1000):
        a, b = rng.binomial(16, rng.beta(0.5, 1, 40), (2, 40)) / 16
        d = differences(a, b)
        p = {
            "t": lambda d=d: paired_t(d, level=0.95).p_two_sided,
            "flip": lambda d=d, i=i: sign_flip(d, exact_up_to=12, draws=400, seed=i).p_two_sided,
            "wilcoxon": lambda d=d: wilcoxon(d, exact_up_to=12),
        }[test]()
        hits += p <= 0.05
    assert abs(hits / 1000 - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)


def test_effect_size_by_hand():
    """Differences 0, 2, 4: mean 2, standard deviation 2."""
    assert effect_size([0, 2, 4]) == 1.0
    assert effect_size([-0.0, 0, 0]) == 0.0
    assert effect_size([0.25, 0.25]) == np.inf
    assert effect_size([-0.25, -0.25]) == -np.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: differences([1, 2], [1]), r"one pair a problem, got \[2\] and \[1\]"),
        (lambda: differences([np.nan], [1]), "finite"),
        (lambda: paired_t([1.0], level=0.95), "needs 2 problems, got 1"),
        (lambda: paired_t([1.0, 2.0], level=95), "0.95 for 95 %"),
        (lambda: effect_size([1.0]), "needs 2 problems, got 1"),
        (lambda: sign_flip([1.0], exact_up_to=30, draws=1, seed=0), "got 30"),
        (lambda: sign_flip([1.0], exact_up_to=0, draws=0, seed=0), "draws >= 1, got 0"),
        (lambda: wilcoxon([1.0], exact_up_to=-1), "got -1"),
        (lambda: t_test(0.1, -1.0, 3, level=0.95), "a standard error >= 0"),
        (lambda: wins_ties_losses([]), r"K >= 1, got shape \[0\]"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
