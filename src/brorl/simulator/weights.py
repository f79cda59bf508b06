"""What each draw is worth to the loss: advantages, and the pull of a loss on the drawn tokens.

Axis: U distinct tokens of a batch of draws.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.simulator.settings import Baseline, Loss, Ppo


class Advantages(NamedTuple):
    """Reward minus baseline of a correct and of a wrong draw, in a unit they share."""

    correct: float
    wrong: float
    unit: float  # reward units; multiply by it


def advantages(
    right: int, wrong: int, *, reward_correct: float, reward_wrong: float, baseline: Baseline
) -> Advantages:
    """Reward minus baseline, when `right` and `wrong` items of a batch have the two rewards.

    With a baseline the two are whole multiples of the spread R_c - R_w over the number of items:
    `wrong` and minus `right`. So a batch of one kind gives exactly 0, and so does the sum over
    any batch, which tiny eps of Adam would otherwise turn from rounding noise into steps.

    Args:
        right: correct items, >= 0.
        wrong: wrong items, >= 0; right + wrong >= 1.
        reward_correct: R_c, reward units.
        reward_wrong: R_w, reward units.
        baseline: none; mean of the batch; or the mean of the batch without the item itself.
    """
    if baseline == "none":
        return Advantages(reward_correct, reward_wrong, 1.0)
    others = right + wrong - (baseline == "leave-one-out")
    return Advantages(wrong, -right, (reward_correct - reward_wrong) / max(others, 1))


def loss_pull(
    loss: Loss,
    weight_U: NDArray[np.float64],
    p_U: NDArray[np.float64],
    old_U: NDArray[np.float64],
) -> NDArray[np.float64]:
    """N times minus dLoss / dlog p(v) for each distinct token, in the unit of the weights: [U].

    Linear in p: w p. Log-likelihood: w. PPO: w p / p_old, and 0 where the clip is active.

    Args:
        loss: which.
        weight_U: float64 [U], count times advantage.
        p_U: float64 [U], probability now.
        old_U: float64 [U], probability when the batch was drawn.
    """
    if loss.kind == "log-likelihood":
        return weight_U
    if loss.kind == "linear":
        return weight_U * p_U
    return _ppo_pull(loss, weight_U, p_U / old_U)


def _ppo_pull(
    loss: Ppo, weight_U: NDArray[np.float64], ratio_U: NDArray[np.float64]
) -> NDArray[np.float64]:
    too_high = (weight_U > 0) & (ratio_U > 1 + loss.clip_high)
    too_low = (weight_U < 0) & (ratio_U < 1 - loss.clip_low)
    return np.where(too_high | too_low, 0, weight_U * ratio_U)
