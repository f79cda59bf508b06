"""pass@k against enumeration of every subset and against exact fractions of big integers."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import ShapeError
from brorl.stats.pass_at_k import (
    doubling_ks,
    pass_at_k,
    pass_at_k_curve,
    pass_at_k_table,
    pass_hat_k,
)


def by_enumeration(c, n, k):
    """Oracle: look at every k-subset of n samples."""
    hits = [any(i < c for i in subset) for subset in combinations(range(n), k)]
    return Fraction(sum(hits), len(hits))


@pytest.mark.parametrize("n", range(1, 9))
def test_every_case_up_to_eight_samples(n):
    for k in range(1, n + 1):
        got = pass_at_k(np.arange(n + 1), n, k)
        want = [float(by_enumeration(c, n, k)) for c in range(n + 1)]
        assert got.tolist() == pytest.approx(want, rel=1e-14, abs=0)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_wide_groups_match_exact_fractions(data):
    """Oracle: integers of up to 15,000 digits. Relative error 2e-15, in both tails."""
    n = data.draw(st.sampled_from([16, 512, 1024, 51200]))
    c = data.draw(st.integers(0, n) | st.integers(0, min(n, 40)))
    k = data.draw(st.integers(1, n) | st.integers(1, min(n, 40)))
    want = float(1 - Fraction(comb(n - c, k), comb(n, k)))
    assert float(pass_at_k(c, n, k)) == pytest.approx(want, rel=2e-15, abs=0)


@pytest.mark.parametrize("n", range(1, 9))
def test_all_of_k_in_every_case_up_to_eight_samples(n):
    """Oracle: count the k-subsets that hold correct samples only."""
    for k in range(1, n + 1):
        for c in range(n + 1):
            subsets = list(combinations(range(n), k))
            want = Fraction(sum(max(s) < c for s in subsets), len(subsets))
            assert float(pass_hat_k(c, n, k)) == pytest.approx(float(want), rel=1e-14, abs=0)


def test_all_of_k_when_wide():
    """Oracle: exact fractions, down to 1e-300 and without underflow on the way."""
    for c, n, k in ((51199, 51200, 512), (40000, 51200, 2700), (600, 1024, 16), (3, 1024, 3)):
        want = float(Fraction(comb(c, k), comb(n, k)))
        assert float(pass_hat_k(c, n, k)) == pytest.approx(want, rel=1e-12, abs=0)
    assert pass_hat_k([51200, 511, 0], 51200, 512).tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(ShapeError, match="k=8 and a problem with n=4"):
        pass_hat_k(2, 4, 8)


def test_the_ends_are_exact():
    """Identity: nothing right is 0, fewer than k wrong is 1, k = n asks for any hit at all."""
    assert pass_at_k([0, 51200 - 511, 51200], 51200, 512).tolist() == [0.0, 1.0, 1.0]
    assert pass_at_k([0, 1, 7], 7, 7).tolist() == [0.0, 1.0, 1.0]


def test_pass_at_1_is_the_share():
    c, n = np.arange(1, 100), np.arange(101, 200)
    np.testing.assert_allclose(pass_at_k(c, n, 1), c / n, rtol=1e-15)


def test_unbiased_by_exhaustion():
    """Identity: E over c ~ Binomial(n, p) is exactly 1 - (1-p)**k. This is what a resampling
    estimate 1 - (1 - c/n)**k is not (public report: 0.684 for 1 right of 4 at k = 4)."""
    n, p = 9, 0.23
    weight = np.array([comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
    for k in range(1, n + 1):
        mean = weight @ pass_at_k(np.arange(n + 1), n, k)
        assert mean == pytest.approx(1 - (1 - p) ** k, rel=1e-13)
    assert pass_at_k(1, 4, 4) == 1.0


def test_problems_may_differ_in_n():
    """By hand: k = 2. 1 of 2 is sure (1); 1 of 4 is 2/4; the mean is 3/4."""
    assert pass_at_k_table([1, 1], [2, 4], [2])[:, 0].tolist() == pytest.approx([1.0, 0.5])
    assert pass_at_k_curve([1, 1], [2, 4], [1, 2]).tolist() == pytest.approx([0.375, 0.75])


def test_shape_is_the_broadcast_shape():
    c = np.arange(12).reshape(3, 4)
    got = pass_at_k(c, 16, 3)
    assert got.shape == (3, 4)
    assert got[1, 2] == pass_at_k(6, 16, 3)


@pytest.mark.parametrize(
    ("correct", "total", "k", "message"),
    [
        ([2, 3], [16, 4], 8, "k=8 and a problem with n=4 samples"),
        ([0], [99], 100, "k=100 and a problem with n=99"),
        ([0], [4], 0, "k=0"),
        ([5], [4], 1, "got 5 of 4 at index 0"),
        ([1, -1], [4, 4], 1, "got -1 of 4 at index 1"),
        ([0.5], [4], 1, "must be integer counts, got float64"),
        ([1, 2, 3], [4, 4], 1, r"must broadcast, got shapes \[3\] and \[2\]"),
    ],
)
def test_refuses_what_has_no_estimate(correct, total, k, message):
    with pytest.raises(ShapeError, match=message):
        pass_at_k(correct, total, k)


def test_no_problem_has_no_mean():
    with pytest.raises(ShapeError, match=r"K >= 1, got shape \[0\]"):
        pass_at_k_curve([], [], [1])


@pytest.mark.parametrize(("n", "want"), [(1, (1,)), (8, (1, 2, 4, 8)), (24, (1, 2, 4, 8, 16, 24))])
def test_doubling_ends_at_n(n, want):
    assert doubling_ks(n) == want


def test_doubling_refuses_nothing_sampled():
    with pytest.raises(ShapeError, match="n >= 1 samples, got 0"):
        doubling_ks(0)
