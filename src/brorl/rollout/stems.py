"""Rows of a wave that are still word for word the same, run through the model once.

All rows of a group begin as one: their prompt. As tokens are drawn they part, and at N = 512 many
stay together for some tokens, or to the end where answers are short. A stem is a distinct answer so
far; its rows draw from the same logits, each with its own random number.

Axes:  G groups · B rows in the batch · S stems
"""

import torch
from torch import Tensor

APART = 0.8
"""Stems over rows from which every row is a stem of its own: following them costs more than it
saves, since keys and values move whenever rows part."""


class Stems:
    """Which rows have drawn the same tokens so far.

    Args:
        group_B: int64 [B], the group of each row, ascending.
        groups: G; each is a stem at first, without a token.

    Attributes:
        of_B: int64 [B], the stem of each row.
        group_S: int64 [S], the group of each stem, ascending.
        token_S: int64 [S], the last token of each stem; empty before the first.
    """

    def __init__(self, group_B: Tensor, groups: int) -> None:
        self.of_B = group_B
        self.group_S = torch.arange(groups, device=group_B.device)
        self.token_S = group_B.new_empty(0)
        self._apart = False

    def grow(self, token_B: Tensor, vocabulary: int, stay: Tensor | None) -> Tensor | None:
        """Every row has drawn a token; those that drew differently part.

        Args:
            token_B: int64 [B], of the rows that go on.
            vocabulary: above every token.
            stay: places of these rows among those of the last call; None where all go on.

        Returns:
            int64 [S], the old stem of each new one; None where these are the old ones in order.
        """
        if stay is not None:
            self.of_B = self.of_B[stay]
        if self._apart:
            if stay is not None:
                return self._rows(token_B)
            self.token_S = token_B
            return None
        drawn, of_B = torch.unique(self.of_B * vocabulary + token_B, return_inverse=True)
        if len(drawn) > APART * len(token_B):
            self._apart = True
            return self._rows(token_B)
        parents: Tensor = drawn // vocabulary
        self.of_B, self.token_S = of_B, drawn % vocabulary
        whole = torch.arange(len(self.group_S), device=parents.device)
        if len(parents) == len(whole) and torch.equal(parents, whole):
            return None
        self.group_S = self.group_S[parents]
        return parents

    def _rows(self, token_B: Tensor) -> Tensor:
        """Each row a stem."""
        parents = self.of_B
        self.group_S, self.token_S = self.group_S[parents], token_B
        self.of_B = torch.arange(len(token_B), device=token_B.device)
        return parents
