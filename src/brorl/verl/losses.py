"""Policy losses in the form verl registers. The arithmetic is `brorl.algo`; no verl is imported.

Axes:  B sequences · T response tokens, padded
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from brorl.algo.aggregation import LossAggMode, loss_denominator, token_weights
from brorl.algo.losses import clipped_policy_loss
from brorl.errors import ConfigError

PolicyLossFn = Callable[..., tuple[Tensor, dict[str, Any]]]

COUNTS = ("tokens", "clipped_low", "clipped_high", "clipped_c", "overflowed")
"""Metrics brorl/NAME of a micro-batch. verl averages them; their ratios stay exact."""


def policy_loss(name: str, *, dual: bool) -> PolicyLossFn:
    """The function to register: clipped surrogate, over a global denominator.

    verl averages gradients over its data-parallel ranks, so the local sum is multiplied by their
    number, as in its own losses.

    Args:
        name: of the function, for messages.
        dual: whether clip_ratio_c of verl's configuration is used; verl has no way to leave it
            out.
    """

    def registered(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        mask_BT = response_mask.bool()
        info = config.global_batch_info
        row_BT = torch.arange(len(mask_BT), device=mask_BT.device)[:, None].expand_as(mask_BT)
        weight_BT = token_weights(
            mask_BT,
            row_BT,
            loss_agg_mode=loss_agg_mode,
            denominator=denominator(mask_BT, loss_agg_mode, info),
            dtype=log_prob.dtype,
        )
        if rollout_is_weights is not None:
            weight_BT = weight_BT * rollout_is_weights
        out = clipped_policy_loss(
            log_prob,
            old_log_prob,
            advantages,
            weight_BT,
            mask_BT,
            clip_ratio_low=config.clip_ratio_low,
            clip_ratio_high=config.clip_ratio_high,
            clip_ratio_c=config.clip_ratio_c if dual else None,
        )
        metrics = {f"brorl/{key}": float(getattr(out, key)) for key in COUNTS}
        return out.loss * (info.get("dp_size") or 1), metrics

    registered.__name__ = registered.__qualname__ = name
    return registered


def denominator(mask_BT: Tensor, loss_agg_mode: LossAggMode, info: Mapping[str, Any]) -> float:
    """What the mini-batch's loss is divided by: verl's global count, or this batch's own.

    Raises:
        ConfigError: several ranks and no global count.
    """
    named = "batch_num_tokens" if loss_agg_mode == "token-mean" else "global_batch_size"
    given = info.get(named)
    if given is not None:
        return float(given)
    if (info.get("dp_size") or 1) > 1:
        raise ConfigError(f"loss_agg_mode {loss_agg_mode} on several ranks needs {named}")
    return loss_denominator(mask_BT.sum(-1), loss_agg_mode=loss_agg_mode)
