"""Intervals: measured coverage, Wilson's own numbers, and identities of the bootstrap."""

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.intervals import (
    bootstrap_band,
    bootstrap_interval,
    bootstrap_means,
    mean_interval,
    strata_interval,
    wilson,
)


def draw(population, mean, problems, samples, rng):
    """One data set: a success rate per problem, then the share right of `samples`."""
    if population == "equal":
        rates = np.full(problems, mean)
    else:  # Beta with a + b = population: small is all-or-nothing, large is all alike
        rates = rng.beta(population * mean, population * (1 - mean), problems)
    return rng.binomial(samples, rates) / samples


def covered(problems, mean, population, samples, rounds):
    rng = generator(7, "coverage", problems, str(mean), str(population), samples)
    hits = 0
    for _ in range(rounds):
        got = mean_interval(draw(population, mean, problems, samples, rng), level=0.95)
        hits += got.low <= mean <= got.high
    return hits / rounds


@pytest.mark.parametrize("mean", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize(("population", "samples"), [(0.001, 1), (0.3, 16), (1, 16), ("equal", 16)])
def test_covers_93_to_97_percent_of_200_problems(mean, population, samples):
    """Statistical: 2,000 rounds have a standard error of 0.5 %; 4 of them around [93, 97] %."""
    share = covered(200, mean, population, samples, rounds=2000)
    error = 4 * np.sqrt(0.95 * 0.05 / 2000)
    assert 0.93 - error <= share <= 0.97 + error


@pytest.mark.parametrize("mean", [0.02, 0.05, 0.97])
@pytest.mark.parametrize(("population", "samples"), [(0.001, 1), (0.3, 16), (1, 16), ("equal", 16)])
def test_covers_90_percent_of_30_problems_near_the_ends(mean, population, samples):
    """Statistical, one-sided: the floor of 90 % less 4 standard errors of 2,000 rounds.
    Student's t reaches 45 % here, so the bound tells the rules apart."""
    share = covered(30, mean, population, samples, rounds=2000)
    assert share >= 0.90 - 4 * np.sqrt(0.9 * 0.1 / 2000)


def test_narrower_than_counting_each_problem_as_right_or_wrong():
    """Identity: problems that all score 0.5 on 16 samples carry far more than coin flips do."""
    alike = mean_interval(np.tile([7 / 16, 9 / 16], 100), level=0.95)
    flips = mean_interval(np.tile([0.0, 1.0], 100), level=0.95)
    assert alike.value == flips.value == 0.5
    assert alike.high - alike.low < 0.2 * (flips.high - flips.low)


def test_right_or_wrong_scores_give_wilson_with_students_quantile():
    """Oracle: the roots of (m - mu)**2 = t**2 mu (1 - mu) / K, from numpy's polynomial solver."""
    x = np.r_[np.ones(60), np.zeros(140)]
    t2 = stats.t.ppf(0.975, 199) ** 2 / 200
    roots = np.sort(np.roots([1 + t2, -(2 * 0.3 + t2), 0.09]))
    assert mean_interval(x, level=0.95)[1:] == pytest.approx(roots, rel=1e-12)


def test_equal_scores_by_hand():
    """30 times 0.1, whose sum rounds: phi = 1/31, so 930 effective problems, t at 29 degrees."""
    t2 = stats.t.ppf(0.975, 29) ** 2 / 930
    roots = np.sort(np.roots([1 + t2, -(0.2 + t2), 0.01]))
    assert mean_interval([0.1] * 30, level=0.95)[1:] == pytest.approx(roots, rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_perfect_score_still_has_width(value):
    got = mean_interval(np.full(30, value), level=0.95)
    assert got.value == value
    assert 0.1 < got.high - got.low < 0.15
    assert min(got.low, 1 - got.high) == 0.0


def test_mirror():
    """Identity: scores 1 - x give the mirrored interval."""
    x = generator(0, "mirror").random(50) ** 3
    low, high = mean_interval(x, level=0.9)[1:]
    assert mean_interval(1 - x, level=0.9)[1:] == pytest.approx((1 - high, 1 - low), rel=1e-9)


def test_one_problem_says_nothing_about_others():
    assert mean_interval([0.4], level=0.95) == (0.4, 0.0, 1.0)


def test_wilson_by_hand():
    """5 of 10 at z = 1.959964: centre 1/2, half-width z/2 / sqrt(10 + z**2) = 0.263405."""
    assert wilson(5, 10, level=0.95) == pytest.approx((0.5, 0.236593, 0.763407), abs=1e-6)


@pytest.mark.parametrize("successes", [0, 1, 13, 40])
def test_wilson_matches_scipy(successes):
    want = stats.binomtest(successes, 40).proportion_ci(0.9, method="wilson")
    assert wilson(successes, 40, level=0.9)[1:] == pytest.approx(tuple(want), abs=1e-12)


def test_strata_by_hand():
    """Groups (0, 1) and (0.2, 0.4): means 0.5 and 0.3, variances of means 0.25 and 0.01, so the
    value is 0.4, SE = sqrt(0.26)/2 = 0.254951, df = 0.26**2 / (0.0625 + 0.0001) = 1.079872."""
    got = strata_interval([[0, 1], [0.2, 0.4]], level=0.5)
    half = stats.t.ppf(0.75, 0.26**2 / 0.0626) * np.sqrt(0.26) / 2
    assert got == pytest.approx((0.4, 0.4 - half, 0.4 + half))
    assert strata_interval([[0.5] * 3, [1.0] * 2], level=0.9) == (0.75, 0.75, 0.75)
    assert strata_interval([[0, 1], [0, 1]], level=0.99)[1:] == (0.0, 1.0)  # cut to [0, 1]


def test_strata_cover_the_mean_of_group_means():
    """Statistical: sizes 20 and 200 with means 0.3 and 0.8; 1,500 rounds, 4 standard errors. The
    pooled mean is 0.75 and must not be what is covered."""
    rng, hits = generator(8, "strata"), 0
    for _ in range(1500):
        groups = [
            rng.binomial(16, rng.beta(3 * m, 3 * (1 - m), k)) / 16
            for m, k in ((0.3, 20), (0.8, 200))
        ]
        got = strata_interval(groups, level=0.95)
        hits += got.low <= 0.55 <= got.high
    assert abs(hits / 1500 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 1500)


def test_bootstrap_has_the_exact_moments():
    """Statistical: over resamples the mean is the mean and the variance is sum (x-m)**2 / K**2.
    4 standard errors: sd/sqrt(R) of the mean, about sqrt(2/R) of the variance."""
    x = generator(1, "x").random(40)
    means = bootstrap_means(x, resamples=20_000, seed=3)
    variance = x.var() / x.size
    assert abs(means.mean() - x.mean()) < 4 * np.sqrt(variance / 20_000)
    assert means.var() == pytest.approx(variance, rel=4 * np.sqrt(2 / 20_000))


def test_bootstrap_takes_the_same_problems_for_every_column():
    """Identity: columns that are complements stay complements in every resample."""
    x = generator(2, "x").random(25)
    means = bootstrap_means(np.stack([x, 1 - x], axis=1), resamples=500, seed=0)
    np.testing.assert_allclose(means.sum(axis=1), 1.0, rtol=1e-12)
    assert means[:, 0].std() > 0


def test_bootstrap_matches_enumeration_of_every_resample():
    """Oracle: 3 problems have 27 resamples; shares of each mean within 4 standard errors."""
    x = np.array([0.0, 0.25, 1.0])
    grid = np.array(np.meshgrid(x, x, x)).reshape(3, -1).mean(axis=0)
    got = bootstrap_means(x, resamples=30_000, seed=5)
    for value in np.unique(grid.round(12)):
        want = np.isclose(grid, value).mean()
        share = np.isclose(got, value).mean()
        assert abs(share - want) < 4 * np.sqrt(want * (1 - want) / 30_000)


def test_bootstrap_repeats_by_seed_and_only_by_seed():
    x = generator(1, "x").random(40)
    a, b, c = (bootstrap_interval(x, level=0.95, resamples=200, seed=s) for s in (1, 1, 2))
    assert a == b != c


def test_bootstrap_in_blocks_is_the_bootstrap(monkeypatch):
    """Identity, on memory: a small block changes how many rows are held, not their number."""
    monkeypatch.setattr("brorl.stats.intervals._BLOCK", 90)
    means = bootstrap_means(np.arange(30.0), resamples=1000, seed=0)
    assert means.shape == (1000,)
    assert abs(means.mean() - 14.5) < 4 * np.arange(30).std() / np.sqrt(30 * 1000)


def test_band_holds_all_columns_at_once():
    """Statistical: of 300 data sets of 60 problems and 8 correlated columns, a 90 % band holds
    all 8 means in 90 % less 4 standard errors; the pointwise rule would hold fewer."""
    rng, inside = generator(4, "band"), 0
    for round_ in range(300):
        data = rng.normal(size=(60, 1)) + 2 * rng.normal(size=(60, 8))
        low, high = bootstrap_band(data, level=0.9, resamples=400, seed=round_)
        inside += bool((low <= 0).all() and (high >= 0).all())
    assert 0.9 - 4 * np.sqrt(0.09 / 300) <= inside / 300 <= 0.9 + 4 * np.sqrt(0.09 / 300)


def test_band_of_a_constant_column_has_no_width():
    low, high = bootstrap_band(
        np.stack([np.full(9, 0.1), np.arange(9.0)], 1), level=0.9, resamples=99, seed=0
    )
    assert low[0] == high[0] == pytest.approx(0.1)
    assert low[1] < 4 < high[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_interval([], level=0.95), r"K >= 1 problems, got shape \[0\]"),
        (lambda: mean_interval([0.5, 1.5], level=0.95), "got 1.5 at index 1"),
        (lambda: mean_interval([float("nan")], level=0.95), "got nan at index 0"),
        (lambda: mean_interval([0.5], level=95), "0.95 for 95 %: got 95"),
        (lambda: strata_interval([[0.5, 1], [1]], level=0.95), r"got sizes \[2, 1\]"),
        (lambda: strata_interval([], level=0.95), r"got sizes \[\]"),
        (lambda: wilson(3, 2, level=0.95), "got 3, 2"),
        (lambda: wilson(0, 0, level=0.95), "got 0, 0"),
        (lambda: bootstrap_means([], resamples=9, seed=0), r"K >= 1, got shape \[0\]"),
        (lambda: bootstrap_means([np.inf], resamples=9, seed=0), "need finite"),
        (lambda: bootstrap_means([1.0], resamples=0, seed=0), "resamples >= 1, got 0"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
