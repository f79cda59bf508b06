"""One token for each row, from its logits and one uniform number.

Axes:  R rows · V vocabulary
"""

from typing import NamedTuple

import torch
from torch import Tensor

from brorl.rollout.engine import Sampling


class Drawn(NamedTuple):
    """The tokens drawn and what they were worth."""

    token_R: Tensor  # int64 [R]
    logp_R: Tensor  # float32 [R], nats, at the sampling temperature over the full vocabulary


def draw(logits_RV: Tensor, uniform_R: Tensor, sampling: Sampling) -> Drawn:
    """Inverse transform sampling: the first token whose cumulative probability exceeds u.

    With temperature 0 the largest logit is taken and its log-prob is at temperature 1. top-k
    and top-p restrict what may be drawn; the log-prob stays that of the full distribution.
    A row of logits that holds NaN or +inf gets a NaN log-prob and any token.

    Args:
        logits_RV: float32 [R, V].
        uniform_R: float64 [R], in [0, 1).
        sampling: temperature, top_p, top_k.
    """
    if sampling.temperature == 0.0:
        token_R = logits_RV.argmax(-1)
        logp_RV = logits_RV.log_softmax(-1)
    else:
        if sampling.temperature != 1.0:
            logits_RV = logits_RV / sampling.temperature
        logp_RV = logits_RV.log_softmax(-1)
        cumulative_RV = _restricted(logp_RV.exp(), sampling).cumsum(-1, dtype=torch.float64)
        # u <= 1 - 2**-53, so that u * total rounds below total: a token is always found.
        target_R1 = uniform_R[:, None] * cumulative_RV[:, -1:]
        token_R = torch.searchsorted(cumulative_RV, target_R1, right=True)[:, 0]
        token_R = token_R.clamp(max=logits_RV.shape[-1] - 1)  # beyond it only where logits are NaN
    return Drawn(token_R, logp_RV.gather(-1, token_R[:, None])[:, 0])


def _restricted(p_RV: Tensor, sampling: Sampling) -> Tensor:
    """Zero what top-k and top-p leave out; the most likely token always stays."""
    if 0 < sampling.top_k < p_RV.shape[-1]:
        least = p_RV.topk(sampling.top_k, dim=-1).values[:, -1:]
        p_RV = torch.where(p_RV >= least, p_RV, 0.0)
    if sampling.top_p < 1.0:
        ranked, order = p_RV.sort(dim=-1, descending=True, stable=True)
        mass = ranked.double().cumsum(-1)
        before = mass - ranked  # of the tokens ranked higher
        ranked = torch.where(before < sampling.top_p * mass[:, -1:], ranked, 0.0)
        p_RV = torch.zeros_like(p_RV).scatter(-1, order, ranked)
    return p_RV
