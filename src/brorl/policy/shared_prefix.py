"""Attention that reads a group's prompt once for all of its rows.

N answers to one prompt share the prompt's keys and values. They are computed once per group
(`PromptReader`) and read by every row of the group where they lie (`GroupReader`); nothing is
copied N times. A row's attention is one softmax over the prompt's positions and its own:

    out = softmax([q K_prompt^T, q K_own^T] * scale) [V_prompt; V_own]

Both readers are handed to a stock Hugging Face model as the keyword `reader` of its forward; the
model passes it on to the attention function registered here, after it has applied its own
projections, norms and rotary positions. Gradients flow through the prompt's keys and values.

Axes:  G groups · R rows (answers) · B blocks of rows of one group · H heads · K key-value heads
       T answer tokens · C prompt tokens · D width of a head · S query heads of a KV head · tokens
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface

from brorl.errors import PolicyError

NAME = "brorl_shared_prefix"
_COPY = 16  # rows whose attention takes as long as copying their prompt's keys and values
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

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (*self.keys_LGKCD, *self.values_LGKCD))

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

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (*self._keys, *self._values))

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
        self._keys = [self._kept(k, rows_R) for k in self._keys]
        self._values = [self._kept(v, rows_R) for v in self._values]

    def _kept(self, held: Tensor, rows_R: Tensor) -> Tensor:
        kept = held.new_empty(len(rows_R), *held.shape[1:])
        kept[:, :, : self.length] = held[:, :, : self.length].index_select(0, rows_R)
        return kept


class GroupReader:
    """Attends from rows to their group's prompt and to their own tokens.

    Rows are laid out in blocks of equal size, each of one group, so that one batched product
    serves all of them. Groups of equal size are a block each; of uneven ones the small do not
    pay for the widest (`_block_size`).

    Args:
        prompts: the reader that ran the prompts.
        lengths_G: int64 [G], prompt tokens per group, each >= 1.
        group_R: int64 [R], the group of each row, ascending; a group may have no row.
        own: a cache when tokens come one at a time; None for whole answers at once.
    """

    def __init__(
        self, prompts: PromptReader, lengths_G: Tensor, group_R: Tensor, own: OwnCache | None
    ) -> None:
        self._prompts = prompts
        self._own = own
        counts_G = torch.bincount(group_R, minlength=len(lengths_G))
        self._size = _block_size(counts_G.tolist())
        blocks_G = (counts_G + self._size - 1) // self._size
        self._blocks = int(blocks_G.sum())
        first_G = blocks_G.cumsum(0) - blocks_G
        slot_R = torch.arange(len(group_R), device=group_R.device)
        slot_R = slot_R - (counts_G.cumsum(0) - counts_G)[group_R]
        full = self._blocks * self._size == len(group_R)
        self._place_R = None if full else first_G[group_R] * self._size + slot_R
        one_each = bool((blocks_G == 1).all())
        groups = torch.arange(len(lengths_G), device=group_R.device)
        self._group_B = None if one_each else torch.repeat_interleave(groups, blocks_G)
        self._of_blocks: dict[int, tuple[Tensor, Tensor]] = {}
        length_B = lengths_G if self._group_B is None else lengths_G[self._group_B]
        columns = torch.arange(int(lengths_G.max()), device=lengths_G.device)
        padding_BC = columns >= length_B[:, None]
        self._padding_B11C = padding_BC[:, None, None] if bool(padding_BC.any()) else None

    @property
    def nbytes(self) -> int:
        """Of keys and values read: the prompts', their copies by block, and the rows' own."""
        copies = sum(k.nbytes + v.nbytes for k, v in self._of_blocks.values())
        return self._prompts.nbytes + copies + (self._own.nbytes if self._own else 0)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        rows, heads, tokens, width = q.shape
        kv_heads = k.shape[1]
        if self._own is not None:
            k, v = self._own.append(layer, k, v)
        q_RKSD = q.reshape(rows, kv_heads, heads // kv_heads * tokens, width) * scale
        prompt_k, prompt_v = self._prompt(layer)
        to_prompt_BKSC = self._to_blocks(q_RKSD) @ prompt_k.transpose(-1, -2)
        if self._padding_B11C is not None:
            to_prompt_BKSC = to_prompt_BKSC.masked_fill(self._padding_B11C, float("-inf"))
        to_prompt = self._from_blocks(to_prompt_BKSC, rows)
        to_own = q_RKSD @ k.transpose(-1, -2)
        if tokens > 1:
            future = torch.ones(tokens, k.shape[2], dtype=torch.bool, device=q.device)
            future = future.triu(k.shape[2] - tokens + 1)
            to_own = to_own.view(rows, kv_heads, -1, tokens, k.shape[2])
            to_own = to_own.masked_fill(future, float("-inf")).view(*q_RKSD.shape[:3], -1)
        weights = torch.cat([to_prompt, to_own], dim=-1).softmax(dim=-1)
        columns = prompt_k.shape[2]
        on_prompt, on_own = weights[..., :columns], weights[..., columns:]
        out = self._from_blocks(self._to_blocks(on_prompt) @ prompt_v, rows) + on_own @ v
        return out.reshape(rows, heads, tokens, v.shape[-1])

    def _prompt(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B, K, C, D] of each block's prompt; a copy only for uneven groups."""
        keys, values = self._prompts.keys_LGKCD[layer], self._prompts.values_LGKCD[layer]
        if self._group_B is None:
            return keys, values
        if layer not in self._of_blocks:  # read again at every token while rows are sampled
            self._of_blocks[layer] = (keys[self._group_B], values[self._group_B])
        return self._of_blocks[layer]

    def _to_blocks(self, x_RKSD: Tensor) -> Tensor:
        """[R, K, S, D] to [B, K, size * S, D]: the rows of a block beside each other."""
        _, kv_heads, seats, width = x_RKSD.shape
        if self._place_R is not None:
            spread = x_RKSD.new_zeros(self._blocks * self._size, kv_heads, seats, width)
            x_RKSD = spread.index_copy(0, self._place_R, x_RKSD)
        x = x_RKSD.view(self._blocks, self._size, kv_heads, seats, width).transpose(1, 2)
        return x.reshape(self._blocks, kv_heads, self._size * seats, width)

    def _from_blocks(self, x_BKSD: Tensor, rows: int) -> Tensor:
        """The inverse of `_to_blocks`."""
        _, kv_heads, seats, width = x_BKSD.shape
        x = x_BKSD.view(self._blocks, kv_heads, self._size, seats // self._size, width)
        x = x.transpose(1, 2).reshape(-1, kv_heads, seats // self._size, width)
        return x if self._place_R is None else x.index_select(0, self._place_R)


def _block_size(counts_G: Sequence[int]) -> int:
    """Rows per block that cost least: blocks * (size + what a copy of the prompt costs in rows).

    Groups of one size get a block each. One of 512 beside 31 of 16 gets blocks of 16, where
    blocks of 512 would hold sixteen times the rows that there are.
    """
    size = best = max(*counts_G, 1)
    least = math.inf
    while size >= 1:
        cost = sum(-(-n // size) for n in counts_G) * (size + _COPY)
        if cost < least:
            best, least = size, cost
        size = (size + 1) // 2 if size > 1 else 0
    return best


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
