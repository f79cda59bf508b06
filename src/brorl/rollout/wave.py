"""The answers of a wave while they are sampled: tokens, log-probs, and which have ended.

Axes:  R rows of the wave · B rows still in the batch · T answer tokens
"""

import math

import torch
from torch import Tensor


class Wave:
    """Answers in the making: all R of a wave, and of these the B rows still in the batch.

    Args:
        rows: R.
        limit: tokens of an answer, at most.
        eos_ids: tokens that end one.
        device: of everything here.
    """

    def __init__(
        self, rows: int, limit: int, eos_ids: frozenset[int], device: torch.device
    ) -> None:
        self.tokens_RT = torch.zeros(rows, limit, dtype=torch.int64, device=device)
        self.logp_RT = torch.zeros(rows, limit, dtype=torch.float32, device=device)
        self.length_R = torch.full((rows,), limit, dtype=torch.int64, device=device)
        self.ended_R = torch.zeros(rows, dtype=torch.bool, device=device)
        self._eos = torch.tensor(sorted(eos_ids), device=device)
        self._batch: Tensor | slice = slice(None)  # rows in the batch; all of them at first
        self._length_B = self.length_R.clone()
        self._ended_B = self.ended_R.clone()
        self._left = rows

    def put(self, t: int, token_B: Tensor, logp_B: Tensor) -> int | None:
        """Note token t of each row; how many have not ended. None where a log-prob is not finite.

        What a row draws after its end is noted too and cut off later. Waits for the device once.
        """
        self.tokens_RT[self._batch, t] = token_B
        self.logp_RT[self._batch, t] = logp_B
        eos = self._eos
        ends_B = token_B == eos if len(eos) == 1 else torch.isin(token_B, eos)
        ends, total = torch.stack([ends_B.sum(), logp_B.sum()]).tolist()
        if not math.isfinite(total):
            return None
        if ends:
            ends_B &= ~self._ended_B
            self._length_B[ends_B] = t + 1
            self._ended_B |= ends_B
            self._left = len(token_B) - int(self._ended_B.sum())
        return self._left

    def onward(self, token_B: Tensor) -> Tensor:
        """The tokens to read next: rows that have ended all read the same, as nobody looks."""
        if self._left == len(token_B):
            return token_B
        return torch.where(self._ended_B, self._eos[0], token_B)

    def compact(self) -> Tensor:
        """Leave the rows that have ended behind; places in the batch of those that stay."""
        self.settle()
        stay = (~self._ended_B).nonzero()[:, 0]
        self._batch = stay if isinstance(self._batch, slice) else self._batch[stay]
        self._length_B, self._ended_B = self._length_B[stay], self._ended_B[stay]
        return stay

    def settle(self) -> None:
        """Bring what is known of the batch into that of the wave."""
        self.length_R[self._batch] = self._length_B
        self.ended_R[self._batch] = self._ended_B
