"""pass@k as a function of the correct mass, and back."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.errors import ShapeError


def pass_at_k_of_mass(correct_mass: ArrayLike, *, k: int) -> NDArray[np.float64]:
    """1 - (1 - Q)**k: the chance that at least one of k i.i.d. draws is correct.

    Strictly increasing in Q, so a step that raises the mass raises pass@k for every k. This is
    the value for a known Q; an estimate from samples is brorl.stats.pass_at_k.

    Args:
        correct_mass: Q, any shape, in [0, 1].
        k: >= 1.

    Returns:
        float64 of that shape, in [0, 1]. Keeps its digits at Q = 1e-300.

    Raises:
        ShapeError: k < 1, or a mass outside [0, 1].

    Source:
        BroRL, arXiv:2510.01180v1, section 2 (pass@k) and Corollary 3.
    """
    mass = _in_unit_interval("correct mass", correct_mass, k)
    with np.errstate(divide="ignore"):  # log1p(-1) = -inf is the right answer at Q = 1
        return np.asarray(-np.expm1(k * np.log1p(-mass)), dtype=np.float64)


def mass_of_pass_at_k(pass_at_k: ArrayLike, *, k: int) -> NDArray[np.float64]:
    """Q = 1 - (1 - pass@k)**(1/k): the correct mass that gives this pass@k.

    Args:
        pass_at_k: any shape, in [0, 1].
        k: >= 1.

    Returns:
        float64 of that shape, in [0, 1].

    Raises:
        ShapeError: k < 1, or a value outside [0, 1].
    """
    value = _in_unit_interval("pass@k", pass_at_k, k)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.log1p(-value) / k), dtype=np.float64)


def _in_unit_interval(name: str, values: ArrayLike, k: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if k < 1:
        raise ShapeError(f"need k >= 1, got {k}")
    if not ((array >= 0) & (array <= 1)).all():
        raise ShapeError(f"need {name} in [0, 1], got {array.min()} ... {array.max()}")
    return array
