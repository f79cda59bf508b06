"""What each draw is worth to the loss: advantages, and the pull of a loss on the drawn tokens.

Axis: U distinct tokens of a batch of draws.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.simulator.settings import Baseline, Loss, Ppo


class Advantages(NamedTuple):
    """Reward minus baseline of a correct and of a wrong draw."""

    correct: float
    wrong: float


def advantages(
    right: int, wrong: int, *, reward_correct: float, reward_wrong: float, baseline: Baseline
) -> Advantages:
    """Reward minus baseline, when `right` and `wrong` items of a batch have the two rewards.

    Written as a share of the spread R_c - R_w, so that a batch of one kind gives exactly 0.

    Args:
        right: correct items, >= 0.
        wrong: wrong items, >= 0; right + wrong >= 1.
        reward_correct: R_c, reward units.
        reward_wrong: R_w, reward units.
        baseline: none; mean of the batch; or the mean of the batch without the item itself.
    """
    if baseline == "none":
        return Advantages(reward_correct, reward_wrong)
    others = right + wrong - (baseline == "leave-one-out")
    unit = (reward_correct - reward_wrong) / max(others, 1)
    return Advantages(wrong * unit, -right * unit)


def loss_pull(
    loss: Loss,
    weight_U: NDArray[np.floating],
    p_U: NDArray[np.floating],
    old_U: NDArray[np.floating],
) -> NDArray[np.floating]:
    """N times minus dLoss / dlog p(v) for each distinct token: float [U].

    Linear in p: w p. Log-likelihood: w. PPO: w p / p_old, and 0 where the clip is active.

    Args:
        loss: which.
        weight_U: count times advantage.
        p_U: probability now.
        old_U: probability when the batch was drawn.
    """
    if loss.kind == "log-likelihood":
        return weight_U
    if loss.kind == "linear":
        return weight_U * p_U
    return _ppo_pull(loss, weight_U, p_U / old_U)


def _ppo_pull(
    loss: Ppo, weight_U: NDArray[np.floating], ratio_U: NDArray[np.floating]
) -> NDArray[np.floating]:
    too_high = (weight_U > 0) & (ratio_U > 1 + loss.clip_high)
    too_low = (weight_U < 0) & (ratio_U < 1 - loss.clip_low)
    return np.where(too_high | too_low, 0, weight_U * ratio_U)
