"""pass@k of a known mass against exact rational arithmetic, and its inverse."""

from fractions import Fraction

import numpy as np
import pytest

from brorl.errors import ShapeError
from brorl.theory.success import mass_of_pass_at_k, pass_at_k_of_mass


@pytest.mark.parametrize("k", [1, 2, 7, 64, 1024])
def test_against_rational_arithmetic(k):
    masses = [Fraction(0), Fraction(1, 10**9), Fraction(1, 3), Fraction(999, 1000), Fraction(1)]
    want = [float(1 - (1 - q) ** k) for q in masses]
    got = pass_at_k_of_mass([float(q) for q in masses], k=k)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_there_and_back():
    mass = np.array([0.0, 1e-300, 1e-12, 0.3, 0.9, 1.0])
    for k in (1, 2, 5):  # at k = 16 and Q = .9 the miss is 1e-16: gone in float64, as it must be
        np.testing.assert_allclose(mass_of_pass_at_k(pass_at_k_of_mass(mass, k=k), k=k), mass)


def test_tiny_mass_keeps_its_digits():
    """Hand-computed: k Q for Q so small that 1 - Q rounds to 1."""
    assert pass_at_k_of_mass(1e-300, k=512) == pytest.approx(5.12e-298, rel=1e-12, abs=0)


def test_bad_input():
    with pytest.raises(ShapeError, match="k >= 1, got 0"):
        pass_at_k_of_mass(0.5, k=0)
    with pytest.raises(ShapeError, match=r"correct mass in \[0, 1\], got -0.1"):
        pass_at_k_of_mass([-0.1, 0.5], k=2)
    with pytest.raises(ShapeError, match=r"pass@k in \[0, 1\], got nan"):
        mass_of_pass_at_k(np.nan, k=2)
