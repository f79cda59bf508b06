"""The learning rate: how it follows the batch, and how it follows the update count. No torch."""

import math
from typing import Literal, assert_never

from brorl.errors import ConfigError

LrScaling = Literal["none", "sqrt", "linear"]


def scaled_lr(*, lr: float, lr_scaling: LrScaling, samples: float, lr_base_samples: float) -> float:
    """The rate for a step of `samples`, from the rate tuned at `lr_base_samples`.

        none    lr
        sqrt    lr · sqrt(samples / lr_base_samples)
        linear  lr · samples / lr_base_samples

    The ratio is of samples, not of prompts: BroRL goes from 512 x 16 to 128 x 512, which is 8
    times the samples, so sqrt gives 2.83 times the rate although the prompts fall to a quarter.
    The paper doesn't say which of the two it counts; samples keep the noise per update alike.

    Args:
        lr: > 0.
        lr_scaling: see above.
        samples: > 0: nominal sequences in the step, prompts_per_step · n.
        lr_base_samples: > 0: the same where `lr` was tuned.

    Raises:
        ConfigError: a value that isn't > 0.

    Source:
        Hu et al. 2025 (BroRL), arXiv:2510.01180v1, section 3; Krizhevsky 2014, arXiv:1404.5997.
    """
    if not (lr > 0 and samples > 0 and lr_base_samples > 0):
        raise ConfigError(
            f"need lr, samples and lr_base_samples > 0, got {lr}, {samples}, {lr_base_samples}"
        )
    growth = samples / lr_base_samples
    match lr_scaling:
        case "none":
            return lr
        case "sqrt":
            return lr * math.sqrt(growth)
        case "linear":
            return lr * growth
        case _:
            assert_never(lr_scaling)


def warmup_factor(update: int, *, warmup: int) -> float:
    """What the rate is multiplied by while warming up: (update + 1) / (warmup + 1), then 1.

    The first update already moves, and update `warmup` is the first at the full rate.

    Args:
        update: >= 0: optimiser updates done before this one.
        warmup: >= 0, updates; 0 for none.

    Raises:
        ConfigError: a value below 0.
    """
    if update < 0 or warmup < 0:
        raise ConfigError(f"need update and warmup >= 0, got {update} and {warmup}")
    return min((update + 1) / (warmup + 1), 1.0)


def cosine_factor(update: int, *, start: int, total: int, floor: float) -> float:
    """A half cosine from 1 at update `start` to `floor` at update `total`, flat on either side.

        floor + (1 - floor) · (1 + cos(pi · (update - start) / (total - start))) / 2

    Args:
        update: >= 0: optimiser updates done before this one.
        start: >= 0: the length of the warm-up, whose factor multiplies this one.
        total: > start: updates planned.
        floor: in [0, 1].

    Raises:
        ConfigError: a value out of its range.
    """
    if update < 0 or not 0 <= start < total or not 0 <= floor <= 1:
        raise ConfigError(
            "need update >= 0, 0 <= start < total and floor in [0, 1], "
            f"got {update}, {start}, {total}, {floor}"
        )
    progress = min(max(update - start, 0) / (total - start), 1.0)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
