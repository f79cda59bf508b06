"""Theorem 1 against derivatives and softmax steps that know no theorem, and by enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import ShapeError
from brorl.theory.correct_mass import (
    MassChange,
    exact_mass_change,
    mass_change,
    split_mass_change,
    surrogate_logit_step,
    weighted_mass_change,
)

TINY = 1e-30  # of a complex step: f(z + i h).imag / h is f'(z) without any subtraction


def softmax(z):
    e = np.exp(z - z.real.max())
    return e / e.sum(axis=-1, keepdims=True)


def measured_slope(z, correct, weight):
    """d Q / d(eta/N) at 0: differentiate the surrogate, step, differentiate the mass."""
    at_each_token = z + 1j * TINY * np.eye(z.size)
    gradient = (softmax(at_each_token) @ weight).imag / TINY
    return softmax(z + 1j * TINY * gradient)[correct].sum().imag / TINY


def case(seed, vocab):
    rng = np.random.default_rng(seed)
    z = 2 * rng.standard_normal(vocab)
    correct, sampled = rng.random((2, vocab)) < 0.5
    return rng, z, correct, sampled


@settings(max_examples=3000, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_theorem_matches_a_differentiated_softmax(seed, vocab):
    """Oracle: complex-step derivatives, exact to rounding. And the signs the theorem promises."""
    rng, z, correct, sampled = case(seed, vocab)
    r_c, r_w = rng.uniform(0, 2), rng.uniform(-2, 0)
    got = mass_change(softmax(z), correct, sampled, reward_correct=r_c, reward_wrong=r_w)
    weight = np.where(sampled, np.where(correct, r_c, r_w), 0.0)
    assert got.total == pytest.approx(measured_slope(z, correct, weight), abs=1e-14)
    assert min(got.sampled_correct, got.sampled_wrong) >= 0


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_any_weights_match_a_differentiated_softmax(seed, vocab):
    rng, z, correct, sampled = case(seed, vocab)
    weight = np.where(sampled, rng.normal(0, 3, vocab), 0.0)
    got = weighted_mass_change(softmax(z), correct, sampled, weight)
    assert got.total == pytest.approx(measured_slope(z, correct, weight), abs=1e-13)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_set_weights_give_theorem_1_term_by_term(seed, vocab):
    """Identity: the general form, the split of the actual step and the theorem agree by part."""
    rng, z, correct, sampled = case(seed, vocab)
    p, r_c, r_w = softmax(z), rng.uniform(-1, 2), rng.uniform(-2, 1)
    weight = np.where(sampled, np.where(correct, r_c, r_w), 0.0)
    theorem = mass_change(p, correct, sampled, reward_correct=r_c, reward_wrong=r_w)
    general = weighted_mass_change(p, correct, sampled, weight)
    split = split_mass_change(p, correct, sampled, surrogate_logit_step(p, weight))
    np.testing.assert_allclose(general, theorem, rtol=0, atol=1e-15)
    np.testing.assert_allclose(split, theorem, rtol=0, atol=1e-15)


def test_every_subset_of_a_tiny_vocabulary():
    """Enumeration: all 16 correct sets times all 16 samples of four tokens, R = +1 / -0.5."""
    z = np.array([0.3, -1.2, 2.0, 0.0])
    for correct in map(np.array, itertools.product([False, True], repeat=4)):
        for sampled in map(np.array, itertools.product([False, True], repeat=4)):
            got = mass_change(softmax(z), correct, sampled, reward_correct=1, reward_wrong=-0.5)
            weight = np.where(sampled, np.where(correct, 1.0, -0.5), 0.0)
            want = measured_slope(z, correct, weight)
            assert got.total == pytest.approx(want, abs=1e-15)
            if correct.all() or not correct.any():
                assert got.total == pytest.approx(0.0, abs=1e-16)  # no other side to move to
            if sampled.all():
                assert got.unsampled == 0.0


def test_expectation_over_every_draw_of_three():
    """Enumeration: E over all 4**3 draws of the count-weighted change is N times the N = 1 mean.

    The weights sum over draws, and S and the change are linear in the weights, so the expectation
    is linear in N: an identity that set semantics do not have.
    """
    p = np.array([0.4, 0.3, 0.2, 0.1])
    correct = np.array([True, False, True, False])
    reward = np.where(correct, 1.0, -1.0)

    def mean_change(n):
        total = 0.0
        for draw in itertools.product(range(4), repeat=n):
            counts = np.bincount(draw, minlength=4)
            change = weighted_mass_change(p, correct, counts > 0, counts * reward)
            total += p[list(draw)].prod() * change.total
        return total

    assert mean_change(3) == pytest.approx(3 * mean_change(1), rel=1e-13)
    assert mean_change(1) > 0


def test_by_hand():
    """p = .5 .3 .2, token 0 correct and sampled, 1 wrong and sampled, R = +-1: S = .5 - .3 = .2.

    sampled_correct = (1 - .2) * .5 * .25 = .1; sampled_wrong = 1.2 * .5 * .09 = .054;
    unsampled = .2 * (.5 * .04 - 0) = .004.
    """
    p = np.array([0.5, 0.3, 0.2])
    correct = np.array([True, False, False])
    sampled = np.array([True, True, False])
    got = mass_change(p, correct, sampled, reward_correct=1, reward_wrong=-1)
    assert got == pytest.approx(MassChange(0.1, 0.054, 0.004))
    assert got.scaled(0.5).total == pytest.approx(0.079)


def test_multiplicities_break_the_sign_of_the_sampled_terms():
    """Hand-computed: p = .6 .1 .3, correct 0 and 1, drawn once and ten times, wrong one unsampled.

    S = .6 + 10 * .1 = 1.6 > R_c, so token 0, correct and drawn, is pushed down:
    sampled_correct = .3 * (.36 * (1 - 1.6) + .01 * (10 - 1.6)) = .3 * (-.216 + .084) = -.0396.
    As a set: S = .7 and .3 * (.36 + .01) * .3 = .0333 > 0.
    """
    p = np.array([0.6, 0.1, 0.3])
    correct = sampled = np.array([True, True, False])
    counted = weighted_mass_change(p, correct, sampled, np.array([1.0, 10.0, 0.0]))
    assert counted.sampled_correct == pytest.approx(-0.0396)
    as_set = mass_change(p, correct, sampled, reward_correct=1, reward_wrong=-1)
    assert as_set.sampled_correct == pytest.approx(0.0333)


def test_error_of_the_first_order_falls_as_eta_squared():
    """log-log slope of |exact - first order| over eta, fitted: 2 for a one-term expansion."""
    _, z, correct, sampled = case(7, 50)
    p = softmax(z)
    weight = np.where(sampled, np.where(correct, 1.0, -1.0), 0.0)
    step = surrogate_logit_step(p, weight)
    first = split_mass_change(p, correct, sampled, step).total
    etas = np.logspace(-4, -1, 13)
    error = [abs(exact_mass_change(p, correct, eta * step) - eta * first) for eta in etas]
    slope = np.polyfit(np.log(etas), np.log(error), 1)[0]
    assert slope == pytest.approx(2.0, abs=0.02)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(-700, 700))
def test_exact_change_is_the_difference_of_two_softmaxes(seed, vocab, shift):
    rng, z, correct, _ = case(seed, vocab)
    step = rng.normal(0, 3, vocab)
    want = softmax(z + step)[correct].sum() - softmax(z)[correct].sum()
    assert exact_mass_change(softmax(z), correct, step + shift) == pytest.approx(want, abs=1e-12)


def test_exact_change_keeps_digits_that_a_difference_loses():
    """Two tokens at 1/2 each: dQ = tanh(d / 2) / 2 = d / 4 for tiny d, here 1e-30."""
    correct = np.array([True, False])
    got = exact_mass_change(np.array([0.5, 0.5]), correct, np.array([4e-30, 0.0]))
    assert got == pytest.approx(1e-30, rel=1e-12, abs=0)


def test_extremes_of_probability():
    """p = 1e-300 and a token with all the mass: finite, and 0 where nothing can move."""
    p = np.array([1.0, 1e-300, 0.0])
    for correct in ([True, False, False], [False, True, False], [False, False, True]):
        for sampled in itertools.product([False, True], repeat=3):
            mask, drawn = np.array(correct), np.array(sampled)
            terms = mass_change(p, mask, drawn, reward_correct=1, reward_wrong=-1)
            assert np.isfinite(terms).all()
            assert abs(terms.total) <= 4e-300
    # Hand-computed: token 1 correct and sampled alone: S = 1e-300, and Q_neg * p**2 underflows to
    # 0 beside the coupling S * (Q_pos * 1 - Q_neg * 0) = 1e-300 * 1e-300, which underflows too.
    moved = exact_mass_change(p, np.array([False, True, False]), np.array([0.0, 500.0, 0.0]))
    assert moved == pytest.approx(1e-300 * np.expm1(500.0), rel=1e-12, abs=0)
    everything = exact_mass_change(p, np.array([False, True, False]), np.array([0.0, 2000.0, 0.0]))
    assert everything == 1.0


def test_a_million_tokens():
    """Identity at V = 1e6: the parts add up to what the exact change tends to."""
    rng = np.random.default_rng(3)
    p = rng.exponential(size=10**6)
    p /= p.sum()
    correct, sampled = rng.random((2, p.size)) < 0.3
    weight = np.where(sampled, np.where(correct, 1.0, -1.0), 0.0)
    got = mass_change(p, correct, sampled, reward_correct=1, reward_wrong=-1)
    tiny = 1e-6
    exact = exact_mass_change(p, correct, tiny * surrogate_logit_step(p, weight)) / tiny
    assert got.total == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, 0.6], "sum to 1, got a sum of 1.1"),
        ([1.5, -0.5], "probabilities >= 0, got -0.5 at token 1"),
        ([np.nan, 1.0], "without NaN, got NaN at token 0"),
        ([], r"V >= 1, got \[0\]"),
    ],
)
def test_what_is_no_distribution_is_refused(p, message):
    mask = np.ones(len(p), dtype=bool)
    with pytest.raises(ShapeError, match=message):
        mass_change(np.array(p), mask, mask, reward_correct=1, reward_wrong=-1)


def test_misfits_are_refused():
    p, mask = np.array([0.5, 0.5]), np.array([True, False])
    with pytest.raises(ShapeError, match=r"bool mask `sampled` of shape \[2\], got int64 \[2\]"):
        mass_change(p, mask, np.array([1, 0]), reward_correct=1, reward_wrong=-1)
    with pytest.raises(ShapeError, match=r"bool mask `correct` of shape \[2\], got bool \[3\]"):
        exact_mass_change(p, np.ones(3, dtype=bool), np.zeros(2))
    with pytest.raises(ShapeError, match=r"weight 0 on unsampled tokens, got 2\.0 at 1"):
        weighted_mass_change(p, mask, mask, np.array([1.0, 2.0]))
    with pytest.raises(ShapeError, match="finite logit step, got nan at token 1"):
        exact_mass_change(p, mask, np.array([0.0, np.nan]))
