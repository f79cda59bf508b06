"""What N draws leave unsampled: the second moment of Theorem 1's coupling term, and Lemma 2.

U2 = sum of p_v**2 over the tokens that none of N draws hit. Axes: V tokens, W widths.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import ShapeError
from brorl.theory.distribution import FloatV, MaskV, check_distribution, check_mask


class UnsampledMoment(NamedTuple):
    """Squared probability left unsampled, over the correct and over the wrong tokens."""

    correct: float
    wrong: float

    @property
    def total(self) -> float:
        """U2 over the whole vocabulary."""
        return self.correct + self.wrong


class ExpectedUnsampledMoment(NamedTuple):
    """E[U2] at each width: float64 [W] each, squared probability."""

    correct_W: NDArray[np.float64]
    wrong_W: NDArray[np.float64]

    @property
    def total_W(self) -> NDArray[np.float64]:
        """E[U2] over the whole vocabulary: float64 [W]."""
        return self.correct_W + self.wrong_W


def unsampled_second_moment(p_V: FloatV, correct_V: MaskV, sampled_V: MaskV) -> UnsampledMoment:
    """U_pos2 and U_neg2 of one realised sample: sums of p**2 over the tokens not in it.

    Args:
        p_V: float64 [V], a probability vector.
        correct_V: bool [V].
        sampled_V: bool [V]. Which tokens were drawn at least once.

    Raises:
        ShapeError: p is not a probability vector, or a mask does not fit it.

    Source:
        BroRL, arXiv:2510.01180v1, Theorem 1 (the sums of its third term).
    """
    check_distribution(p_V)
    check_mask("correct", correct_V, p_V)
    check_mask("sampled", sampled_V, p_V)
    return UnsampledMoment(
        correct=float(np.square(p_V[~sampled_V & correct_V]).sum()),
        wrong=float(np.square(p_V[~sampled_V & ~correct_V]).sum()),
    )


def expected_unsampled_second_moment(
    p_V: FloatV, correct_V: MaskV, widths: Sequence[int]
) -> ExpectedUnsampledMoment:
    """Lemma 2 at many widths: E[U2(N)] = sum_v p_v**2 * (1 - p_v)**N over N i.i.d. draws.

    The power is exp(N log1p(-p)), which keeps its digits for p = 1e-300 and for N = 1e12.

    Args:
        p_V: float64 [V], a probability vector.
        correct_V: bool [V].
        widths: W numbers N >= 0; N = 0 gives sum p**2.

    Returns:
        ExpectedUnsampledMoment; both parts fall with N.

    Raises:
        ShapeError: a width below 0, or p and the mask do not fit.

    Source:
        BroRL, arXiv:2510.01180v1, Lemma 2.
    """
    check_distribution(p_V)
    check_mask("correct", correct_V, p_V)
    for n in widths:
        if n < 0:
            raise ShapeError(f"need every width N >= 0, got {n}")
    right, wrong = p_V[correct_V], p_V[~correct_V]
    return ExpectedUnsampledMoment(
        correct_W=np.array([_moment(right, n) for n in widths], dtype=np.float64),
        wrong_W=np.array([_moment(wrong, n) for n in widths], dtype=np.float64),
    )


def width_for_share(p_V: FloatV, *, share: float) -> int:
    """The smallest N with E[U2(N)] <= share * E[U2(0)].

    share = 0.1 answers "how wide until 90 % of the unsampled second moment is gone".

    Args:
        p_V: float64 [V], a probability vector.
        share: in (0, 1), what may be left.

    Raises:
        ShapeError: share outside (0, 1), or p is not a probability vector.

    Source:
        Lemma 2 of arXiv:2510.01180v1, inverted by bisection; E[U2] falls strictly in N.
    """
    check_distribution(p_V)
    if not 0 < share < 1:
        raise ShapeError(f"need a share in (0, 1), got {share}")
    wanted = share * _moment(p_V, 0)
    high = 1
    while _moment(p_V, high) > wanted:
        high *= 2
    low = high // 2  # E[U2(low)] > wanted, or low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _moment(p_V, middle) > wanted else (low, middle)
    return high


def _moment(p: FloatV, n: int) -> float:
    """sum p**2 (1 - p)**N; p = 1 is left out by hand, where log1p(-1) is -inf and N may be 0."""
    if n == 0:
        return float(np.square(p).sum())
    open_p = p[p < 1]
    return float((np.square(open_p) * np.exp(float(n) * np.log1p(-open_p))).sum())
