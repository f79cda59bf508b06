"""Softmax and Zipf against rational arithmetic; what is no distribution is named."""

from fractions import Fraction

import numpy as np
import pytest

from brorl.errors import ShapeError
from brorl.theory.distribution import softmax, zipf


def test_zipf_against_fractions():
    weights = [Fraction(1, r**2) for r in range(1, 6)]
    want = [float(w / sum(weights)) for w in weights]
    np.testing.assert_allclose(zipf(5, exponent=2.0), want, rtol=1e-14)
    np.testing.assert_allclose(zipf(4, exponent=0.0), 0.25)


def test_softmax_is_shift_invariant_and_takes_minus_infinity():
    """Identity, at logits whose exp() overflows; -inf is probability 0 exactly."""
    z = np.array([0.0, np.log(3.0), -np.inf])
    np.testing.assert_allclose(softmax(z), [0.25, 0.75, 0.0], rtol=1e-15)
    np.testing.assert_allclose(softmax(z + 5000), [0.25, 0.75, 0.0], rtol=1e-12)


def test_bad_input():
    with pytest.raises(ShapeError, match="without NaN or \\+inf, got nan at token 1"):
        softmax(np.array([0.0, np.nan]))
    with pytest.raises(ShapeError, match="at least one logit above -inf"):
        softmax(np.array([-np.inf, -np.inf]))
    with pytest.raises(ShapeError, match="at least 1 token, got 0"):
        zipf(0, exponent=1.0)
    with pytest.raises(ShapeError, match="finite Zipf exponent, got inf"):
        zipf(3, exponent=float("inf"))
