"""Best-of-n against enumeration, and thresholds of constructions solved by hand."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import integrate

from brorl.errors import ShapeError
from brorl.evaluate.best_of_n import (
    Selection,
    Shape,
    best_of,
    best_of_n_kl_bound,
    expected_reward,
    hacking_rate,
    hacking_threshold,
    ladder,
    residual,
)
from brorl.seeds import generator
from brorl.stats.pass_at_k import pass_at_k

BON, BOP = Selection.BEST_OF_N, Selection.BEST_OF_POISSON
SEARCH = {"theta_max": 1000.0, "grid": 200}


def window(low, high, m=1000):
    """True reward 1 exactly where the proxy's quantile lies in (low, high]."""
    proxy = np.arange(m) / m
    return proxy, ((proxy >= low) & (proxy < high)).astype(float)


def mean_of_subsets(proxy, true, n):
    """Oracle: every n-subset; the pick is fair among the highest proxies."""
    rewards = []
    for subset in combinations(range(len(proxy)), n):
        top = max(proxy[i] for i in subset)
        rewards.append(np.mean([true[i] for i in subset if proxy[i] == top]))
    return np.mean(rewards)


@pytest.mark.parametrize("seed", range(5))
def test_best_of_n_by_enumeration(seed):
    rng = generator(seed, "bon")
    proxy, true = rng.integers(0, 4, 9) / 3, rng.random(9)
    for n in range(1, 10):
        assert best_of(ladder(proxy, true), n) == pytest.approx(mean_of_subsets(proxy, true, n))


def test_an_honest_proxy_makes_best_of_n_pass_at_n():
    """Identity."""
    scores = np.array([1.0] * 5 + [0.0] * 11)
    for n in (1, 4, 16):
        assert best_of(ladder(scores, scores), n) == pytest.approx(float(pass_at_k(5, 16, n)))
        assert hacking_rate(scores, scores, n) == 0.0


def test_hacking_rate_by_hand():
    """4 samples: one hacked (proxy 1, true 0), one right (1, 1), two wrong (0, 0). Of the 6
    pairs, 5 hold a proxy success; the pick is hacked in 2 outright and in half of 1: 2.5/6."""
    proxy, true = [1, 1, 0, 0], [0, 1, 0, 0]
    assert hacking_rate(proxy, true, 1) == pytest.approx(1 / 4)
    assert hacking_rate(proxy, true, 2) == pytest.approx(2.5 / 6)
    assert hacking_rate(proxy, true, 4) == pytest.approx(1 / 2)


def density_and_score(u, theta, selection):
    """The densities and scores as the method states them."""
    if selection is BON:
        return theta * u ** (theta - 1), 1 / theta + np.log(u)
    return (theta * u + 1) * np.exp(theta * (u - 1)), u / (theta * u + 1) + u - 1


@pytest.mark.parametrize("selection", [BON, BOP])
@pytest.mark.parametrize("theta", [1.0, 2.7, 30.0])
def test_reward_and_residual_are_the_stated_integrals(selection, theta):
    """Oracle: numerical integration of true·density and of true·density·score, step by step;
    and the residual as a finite difference of the reward."""
    rng = generator(3, "steps")
    steps = ladder(rng.integers(0, 6, 40), rng.random(40))
    u = steps.edges_D1 / 40
    for function, weigh in (
        (expected_reward, lambda p, s: p),
        (residual, lambda p, s: p * s),
    ):
        want = 0.0
        for low, high, true in zip(u, u[1:], steps.true_D, strict=False):
            part, _ = integrate.quad(
                lambda x, weigh=weigh: weigh(*density_and_score(x, theta, selection)),
                low,
                high,
                epsabs=1e-12,
            )
            want += true * part
        assert function(steps, theta, selection=selection) == pytest.approx(want, abs=1e-9)
    h = 1e-6
    ends = [expected_reward(steps, theta + s * h, selection=selection) for s in (0, 1)]
    slope = (ends[1] - ends[0]) / h
    assert residual(steps, theta, selection=selection) == pytest.approx(slope, abs=1e-5)


def test_threshold_of_a_window_for_best_of_n():
    """By hand: true on quantiles (a, b] gives f(n) = b**n - a**n, largest at
    n = log(log a / log b) / log(b / a) = log(3.385283) / 0.251314 = 4.85224."""
    a, b = 0.7, 0.9
    want = math.log(math.log(a) / math.log(b)) / math.log(b / a)
    assert want == pytest.approx(4.85224, abs=1e-5)
    got = hacking_threshold([window(a, b)], selection=BON, **SEARCH)
    assert got.shape is Shape.PEAKS
    assert got.theta == pytest.approx(want, rel=1e-8)
    assert got.reward_at_start == pytest.approx(b - a)
    assert got.reward_at_threshold == pytest.approx(b**want - a**want)
    assert got.reward_at_end == pytest.approx(0.0, abs=1e-12)


def test_threshold_of_a_window_for_best_of_poisson():
    """By hand: f(mu) = b·exp(mu(b-1)) - a·exp(mu(a-1)), largest at
    mu = log(a(1-a) / (b(1-b))) / (b - a)."""
    a, b = 0.7, 0.9
    want = math.log(a * (1 - a) / (b * (1 - b))) / (b - a)
    got = hacking_threshold([window(a, b)], selection=BOP, **SEARCH)
    assert got.shape is Shape.PEAKS
    assert got.theta == pytest.approx(want, rel=1e-8)
    assert got.reward_at_start == pytest.approx(b - a)


def test_threshold_of_a_smooth_reward():
    """By hand: true(u) = u(1 - u) gives f(n) = n/(n+1) - n/(n+2), largest at n = sqrt 2. With
    20,000 quantile steps the midpoint rule is off by less than 1e-6."""
    u = (np.arange(20_000) + 0.5) / 20_000
    got = hacking_threshold([(u, u * (1 - u))], selection=BON, theta_max=50, grid=60)
    assert got.theta == pytest.approx(math.sqrt(2), abs=1e-5)


def test_problems_are_averaged_not_pooled():
    """By hand: two problems with other proxy scales; quantiles are taken in each. The mean of
    windows (0.7, 0.9] and (0, 1] has the threshold of the first: the other is constant."""
    first = window(0.7, 0.9)
    constant = (1000 * np.arange(7.0), np.ones(7))
    alone = hacking_threshold([first], selection=BON, **SEARCH)
    both = hacking_threshold([first, constant], selection=BON, **SEARCH)
    assert both.theta == pytest.approx(alone.theta, rel=1e-8)
    assert both.reward_at_start == pytest.approx((0.2 + 1) / 2)


@pytest.mark.parametrize(
    ("pair", "shape"),
    [
        (window(0.6, 1.0), Shape.RISES),  # f = 1 - a**n
        (window(0.0, 0.6), Shape.FALLS),  # f = b**n
        ((np.arange(9.0), np.ones(9)), Shape.FLAT),
        ((np.zeros(9), np.arange(9.0)), Shape.FLAT),  # the proxy ties: nothing is selected
        ((np.arange(1000.0), 1 - window(0.7, 0.9)[1]), Shape.DIPS),
    ],
)
@pytest.mark.parametrize("selection", [BON, BOP])
def test_shapes_without_a_threshold(pair, shape, selection):
    got = hacking_threshold([pair], selection=selection, theta_max=200, grid=100)
    assert got.shape is shape
    assert (got.theta, got.reward_at_threshold) == (None, None)


def test_kl_bound_is_the_kl_of_the_density():
    """Oracle: integral of n·u**(n-1)·log(n·u**(n-1)) over (0, 1)."""
    for n in (1, 4, 64):
        want, _ = integrate.quad(lambda u, n=n: n * u ** (n - 1) * np.log(n * u ** (n - 1)), 0, 1)
        assert best_of_n_kl_bound(n) == pytest.approx(want, abs=1e-7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ladder([1, 2], [1]), r"got \[2\] and \[1\]"),
        (lambda: ladder([], []), "M >= 1"),
        (lambda: ladder([np.nan], [1]), "finite"),
        (lambda: best_of(ladder([1, 2], [0, 1]), 3), "k=3 and a problem with n=2"),
        (lambda: hacking_threshold([], selection=BON, **SEARCH), "0 problems"),
        (
            lambda: hacking_threshold([window(0, 1)], selection=BON, theta_max=1, grid=9),
            "theta_max > 1",
        ),
        (lambda: residual(ladder([1], [1]), 0.5, selection=BON), "theta >= 1, got 0.5"),
        (lambda: best_of_n_kl_bound(0.5), "n >= 1"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
