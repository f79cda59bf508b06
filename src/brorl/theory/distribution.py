"""Probability vectors over a vocabulary, and the checks every theory function makes at the door.

Axis: V tokens of the vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

from brorl.errors import ShapeError

FloatV = NDArray[np.float64]
MaskV = NDArray[np.bool_]

SUM_TOLERANCE = 1e-9
"""How far from 1 a probability vector may sum: 1e6 float64 terms stay far inside it."""


def check_distribution(p_V: FloatV) -> None:
    """Refuse what is not a probability vector.

    Args:
        p_V: float [V], V >= 1, every entry >= 0, sum 1 within SUM_TOLERANCE.

    Raises:
        ShapeError: another shape, a NaN, a negative entry, or another sum.
    """
    if p_V.ndim != 1 or p_V.size == 0:
        raise ShapeError(f"need probabilities of shape [V] with V >= 1, got {list(p_V.shape)}")
    if np.isnan(p_V).any():
        raise ShapeError(
            f"need probabilities without NaN, got NaN at token {_first(np.isnan(p_V))}"
        )
    if p_V.min() < 0:
        raise ShapeError(f"need probabilities >= 0, got {p_V.min():.6g} at token {p_V.argmin()}")
    total = float(p_V.sum())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise ShapeError(f"need probabilities that sum to 1, got a sum of {total:.12g}")


def check_mask(name: str, mask_V: MaskV, p_V: FloatV) -> None:
    """Refuse a token mask that is not boolean or does not fit the vocabulary.

    Args:
        name: what the mask says, for the message.
        mask_V: bool [V].
        p_V: [V], the vector it belongs to.

    Raises:
        ShapeError: another dtype or shape.
    """
    if mask_V.dtype != np.bool_ or mask_V.shape != p_V.shape:
        came = f"{mask_V.dtype} {list(mask_V.shape)}"
        raise ShapeError(f"need a bool mask `{name}` of shape {list(p_V.shape)}, got {came}")


def softmax(logits_V: FloatV) -> FloatV:
    """exp(z - max z) / sum exp(z - max z): float64 [V].

    Raises:
        ShapeError: not [V], or a logit that is NaN or +inf. -inf is a token of probability 0.
    """
    if logits_V.ndim != 1 or logits_V.size == 0:
        raise ShapeError(f"need logits of shape [V] with V >= 1, got {list(logits_V.shape)}")
    bad = np.isnan(logits_V) | (logits_V == np.inf)
    if bad.any():
        at = _first(bad)
        raise ShapeError(f"need logits without NaN or +inf, got {logits_V[at]} at token {at}")
    if logits_V.max() == -np.inf:
        raise ShapeError("need at least one logit above -inf, got none")
    p_V = np.exp(logits_V - logits_V.max())
    return np.asarray(p_V / p_V.sum(), dtype=np.float64)


def zipf(vocab: int, *, exponent: float) -> FloatV:
    """p_r proportional to r ** -exponent over ranks r = 1 ... V, most probable first.

    Args:
        vocab: V >= 1.
        exponent: any finite number; 0 is the uniform distribution.

    Returns:
        float64 [V], sums to 1.

    Raises:
        ShapeError: V < 1, or an exponent that is not finite.
    """
    if vocab < 1:
        raise ShapeError(f"need a vocabulary of at least 1 token, got {vocab}")
    if not np.isfinite(exponent):
        raise ShapeError(f"need a finite Zipf exponent, got {exponent}")
    return softmax(-exponent * np.log(np.arange(1, vocab + 1, dtype=np.float64)))


def _first(mask_V: MaskV) -> int:
    return int(np.flatnonzero(mask_V)[0])
