"""Shrunk rates: hand-computed posteriors, exact integrals, and fits of known populations."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from brorl.algo.stopping import unbiased_rate
from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.shrinkage import Prior, fit_prior, shrink


def one(a, b):
    return Prior((1.0,), (a,), (b,))


def test_posterior_by_hand():
    """Beta(1, 3) and 0 of 16: Beta(1, 19), mean 1/20. E[p^2] = 1·2/(20·21); E[q^2] = 19·20/(20·21);
    E[pq] = 1·19/(20·21). With 4 of 4: Beta(5, 3), mean 5/8."""
    found = shrink([0, 4], [16, 4], one(1, 3))
    assert found.mean_P == pytest.approx([1 / 20, 5 / 8])
    assert found.all_right(2)[0] == pytest.approx(2 / 420)
    assert found.all_wrong(2)[0] == pytest.approx(380 / 420)
    assert found.variance()[0] == pytest.approx(19 / 420)
    assert found.fewer_than(1, 2)[0] == pytest.approx(380 / 420)
    assert found.fewer_than(2, 2)[0] == pytest.approx(1 - 2 / 420)
    assert found.fewer_than(3, 2) == pytest.approx([1, 1])


@pytest.mark.parametrize(("a", "b", "n"), [(0.2, 0.5, 16), (3.0, 2.0, 5), (1e-2, 1.0, 512)])
def test_expectations_are_integrals_over_the_beta(a, b, n):
    """Oracle: quadrature, with x = u^(1/a) where the density is singular at 0."""
    found = shrink([1], [2], one(a, b))
    density = stats.beta(a + 1, b + 1).pdf

    def mean(f):
        return integrate.quad(
            lambda p: f(p) * density(p), 0, 1, points=[1 / n, 1 - 1 / n], limit=200
        )[0]

    assert found.all_right(n)[0] == pytest.approx(mean(lambda p: p**n), rel=1e-7)
    assert found.all_wrong(n)[0] == pytest.approx(mean(lambda p: (1 - p) ** n), rel=1e-7)
    tail = mean(lambda p: stats.binom.cdf(1, n, p))
    assert found.fewer_than(2, n)[0] == pytest.approx(tail, rel=1e-7)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.6), (2.0, 5.0), (0.15, 0.15)])
def test_a_known_population_is_found_again(a, b):
    """Statistical: 20,000 prompts of 16 answers. The prior's mean within 4 standard errors of the
    rates' own, and the predicted share of mixed groups at N = 64 within 0.01 of the integral."""
    rng = generator(3, "population", str(a))
    rates = rng.beta(a, b, 20_000)
    right = rng.binomial(16, rates)
    prior = fit_prior(right, np.full(20_000, 16))
    assert prior.mean == pytest.approx(a / (a + b), abs=4 * np.sqrt(0.25 / 20_000))
    found = shrink(right, np.full(20_000, 16), prior)
    mixed = 1 - found.all_right(64).mean() - found.all_wrong(64).mean()
    wanted = 1 - np.mean(rates**64 + (1 - rates) ** 64)
    assert mixed == pytest.approx(wanted, abs=0.01)


def test_groups_that_stop_on_success_need_no_correction():
    """Statistical, against algo.stopping: waves 4, 16, 64 that stop at 2 right. The plain mean of
    c / n is far too high; the unbiased rates and the fitted prior's mean agree with the truth
    within 4 standard errors of the former."""
    rng = generator(4, "stopping")
    a, b, P = 0.4, 2.0, 6000
    rates = rng.beta(a, b, P)
    draws = rng.random((P, 64)) < rates[:, None]
    size, before = np.full(P, 64), np.full(P, 16)
    for n, last in ((16, 4), (4, 0)):
        done = draws[:, :n].sum(axis=1) >= 2
        size[done], before[done] = n, last
    right = np.array([row[:n].sum() for row, n in zip(draws, size, strict=True)])
    honest = unbiased_rate(
        torch.tensor(right), torch.tensor(size), torch.tensor(before), stop_right=2
    ).numpy()
    error = honest.std() / np.sqrt(P)
    prior = fit_prior(right, size)
    assert honest.mean() == pytest.approx(rates.mean(), abs=4 * error)
    assert prior.mean == pytest.approx(rates.mean(), abs=4 * error)
    assert (right / size).mean() > rates.mean() + 8 * error
    assert shrink(right, size, prior).mean_P.mean() == pytest.approx(rates.mean(), abs=4 * error)


def test_nothing_right_predicts_little_and_not_nothing():
    """0 of 16 on each of 100 prompts: rates above 0, less than one in 16 · 100 answers' worth · 2."""
    prior = fit_prior([0] * 100, [16] * 100)
    found = shrink([0] * 100, [16] * 100, prior)
    assert 0 < found.mean_P[0] < 2 / 1600
    mirrored = fit_prior([16] * 100, [16] * 100)
    assert mirrored.b == pytest.approx(prior.a, rel=1e-2)
    assert len(prior.a) == 1


def test_posterior_of_two_components_by_hand():
    """Half Beta(1, 3), half Beta(3, 1), and 1 of 1 seen: likelihoods 1/4 and 3/4, so 1/4 of
    Beta(2, 3) and 3/4 of Beta(4, 1): mean 0.1 + 0.6."""
    prior = Prior((0.5, 0.5), (1.0, 3.0), (3.0, 1.0))
    assert prior.mean == pytest.approx(0.5)
    found = shrink([1], [1], prior)
    assert found.weight_KP[:, 0] == pytest.approx([0.25, 0.75])
    assert found.mean_P == pytest.approx([0.7])
    assert found.all_right(1) == pytest.approx([0.7])
    assert found.all_wrong(1) == pytest.approx([0.3])
    assert found.variance() == pytest.approx([0.25 * 6 / 30 + 0.75 * 4 / 30])


def test_prompts_of_two_kinds_get_two_components_and_the_right_prediction():
    """Statistical: 2,000 prompts, 40 % hopeless (Beta(0.1, 10)), the rest easy (Beta(8, 1)). One Beta
    cannot hold both; the shares of mixed groups at N = 4 and 128 are within 0.02 of the truth."""
    rng = generator(6, "two kinds")
    hard = rng.random(2000) < 0.4
    rates = np.where(hard, rng.beta(0.1, 10, 2000), rng.beta(8, 1, 2000))
    right, total = rng.binomial(16, rates), np.full(2000, 16)
    prior = fit_prior(right, total)
    assert len(prior.a) == 2
    assert prior.weight[0] == pytest.approx(0.4, abs=0.05)
    found = shrink(right, total, prior)
    for n in (4, 128):
        mixed = 1 - found.all_right(n).mean() - found.all_wrong(n).mean()
        assert mixed == pytest.approx(1 - np.mean(rates**n + (1 - rates) ** n), abs=0.02)


@pytest.mark.parametrize("two", [False, True])
def test_the_fit_is_a_maximum_of_the_marginal_likelihood(two):
    """Oracle: scipy's beta-binomial. A step of 2 % of any parameter, either way, makes it less likely;
    the one made-up prompt with 1 of 2 is among the counts."""
    rng = generator(8, "maximum", str(two))
    rates = rng.beta(0.5, 3, 400)
    if two:
        rates[:200] = rng.beta(9, 1, 200)
    right, total = rng.binomial(12, rates), np.full(400, 12)
    prior = fit_prior(right, total)
    c, n = np.append(right, 1), np.append(total, 2)

    def likelihood(weight, a, b):
        parts = [w * stats.betabinom.pmf(c, n, x, y) for w, x, y in zip(weight, a, b, strict=True)]
        return np.log(sum(parts)).sum()

    best = likelihood(*prior)
    assert len(prior.a) == 1 + two
    for k in range(len(prior.a)):
        for factor in (0.98, 1.02):
            more_a, more_b = list(prior.a), list(prior.b)
            more_a[k] *= factor
            more_b[k] *= factor
            assert likelihood(prior.weight, more_a, prior.b) < best
            assert likelihood(prior.weight, prior.a, more_b) < best
            assert likelihood(prior.weight, more_a, more_b) < best
    if two:
        for w in (prior.weight[0] * 0.98, prior.weight[0] * 1.02):
            assert likelihood((w, 1 - w), prior.a, prior.b) < best


def test_a_search_from_a_start_keeps_its_components():
    rng = generator(7, "start")
    right = rng.binomial(16, rng.beta(2, 2, 300))
    first = fit_prior(right, [16] * 300)
    again = fit_prior(right, [16] * 300, start=first)
    assert len(again.a) == len(first.a) == 1
    assert again.a == pytest.approx(first.a, rel=1e-3)


def test_prompts_all_alike_are_pooled():
    """8 of 16 a thousand times, less spread than chance: every rate is a half, whatever its counts."""
    prior = fit_prior([8] * 1000, [16] * 1000)
    assert prior.a[0] + prior.b[0] > 1e4
    assert shrink([0], [16], prior).mean_P == pytest.approx([0.5], abs=1e-3)


@pytest.mark.parametrize(
    ("right", "total"), [([], []), ([1], [1, 2]), ([3], [2]), ([0], [0]), ([-1], [2])]
)
def test_refuses(right, total):
    with pytest.raises(ShapeError):
        fit_prior(right, total)
