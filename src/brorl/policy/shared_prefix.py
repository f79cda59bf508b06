"""Attention that reads a group's prompt once for all of its rows.

N answers to one prompt share the prompt's keys and values. They are computed once per group
(`PromptReader`) and read by every row of the group where they lie, while answers are sampled
(`NextReader`) and when they are scored (`AnswerReader`); nothing is copied N times. A row's
attention is one softmax over the prompt's positions and its own:

    out = softmax([q K_prompt^T, q K_own^T] * scale) [V_prompt; V_own]

A reader is handed to a stock Hugging Face model as the keyword `reader` of its forward; the
model passes it on to the attention function registered here, after it has applied its own
projections, norms and rotary positions. Gradients flow through the prompt's keys and values.

Axes:  G groups · R rows (answers) · B blocks of rows of one group · H heads · K key-value heads
       T answer tokens · M tokens of all answers · C prompt tokens · D width of a head
       S query heads of a key-value head
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface

from brorl.errors import PolicyError
from brorl.policy.blocks import Blocks
from brorl.policy.joint_attention import LOG2_E, Part, Rows, join, joint_attention, softmax

NAME = "brorl_shared_prefix"
FEW_ROWS = 16
"""Rows up to which a step of sampling costs its operations, not its numbers."""
_SILENT = {"position_ids", "use_cache", "cache", "past_key_values", "sliding_window", "is_causal"}


class PromptReader:
    """Runs prompts causally and keeps their keys and values, one pair a layer.

    Prompts are padded on the right: under a causal mask no real token sees the padding, and
    later readers mask it.

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


class NextReader:
    """Attends from rows that are sampled, one token each, to their prompt and their own tokens.

    Args:
        prompts: the reader that ran the prompts.
        lengths_G: int64 [G], prompt tokens per group, each >= 1.
        group_R: int64 [R], the group of each row, ascending; a group may have no row.
        own: keys and values of what the rows hold so far; grows by the token that is read.
    """

    def __init__(
        self, prompts: PromptReader, lengths_G: Tensor, group_R: Tensor, own: OwnCache
    ) -> None:
        self._prompts = prompts
        self._own = own
        self._blocks = Blocks(lengths_G, group_R)
        self._few = len(group_R) <= FEW_ROWS
        self._of_blocks: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values that it reads: prompts, copies for uneven groups, own tokens."""
        copies = 0
        if self._blocks.group_B is not None:
            copies = sum(k.nbytes + v.nbytes for k, v in self._of_blocks.values())
        return self._prompts.nbytes + copies + self._own.nbytes

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        rows, heads, tokens, width = q.shape
        if tokens != 1:
            raise PolicyError(f"rows are sampled one token at a time, got {tokens}")
        k, v = self._own.append(layer, k, v)
        q_RKSD = q.reshape(rows, k.shape[1], heads // k.shape[1], width)
        out_RKSD = (self._in_one if self._few else self._in_two)(layer, q_RKSD, k, v, scale)
        return out_RKSD.reshape(rows, heads, 1, v.shape[-1])

    def _in_two(self, layer: int, q_RKSD: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Prompt and own tokens apart, joined by their log-sums: nothing wide is copied."""
        q_RKSD = q_RKSD * (scale * LOG2_E)
        prompt_k, prompt_v = self._prompt(layer)
        prompt = softmax(self._to_prompt(q_RKSD, prompt_k), prompt_v)
        own = softmax(q_RKSD @ k.transpose(-1, -2), v)
        return join(Part(*(self._blocks.out_of(x) for x in prompt)), own).out

    def _in_one(self, layer: int, q_RKSD: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """One softmax over both: half the operations, which is what a few rows cost."""
        blocks, q_RKSD = self._blocks, q_RKSD * scale
        prompt_k, prompt_v = self._prompt(layer)
        to_prompt = blocks.out_of(self._to_prompt(q_RKSD, prompt_k))
        weights = torch.cat([to_prompt, q_RKSD @ k.transpose(-1, -2)], dim=-1).softmax(dim=-1)
        on_prompt, on_own = weights.split([prompt_k.shape[2], k.shape[2]], dim=-1)
        out: Tensor = blocks.out_of(blocks.into(on_prompt) @ prompt_v) + on_own @ v
        return out

    def _to_prompt(self, q_RKSD: Tensor, prompt_k: Tensor) -> Tensor:
        """Scores [B, K, size * S, C] of each row's prompt."""
        scores_BKSC = self._blocks.into(q_RKSD) @ prompt_k.transpose(-1, -2)
        if self._blocks.padding_B11C is not None:
            scores_BKSC.masked_fill_(self._blocks.padding_B11C, float("-inf"))
        return scores_BKSC

    def _prompt(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B, K, C, D] of each block's prompt."""
        if layer not in self._of_blocks:  # read again at every token
            self._of_blocks[layer] = (
                self._blocks.of_blocks(self._prompts.keys_LGKCD[layer]),
                self._blocks.of_blocks(self._prompts.values_LGKCD[layer]),
            )
        return self._of_blocks[layer]


class AnswerReader:
    """Attends from whole answers, laid out one after another, to their prompt and themselves.

    Args:
        prompts: the reader that ran the prompts.
        lengths_G: int64 [G], prompt tokens per group, each >= 1.
        group_R: int64 [R], the group of each answer, ascending; a group may have none.
        lengths_R: int64 [R], tokens of each answer, each >= 1.
    """

    def __init__(
        self, prompts: PromptReader, lengths_G: Tensor, group_R: Tensor, lengths_R: Tensor
    ) -> None:
        self._prompts = prompts
        self._blocks = Blocks(lengths_G, torch.repeat_interleave(group_R, lengths_R))
        self._rows = Rows(lengths_R)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """[1, H, M, D] of the M tokens of all answers."""
        q_MHD, k_MKD, v_MKD = (x[0].transpose(0, 1) for x in (q, k, v))
        out = joint_attention(
            q_MHD,
            k_MKD,
            v_MKD,
            self._prompts.keys_LGKCD[layer],
            self._prompts.values_LGKCD[layer],
            self._blocks,
            self._rows,
            scale=scale,
        )
        return out.transpose(0, 1)[None]


Reader = PromptReader | NextReader | AnswerReader


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    reader: Reader | None = None,
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
    """Within it, the model's layers call the attention function above instead of their own.

    Setting it costs as much as a small layer does; a loop of forwards opens it once outside.
    """
    before = model.config._attn_implementation
    if before == NAME:
        yield
        return
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
