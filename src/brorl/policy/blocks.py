"""Rows of groups laid out in blocks, so that one batched product serves all groups.

A row is whatever reads its group's prompt: an answer that is sampled, or a token of an answer
that is scored. Groups of equal size are a block each; of uneven ones the small do not pay for
the widest.

Axes:  G groups · R rows · B blocks of rows of one group · K key-value heads · S query heads of a
       key-value head · D width of a head · C prompt tokens
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_COPY = 16  # rows whose attention takes as long as copying their prompt's keys and values


class Blocks:
    """Where each row lies, and which prompt each block reads.

    Args:
        lengths_G: int64 [G], prompt tokens per group, each >= 1.
        group_R: int64 [R], the group of each row, ascending; a group may have no row.

    Attributes:
        group_B: int64 [B], the group of each block; None where block b is group b.
        padding_B11C: bool, True on prompt positions beyond a group's prompt; None without any.
    """

    def __init__(self, lengths_G: Tensor, group_R: Tensor) -> None:
        counts_G = torch.bincount(group_R, minlength=len(lengths_G))
        self._size = block_size(counts_G.tolist())
        blocks_G = (counts_G + self._size - 1) // self._size
        self._blocks = int(blocks_G.sum())
        self._rows = len(group_R)
        self._place_R = None
        if self._blocks * self._size != self._rows:
            first_G = blocks_G.cumsum(0) - blocks_G
            slot_R = torch.arange(self._rows, device=group_R.device)
            slot_R = slot_R - (counts_G.cumsum(0) - counts_G)[group_R]
            self._place_R = first_G[group_R] * self._size + slot_R
        one_each = self._blocks == len(lengths_G) and bool((blocks_G == 1).all())
        groups = torch.arange(len(lengths_G), device=group_R.device)
        self.group_B = None if one_each else torch.repeat_interleave(groups, blocks_G)
        length_B = lengths_G if self.group_B is None else lengths_G[self.group_B]
        columns = torch.arange(int(lengths_G.max()), device=lengths_G.device)
        padding_BC = columns >= length_B[:, None]
        self.padding_B11C = padding_BC[:, None, None] if bool(padding_BC.any()) else None

    def into(self, x_RKSD: Tensor) -> Tensor:
        """[R, K, S, D] to [B, K, size * S, D]: the rows of a block beside each other."""
        _, kv_heads, seats, width = x_RKSD.shape
        if self._place_R is not None:
            spread = x_RKSD.new_zeros(self._blocks * self._size, kv_heads, seats, width)
            x_RKSD = spread.index_copy_(0, self._place_R, x_RKSD)
        x = x_RKSD.view(self._blocks, self._size, kv_heads, seats, width).transpose(1, 2)
        return x.reshape(self._blocks, kv_heads, self._size * seats, width)

    def out_of(self, x_BKSD: Tensor) -> Tensor:
        """The inverse of `into`."""
        _, kv_heads, seats, width = x_BKSD.shape
        x = x_BKSD.view(self._blocks, kv_heads, self._size, seats // self._size, width)
        x = x.transpose(1, 2).reshape(-1, kv_heads, seats // self._size, width)
        return x if self._place_R is None else x.index_select(0, self._place_R)

    def of_blocks(self, x_GKCD: Tensor) -> Tensor:
        """Keys or values of each block's prompt; a copy only for groups of several blocks."""
        return x_GKCD if self.group_B is None else x_GKCD[self.group_B]

    def to_groups(self, x_BKCD: Tensor, groups: int) -> Tensor:
        """Sums over the blocks of each group: what `of_blocks` does to gradients."""
        if self.group_B is None:
            return x_BKCD
        summed = x_BKCD.new_zeros(groups, *x_BKCD.shape[1:])
        return summed.index_add_(0, self.group_B, x_BKCD)


def block_size(counts_G: Sequence[int]) -> int:
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
