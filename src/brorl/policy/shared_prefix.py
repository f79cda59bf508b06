"""Attention that reads a group's prompt once for all of its rows.

N answers to one prompt share the prompt's keys and values. They are computed once per group
(`PromptReader`) and read by every row of the group where they lie (`GroupReader`); nothing is
copied N times. A row's attention is one softmax over the prompt's positions and its own:

    out = softmax([q K_prompt^T, q K_own^T] * scale) [V_prompt; V_own]

Both readers are handed to a stock Hugging Face model as the keyword `reader` of its forward; the
model passes it on to the attention function registered here, after it has applied its own
projections, norms and rotary positions. Gradients flow through the prompt's keys and values.

Axes:  G groups · R rows (answers) · H heads · K key-value heads · T answer tokens · C prompt tokens
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface

from brorl.errors import PolicyError

NAME = "brorl_shared_prefix"
_SILENT = {"position_ids", "use_cache", "cache", "past_key_values", "sliding_window", "is_causal"}


class PromptReader:
    """Runs prompts causally and keeps their keys and values, one pair a layer.

    Prompts are padded on the right: under a causal mask no real token sees the padding, and
    `GroupReader` masks it.

    Attributes:
        keys_LGKCD: list over layers of float [G, K, C, D].
        values_LGKCD: the same for values.
    """

    def __init__(self) -> None:
        self.keys_LGKCD: list[Tensor] = []
        self.values_LGKCD: list[Tensor] = []

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        if layer != len(self.keys_LGKCD):
            raise PolicyError(f"layers must attend in order, got {layer} after {layer - 1}")
        self.keys_LGKCD.append(k)
        self.values_LGKCD.append(v)
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )


class OwnCache:
    """Keys and values of the rows' own tokens while they are sampled, one buffer a layer.

    All rows of a wave start together and finished rows leave, so every row holds the same
    number of tokens and no mask is needed.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0  # tokens held, the same in every layer once a forward is over
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store [R, K, T, D] after what is held; return all of it."""
        if layer == len(self._keys):
            rows, heads, _, width = k.shape
            self._keys.append(k.new_empty(rows, heads, self.capacity, width))
            self._values.append(v.new_empty(rows, heads, self.capacity, v.shape[-1]))
        end = self.length + k.shape[2]
        self._keys[layer][:, :, self.length : end] = k
        self._values[layer][:, :, self.length : end] = v
        return self._keys[layer][:, :, :end], self._values[layer][:, :, :end]

    def keep(self, rows_R: Tensor) -> None:
        """Drop every row that is not named, in the order given."""
        self._keys = [k.index_select(0, rows_R) for k in self._keys]
        self._values = [v.index_select(0, rows_R) for v in self._values]


class GroupReader:
    """Attends from rows to their group's prompt and to their own tokens.

    Args:
        prompts: the reader that ran the prompts.
        lengths_G: int64 [G], prompt tokens per group, each >= 1.
        group_R: int64 [R], the group of each row, ascending.
        own: a cache when tokens come one at a time; None for whole answers at once.
    """

    def __init__(
        self, prompts: PromptReader, lengths_G: Tensor, group_R: Tensor, own: OwnCache | None
    ) -> None:
        self._prompts = prompts
        self._own = own
        counts_G = torch.bincount(group_R, minlength=len(lengths_G))
        self._groups = len(lengths_G)
        self._rows = int(counts_G.max())
        self._even = bool((counts_G == self._rows).all())
        starts_G = counts_G.cumsum(0) - counts_G
        slot_R = torch.arange(len(group_R), device=group_R.device) - starts_G[group_R]
        self._place_R = group_R * self._rows + slot_R
        columns = int(lengths_G.max())
        padding_GC = torch.arange(columns, device=lengths_G.device) >= lengths_G[:, None]
        self._padding_G1C = padding_GC[:, None] if bool(padding_GC.any()) else None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        rows, heads, tokens, width = q.shape
        kv_heads = k.shape[1]
        if self._own is not None:
            k, v = self._own.append(layer, k, v)
        q_RKST = q.reshape(rows, kv_heads, heads // kv_heads * tokens, width) * scale
        prompt_k, prompt_v = self._prompts.keys_LGKCD[layer], self._prompts.values_LGKCD[layer]
        to_prompt = self._from_groups(
            self._mask(self._to_groups(q_RKST) @ prompt_k.transpose(-1, -2)), q_RKST.shape
        )
        to_own = q_RKST @ k.transpose(-1, -2)
        if tokens > 1:
            future = torch.ones(tokens, k.shape[2], dtype=torch.bool, device=q.device)
            future = future.triu(k.shape[2] - tokens + 1)
            to_own = to_own.view(rows, kv_heads, -1, tokens, k.shape[2])
            to_own = to_own.masked_fill(future, float("-inf")).view(*q_RKST.shape[:3], -1)
        weights = torch.cat([to_prompt, to_own], dim=-1).softmax(dim=-1)
        columns = prompt_k.shape[2]
        on_prompt, on_own = weights[..., :columns], weights[..., columns:]
        out = self._from_groups(self._to_groups(on_prompt) @ prompt_v, q_RKST.shape) + on_own @ v
        return out.view(rows, heads, tokens, v.shape[-1])

    def _to_groups(self, x_RKSD: Tensor) -> Tensor:
        """[R, K, S, D] to [G, K, rows * S, D]: the rows of a group beside each other."""
        rows, kv_heads, seats, width = x_RKSD.shape
        if not self._even:
            spread = x_RKSD.new_zeros(self._groups * self._rows, kv_heads, seats, width)
            x_RKSD = spread.index_copy(0, self._place_R, x_RKSD)
        x = x_RKSD.view(self._groups, self._rows, kv_heads, seats, width).transpose(1, 2)
        return x.reshape(self._groups, kv_heads, self._rows * seats, width)

    def _from_groups(self, x_GKSD: Tensor, shape: torch.Size) -> Tensor:
        """The inverse of `_to_groups`; `shape` is that of the rows, its last axis aside."""
        _, kv_heads, seats, _ = shape
        x = x_GKSD.view(self._groups, kv_heads, self._rows, seats, -1).transpose(1, 2)
        x = x.reshape(self._groups * self._rows, kv_heads, seats, -1)
        return x if self._even else x.index_select(0, self._place_R)

    def _mask(self, scores_GKSC: Tensor) -> Tensor:
        if self._padding_G1C is None:
            return scores_GKSC
        return scores_GKSC.masked_fill(self._padding_G1C[:, None], float("-inf"))


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    reader: PromptReader | GroupReader | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """What the model calls in every layer: [R, H, T, D] in, [R, T, H, D] out."""
    if reader is None:
        raise PolicyError("the model did not pass `reader` on to its attention function")
    asked = sorted(k for k, v in extra.items() if k not in _SILENT and v is not None)
    if asked or dropout or attention_mask is not None:
        raise PolicyError(f"attention with {asked or 'dropout or a mask'} cannot share a prompt")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer = module.layer_idx
    if not isinstance(layer, int):
        raise PolicyError(f"an attention layer needs an integer layer_idx, got {layer!r}")
    out = reader.attend(layer, query, key, value, scale)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attention)


@contextmanager
def shared_attention(model: Any) -> Iterator[None]:
    """Within it, the model's layers call the attention function above instead of their own."""
    before = model.config._attn_implementation
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
