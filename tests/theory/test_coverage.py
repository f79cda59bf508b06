"""Lemma 2 by enumeration and by simulation; the width it implies; numerical extremes."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.theory.coverage import (
    expected_unsampled_second_moment,
    unsampled_second_moment,
    width_for_share,
)
from brorl.theory.distribution import zipf

CORRECT = np.array([True, False, True, False])


def test_every_draw_of_a_tiny_vocabulary():
    """Enumeration in Fraction over all 4**N draws, N = 0 ... 4, and U2 of each realised draw."""
    p = [Fraction(4, 10), Fraction(3, 10), Fraction(2, 10), Fraction(1, 10)]
    p_V = np.array([float(x) for x in p])
    got = expected_unsampled_second_moment(p_V, CORRECT, range(5))
    for n in range(5):
        want = {True: Fraction(0), False: Fraction(0)}
        realised = 0.0
        for draw in itertools.product(range(4), repeat=n):
            chance = Fraction(1)
            for token in draw:
                chance *= p[token]
            for token in set(range(4)) - set(draw):
                want[bool(CORRECT[token])] += chance * p[token] ** 2
            sampled = np.isin(np.arange(4), draw)
            realised += float(chance) * unsampled_second_moment(p_V, CORRECT, sampled).total
        assert got.correct_W[n] == pytest.approx(float(want[True]), abs=1e-16)
        assert got.wrong_W[n] == pytest.approx(float(want[False]), abs=1e-16)
        assert got.total_W[n] == pytest.approx(realised, abs=1e-16)


def test_agrees_with_simulation():
    """Statistical: 2,000 draws of N tokens per width, V = 1,000 Zipf 1.1, 4 standard errors."""
    p = zipf(1000, exponent=1.1)
    correct = np.arange(1000) % 3 == 0
    widths = (4, 16, 64, 256, 1024)
    expected = expected_unsampled_second_moment(p, correct, widths)
    for i, n in enumerate(widths):
        seen = generator(1, "test-lemma-2", n).multinomial(n, p, size=2000) > 0
        for part, want in ((correct, expected.correct_W[i]), (~correct, expected.wrong_W[i])):
            u2 = np.where(seen[:, part], 0.0, p[part] ** 2).sum(axis=1)
            error = u2.std(ddof=1) / np.sqrt(2000)
            assert abs(u2.mean() - want) <= 4 * error


def test_the_papers_simulator_at_its_start():
    """Published recomputation: 3.99e-5, 3.98e-5, 3.86e-5, 1.58e-6 at N = 0, 16, 512, 51200."""
    z = np.zeros(128_000)
    z[:10_000], z[0] = 3, 5
    p = np.exp(z) / np.exp(z).sum()
    got = expected_unsampled_second_moment(p, z > 0, (0, 16, 512, 51_200)).correct_W
    np.testing.assert_allclose(got, [3.99e-5, 3.98e-5, 3.86e-5, 1.58e-6], rtol=2e-3)


def test_uniform_by_hand():
    """V equal tokens: E[U2(N)] = (1/V) (1 - 1/V)**N, so half is gone at N = ln 2 / -ln(1 - 1/V).

    V = 10: ln 2 / 0.1053605 = 6.58, so 7; a tenth left: 21.85, so 22; a hundredth: 43.7, so 44.
    """
    p = np.full(10, 0.1)
    assert [width_for_share(p, share=s) for s in (0.5, 0.1, 0.01)] == [7, 22, 44]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.floats(1e-6, 0.999))
def test_the_width_is_the_first_that_reaches_the_share(seed, vocab, share):
    p = np.random.default_rng(seed).dirichlet(np.full(vocab, 0.3))
    everything = np.ones(vocab, dtype=bool)
    n = width_for_share(p, share=share)
    u2 = expected_unsampled_second_moment(p, everything, (0, n - 1, n)).total_W
    assert u2[2] <= share * u2[0]
    assert n == 1 or u2[1] > share * u2[0]


def test_extremes():
    """One token with all the mass is always drawn; p = 1e-300 has no second moment in float64."""
    p = np.array([1.0, 1e-300, 0.0])
    got = expected_unsampled_second_moment(p, np.array([False, True, True]), (0, 1, 10**12))
    assert got.wrong_W.tolist() == [1.0, 0.0, 0.0]
    assert got.correct_W.tolist() == [0.0, 0.0, 0.0]
    assert width_for_share(p, share=0.5) == 1
    # (1 - 1e-12)**(1e12) = 1/e: a plain power in float64 would give 0.99998**... of rounded 1 - p.
    small = np.array([1e-12, 1 - 1e-12])
    at = expected_unsampled_second_moment(small, np.array([True, False]), (10**12,)).correct_W[0]
    assert at == pytest.approx(1e-24 * np.exp(-1), rel=1e-9, abs=0)


def test_a_million_tokens_with_a_known_answer():
    """V = 1e6 equal tokens: (1/V)(1 - 1/V)**N, so ln 2 * V = 693,147 draws to lose a half."""
    p = np.full(10**6, 1e-6)
    assert width_for_share(p, share=0.5) == pytest.approx(693_147, abs=1)


def test_bad_input():
    p = np.array([0.5, 0.5])
    with pytest.raises(ShapeError, match="every width N >= 0, got -1"):
        expected_unsampled_second_moment(p, np.array([True, False]), (1, -1))
    for share in (0.0, 1.0, np.nan):
        with pytest.raises(ShapeError, match=r"share in \(0, 1\)"):
            width_for_share(p, share=share)
