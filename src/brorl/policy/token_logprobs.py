"""Log-probs of given tokens, and entropies, without ever holding the logits of a whole batch."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from brorl.errors import ShapeError

CHUNK_ELEMENTS = 1 << 22
"""Logits held at once, in numbers: 16 MiB of float32. Rows per chunk = this over the vocabulary."""


class TokenLogprobs(NamedTuple):
    """Scores of M tokens in nats; only `logp_M` carries gradient."""

    logp_M: Tensor  # float32 [M]
    entropy_M: Tensor  # float32 [M], of the distribution each token was drawn from


class _Chunked(torch.autograd.Function):
    """log_softmax(h W^T / temperature)[target], a few rows at a time, recomputed backward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_M: Tensor,
        temperature: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        logp_M = hidden_MD.new_empty(len(target_M), dtype=torch.float32)
        entropy_M = torch.empty_like(logp_M)
        for start in range(0, len(target_M), rows):
            part = slice(start, start + rows)
            logits = F.linear(hidden_MD[part], weight_VD, bias_V).float() / temperature
            logp = logits.log_softmax(-1)
            logp_M[part] = logp.gather(-1, target_M[part, None])[:, 0]
            # A token with probability 0 adds nothing to the entropy; 0 * -inf would add NaN.
            entropy_M[part] = torch.special.entr(logp.exp()).sum(-1)
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, target_M)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.mark_non_differentiable(entropy_M)
        return logp_M, entropy_M

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        grad_M = grads[0]
        hidden_MD, weight_VD, bias_V, target_M = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden_MD)
        # Sums over chunks are float32: in bfloat16 each addition would round to 8 bits.
        wide = torch.promote_types(weight_VD.dtype, torch.float32)
        grad_weight = torch.zeros_like(weight_VD, dtype=wide) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias_V, dtype=wide) if bias_V is not None else None
        for start in range(0, len(target_M), ctx.rows):
            part = slice(start, start + ctx.rows)
            logits = F.linear(hidden_MD[part], weight_VD, bias_V).float() / ctx.temperature
            slope = -logits.softmax(-1)
            slope.scatter_add_(-1, target_M[part, None], torch.ones_like(slope[:, :1]))
            slope *= (grad_M[part] / ctx.temperature)[:, None]
            slope = slope.to(hidden_MD.dtype)
            grad_hidden[part] = slope @ weight_VD
            if grad_weight is not None and grad_weight.dtype == slope.dtype:
                grad_weight.addmm_(slope.T, hidden_MD[part])
            elif grad_weight is not None:
                grad_weight += slope.T @ hidden_MD[part]
            if grad_bias is not None:
                grad_bias += slope.sum(0, dtype=wide)
        dtype = weight_VD.dtype
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(dtype),
            None if grad_bias is None else grad_bias.to(dtype),
            None,
            None,
            None,
        )


def token_logprobs(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_M: Tensor,
    *,
    temperature: float,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> TokenLogprobs:
    """log p(target) and the entropy of p = softmax((h W^T + b) / temperature), per token.

    Peak memory beyond the inputs is about four chunks of `chunk_elements` float32 numbers,
    whatever M and V are (one row at least). The backward pass recomputes the logits.

    Args:
        hidden_MD: [M, D], the last hidden state before each token, any float dtype.
        weight_VD: [V, D], the output embedding; its gradient is computed where it is wanted.
        bias_V: [V] or None.
        target_M: int64 [M], in [0, V).
        temperature: > 0, the one the tokens were sampled at.
        chunk_elements: see above.

    Returns:
        TokenLogprobs; both float32.

    Raises:
        ShapeError: a temperature that is not > 0.
    """
    if not temperature > 0:
        raise ShapeError(f"log-probs need a temperature > 0, got {temperature}")
    rows = max(1, chunk_elements // weight_VD.shape[0])
    out = _Chunked.apply(hidden_MD, weight_VD, bias_V, target_M, temperature, rows)  # type: ignore[no-untyped-call]
    return TokenLogprobs(*out)
