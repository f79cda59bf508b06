"""The policy loss. Pure functions of tensors: no config, no I/O, no model, no state.

Tokens may be flat [M] (packed) or padded [B, T]: any shape, the same for every argument.
Left out: GSPO and CISPO, which no recipe uses.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from brorl.algo.checks import require_mask, require_same_shape
from brorl.errors import ConfigError

LOG_RATIO_LIMIT = 20.0  # nats; verl's bound. exp(20) = 4.9e8 times any advantage stays finite


class PolicyLoss(NamedTuple):
    """A loss and what the clip did. 0-d tensors; only `loss` carries gradient.

    The counts are of this micro-batch: add them up over the step, then divide by `tokens`.
    """

    loss: Tensor  # minimise
    tokens: Tensor  # int64: masked in
    clipped_low: Tensor  # int64: advantage < 0 and ratio below 1 - clip_ratio_low: no gradient
    clipped_high: Tensor  # int64: advantage > 0 and ratio above 1 + clip_ratio_high: no gradient
    clipped_c: Tensor  # int64: advantage < 0 and ratio above clip_ratio_c: no gradient
    overflowed: Tensor  # int64: |log ratio| above LOG_RATIO_LIMIT: no gradient


def clipped_policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    weight: Tensor,
    mask: Tensor,
    *,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float | None,
) -> PolicyLoss:
    """PPO's clipped surrogate with two bounds ("clip-higher") and an optional third (dual clip).

    With r = exp(logp - old_logp) per token and A its sequence's advantage,

        J    = min(r A, clip(r, 1 - clip_ratio_low, 1 + clip_ratio_high) A)
        J    = max(J, clip_ratio_c A)   where A < 0
        loss = -sum over the mask of weight * J

    The sum isn't divided here: the denominator of the whole step is inside `weight`.
    Where A or the weight is 0 the token isn't looked at, so a ratio that overflows there is 0
    and not inf * 0. A log ratio is cut at 20 nats, where its gradient ends.

    Args:
        logp: float, nats: the sampled token under the policy being trained, at the sampling
            temperature.
        old_logp: float, nats: the same under the weights of the rollout, by the trainer. Constant.
        advantage: float: of the token's sequence. Constant.
        weight: float, >= 0: from `aggregation.token_weights`, times importance weights
            (`importance.importance_weights`) and cut weights (`selection`) in use. Constant.
        mask: bool. What lies under False is never read.
        clip_ratio_low: in [0, 1).
        clip_ratio_high: >= 0; above clip_ratio_low it leaves rare, rewarded tokens more room.
        clip_ratio_c: > 1, or None for no dual clip.

    Returns:
        PolicyLoss. An empty mask gives loss 0 with gradient 0.

    Raises:
        ShapeError: unequal shapes, or a mask that isn't bool.
        ConfigError: a bound out of its range.

    Source:
        Schulman et al. 2017, arXiv:1707.06347, eq. 7 (the clip); Ye et al. 2020,
        arXiv:1912.09729 (dual clip); Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.1.
    """
    require_same_shape(logp=logp, old_logp=old_logp, advantage=advantage, weight=weight, mask=mask)
    require_mask(mask)
    if not (0 <= clip_ratio_low < 1 and 0 <= clip_ratio_high < math.inf):
        raise ConfigError(
            "need 0 <= clip_ratio_low < 1 and clip_ratio_high >= 0, "
            f"got {clip_ratio_low} and {clip_ratio_high}"
        )
    if clip_ratio_c is not None and not clip_ratio_c > 1:
        raise ConfigError(f"clip_ratio_c must be > 1, got {clip_ratio_c}")

    live = mask & (advantage != 0) & (weight != 0)
    a, w = advantage.detach()[live], weight.detach()[live]
    raw = logp[live] - old_logp.detach()[live]
    ratio = raw.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    bounded = ratio.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    objective = torch.minimum(ratio * a, bounded * a)
    if clip_ratio_c is not None:
        objective = torch.where(a < 0, torch.maximum(objective, clip_ratio_c * a), objective)
    loss = -(w * objective).sum()

    with torch.no_grad():
        over_c = torch.zeros_like(a, dtype=torch.bool)
        if clip_ratio_c is not None:
            over_c = (a < 0) & (ratio > clip_ratio_c)
        return PolicyLoss(
            loss=loss,
            tokens=mask.sum(),
            clipped_low=((a < 0) & (ratio < 1 - clip_ratio_low)).sum(),
            clipped_high=((a > 0) & (ratio > 1 + clip_ratio_high)).sum(),
            clipped_c=over_c.sum(),
            overflowed=(raw.abs() > LOG_RATIO_LIMIT).sum(),
        )
