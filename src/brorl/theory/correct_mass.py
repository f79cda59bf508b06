"""How the probability of the correct tokens changes in one softmax step: Theorem 1 and its kin.

Notation: p = softmax(z); Q_pos = p summed over the correct tokens, Q_neg over the others. A step
of plain gradient ascent of size eta on (1/N) * sum_v w_v p_v moves the logits by

    dz_j = (eta / N) * p_j * (w_j - S),    S = sum_v w_v p_v

All functions return the change per unit of eta / N where the caller passes weights or rewards,
and the change itself where the caller passes a logit step. Axis: V tokens of the vocabulary.
"""

from typing import NamedTuple

import numpy as np

from brorl.errors import ShapeError
from brorl.theory.distribution import FloatV, MaskV, check_distribution, check_mask


class MassChange(NamedTuple):
    """A first-order change of the correct mass by where it comes from, in probability."""

    sampled_correct: float
    sampled_wrong: float
    unsampled: float  # either sign: the term that wide rollouts shrink

    @property
    def total(self) -> float:
        """The whole first-order change."""
        return self.sampled_correct + self.sampled_wrong + self.unsampled

    def scaled(self, factor: float) -> "MassChange":
        """All three terms times a factor: eta / N makes the change out of its rate."""
        return MassChange(*(factor * term for term in self))


def mass_change(
    p_V: FloatV,
    correct_V: MaskV,
    sampled_V: MaskV,
    *,
    reward_correct: float,
    reward_wrong: float,
) -> MassChange:
    """Theorem 1: the change of Q_pos in its three terms, per unit of eta / N.

    With A the sampled correct tokens, B the sampled wrong ones and U the rest,

        S = R_c * p(A) + R_w * p(B)
        sampled_correct = (R_c - S) * Q_neg * sum over A of p**2
        sampled_wrong   = (S - R_w) * Q_pos * sum over B of p**2
        unsampled       = S * (Q_pos * sum over U wrong of p**2 - Q_neg * sum over U correct)

    A and B are sets: a token drawn twice counts once, and no baseline is taken off. With counts
    or a baseline the first two terms may turn negative; see `weighted_mass_change`.

    Args:
        p_V: float64 [V], a probability vector.
        correct_V: bool [V]. Which tokens the verifier accepts.
        sampled_V: bool [V]. Which tokens were drawn at least once.
        reward_correct: R_c, reward units.
        reward_wrong: R_w, reward units.

    Returns:
        MassChange. The two sampled terms are >= 0, to the last bit, where R_w <= 0 <= R_c.

    Raises:
        ShapeError: p is not a probability vector, or a mask does not fit it.

    Source:
        BroRL, arXiv:2510.01180v1, Theorem 1.
    """
    _check(p_V, correct_V, sampled_V)
    q_pos, q_neg = p_V[correct_V].sum(), p_V[~correct_V].sum()
    p_right, p_wrong = p_V[sampled_V & correct_V], p_V[sampled_V & ~correct_V]
    p_unsampled = p_V[~sampled_V].sum()
    s_r = reward_correct * p_right.sum() + reward_wrong * p_wrong.sum()
    # R_c - S and S - R_w, written with the mass on the other side: a difference of the two
    # rounds to -1e-17 where it should be 0, and a term that cannot be negative turns negative.
    above = reward_correct * (p_wrong.sum() + p_unsampled) - reward_wrong * p_wrong.sum()
    below = reward_correct * p_right.sum() - reward_wrong * (p_right.sum() + p_unsampled)
    u_pos2 = np.square(p_V[~sampled_V & correct_V]).sum()
    u_neg2 = np.square(p_V[~sampled_V & ~correct_V]).sum()
    return MassChange(
        sampled_correct=float(above * q_neg * np.square(p_right).sum()),
        sampled_wrong=float(below * q_pos * np.square(p_wrong).sum()),
        unsampled=float(s_r * (q_pos * u_neg2 - q_neg * u_pos2)),
    )


def weighted_mass_change(
    p_V: FloatV, correct_V: MaskV, sampled_V: MaskV, weight_V: FloatV
) -> MassChange:
    """The same for any weight per token (counts, baselines), per unit of eta / N.

        dQ = Q_neg * sum over correct of p**2 * (w - S) - Q_pos * sum over wrong of p**2 * (w - S)

    split by whether the token was sampled. Nothing bounds S by the rewards here: three draws of
    one token make it a weight of 3, and a correct token drawn once can fall.

    Args:
        p_V: float64 [V], a probability vector.
        correct_V: bool [V].
        sampled_V: bool [V].
        weight_V: float64 [V], reward units; 0 wherever `sampled_V` is False.

    Returns:
        MassChange; every term may have either sign.

    Raises:
        ShapeError: shapes differ, p is no probability vector, or an unsampled token has a weight.

    Source:
        The proof of Theorem 1 of arXiv:2510.01180v1, kept general: it never uses that w is a set.
    """
    _check(p_V, correct_V, sampled_V)
    _check_values("weight", weight_V, p_V)
    if (weight_V[~sampled_V] != 0).any():
        token = int(np.flatnonzero(~sampled_V & (weight_V != 0))[0])
        raise ShapeError(f"need weight 0 on unsampled tokens, got {weight_V[token]} at {token}")
    q_pos, q_neg = p_V[correct_V].sum(), p_V[~correct_V].sum()
    pull_V = np.square(p_V) * (weight_V - weight_V @ p_V)
    return MassChange(
        sampled_correct=float(q_neg * pull_V[sampled_V & correct_V].sum()),
        sampled_wrong=float(-q_pos * pull_V[sampled_V & ~correct_V].sum()),
        unsampled=float(
            q_neg * pull_V[~sampled_V & correct_V].sum()
            - q_pos * pull_V[~sampled_V & ~correct_V].sum()
        ),
    )


def surrogate_logit_step(p_V: FloatV, weight_V: FloatV) -> FloatV:
    """dz_j = p_j * (w_j - S) per unit of eta / N: float64 [V].

    The ascent direction of sum_v w_v p_v, which is linear in p, not in log p.

    Args:
        p_V: float64 [V], a probability vector.
        weight_V: float64 [V], reward units; 0 on unsampled tokens.

    Raises:
        ShapeError: shapes differ, or p is no probability vector.

    Source:
        BroRL, arXiv:2510.01180v1, section 2.
    """
    check_distribution(p_V)
    _check_values("weight", weight_V, p_V)
    return np.asarray(p_V * (weight_V - weight_V @ p_V), dtype=np.float64)


def split_mass_change(
    p_V: FloatV, correct_V: MaskV, sampled_V: MaskV, logit_step_V: FloatV
) -> MassChange:
    """First-order change of Q_pos under any logit step, whoever took it (Adam, several epochs).

        dQ = sum_j p_j * dz_j * (1[j correct] - Q_pos)

    split by whether j is sampled correct, sampled wrong or unsampled. For the surrogate's own
    step and set weights the three parts are the three terms of Theorem 1.

    Args:
        p_V: float64 [V], the probabilities before the step.
        correct_V: bool [V].
        sampled_V: bool [V].
        logit_step_V: float64 [V], dz, logit units. A common shift of all logits changes nothing
            in the total and moves mass between the parts.

    Raises:
        ShapeError: shapes differ, p is no probability vector, or the step holds a NaN.

    Source:
        The softmax derivative dp_i = p_i (dz_i - sum_j p_j dz_j); arXiv:2510.01180v1, section 2.
    """
    _check(p_V, correct_V, sampled_V)
    _check_values("logit step", logit_step_V, p_V)
    q_pos, q_neg = p_V[correct_V].sum(), p_V[~correct_V].sum()
    flow_V = p_V * logit_step_V
    return MassChange(
        sampled_correct=float(q_neg * flow_V[sampled_V & correct_V].sum()),
        sampled_wrong=float(-q_pos * flow_V[sampled_V & ~correct_V].sum()),
        unsampled=float(
            q_neg * flow_V[~sampled_V & correct_V].sum()
            - q_pos * flow_V[~sampled_V & ~correct_V].sum()
        ),
    )


def exact_mass_change(p_V: FloatV, correct_V: MaskV, logit_step_V: FloatV) -> float:
    """The change of Q_pos when the softmax is computed again after the step, without cancellation.

        dQ = sum_j p_j * expm1(dz_j) * (1[j correct] - Q_pos) / sum_j p_j * exp(dz_j)

    which is Q_pos after minus Q_pos before, but keeps its digits where the two agree in all of
    theirs: a change of 1e-30 comes out as 1e-30.

    Args:
        p_V: float64 [V], the probabilities before the step.
        correct_V: bool [V].
        logit_step_V: float64 [V], dz, logit units.

    Raises:
        ShapeError: shapes differ, p is no probability vector, or the step holds a NaN.
    """
    check_distribution(p_V)
    check_mask("correct", correct_V, p_V)
    _check_values("logit step", logit_step_V, p_V)
    # Only differences of dz matter: the shift keeps exp() from overflowing.
    shifted_V = logit_step_V - logit_step_V[p_V > 0].max()
    growth_V = p_V * np.expm1(np.where(p_V > 0, shifted_V, 0.0))
    right, wrong = growth_V[correct_V].sum(), growth_V[~correct_V].sum()
    q_pos, q_neg = p_V[correct_V].sum(), p_V[~correct_V].sum()
    scale = (p_V * np.exp(np.where(p_V > 0, shifted_V, 0.0))).sum()
    return float((q_neg * right - q_pos * wrong) / scale)


def _check(p_V: FloatV, correct_V: MaskV, sampled_V: MaskV) -> None:
    check_distribution(p_V)
    check_mask("correct", correct_V, p_V)
    check_mask("sampled", sampled_V, p_V)


def _check_values(name: str, values_V: FloatV, p_V: FloatV) -> None:
    if values_V.shape != p_V.shape:
        raise ShapeError(f"need {name} of shape {list(p_V.shape)}, got {list(values_V.shape)}")
    if not np.isfinite(values_V).all():
        token = int(np.flatnonzero(~np.isfinite(values_V))[0])
        raise ShapeError(f"need a finite {name}, got {values_V[token]} at token {token}")
