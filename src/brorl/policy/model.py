"""A causal LM and its tokenizer, as the engine and the trainer use them.

Axes:  G groups · R rows (answers) · T answer tokens · M real answer tokens · D width · V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.errors import ShapeError
from brorl.policy.fused_layer import fuse_layers
from brorl.policy.shared_prefix import (
    AnswerReader,
    NextReader,
    OwnCache,
    PromptReader,
    Reader,
    shared_attention,
)
from brorl.policy.speech import Speech
from brorl.policy.token_logprobs import TokenLogprobs, token_logprobs


class Prompts(NamedTuple):
    """Encoded prompts of G groups, to be read by any number of rows."""

    reader: PromptReader
    lengths_G: Tensor  # int64 [G]
    last_hidden_GD: Tensor  # [G, D], at each prompt's last token: it scores the first answer token


@dataclass(frozen=True)
class Policy:
    """A model in evaluation mode (no dropout, in training too) and how to talk to it.

    Attributes:
        model: a Hugging Face causal LM.
        tokenizer: its tokenizer.
        eos_ids: every token that ends an answer: the generation config's and the tokenizer's.
        source: where it came from, for the records.
    """

    model: Any
    tokenizer: Any
    eos_ids: frozenset[int]
    source: str

    def __post_init__(self) -> None:
        fuse_layers(self.model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    @property
    def vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def speech(self) -> Speech:
        return Speech(self.tokenizer)

    def encode(self, text: str) -> tuple[int, ...]:
        """See Speech.encode."""
        return self.speech.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See Speech.decode."""
        return self.speech.decode(ids)

    def decode_all(self, answers: Sequence[NDArray[np.int32]]) -> list[str]:
        """See Speech.decode_all."""
        return self.speech.decode_all(answers)

    def read_prompts(self, prompts: Sequence[Sequence[int]]) -> Prompts:
        """Run each prompt once. Gradients flow unless the caller turned them off."""
        lengths = torch.tensor([len(p) for p in prompts], device=self.device)
        width = int(lengths.max())
        ids = torch.zeros(len(prompts), width, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        positions = torch.arange(width, device=self.device)[None].expand(len(prompts), -1)
        reader = PromptReader()
        hidden = self._forward(ids.to(self.device), positions, reader)
        last = hidden[torch.arange(len(prompts), device=self.device), lengths - 1]
        return Prompts(reader, lengths, last)

    def read_answers(
        self, prompts: Prompts, group_R: Tensor, tokens_M: Tensor, lengths_R: Tensor
    ) -> Tensor:
        """Hidden states [M, D] of whole answers, one after another, each after its prompt.

        Args:
            prompts: of the groups.
            group_R: int64 [R], ascending.
            tokens_M: int64 [M], the answers' tokens, row after row, without padding.
            lengths_R: int64 [R], tokens per row, each >= 1; they sum to M.
        """
        reader = AnswerReader(prompts.reader, prompts.lengths_G, group_R, lengths_R)
        starts_R = lengths_R.cumsum(0) - lengths_R - prompts.lengths_G[group_R]
        steps_M = torch.arange(len(tokens_M), device=self.device)
        positions = steps_M - torch.repeat_interleave(starts_R, lengths_R)
        return self._forward(tokens_M[None], positions[None], reader)[0]

    def read_next(
        self, prompts: Prompts, group_R: Tensor, reader: NextReader, own: OwnCache, token_R: Tensor
    ) -> Tensor:
        """Hidden states [R, D] after one more token a row; the cache grows by one."""
        positions = prompts.lengths_G[group_R][:, None] + own.length
        hidden = self._forward(token_R[:, None], positions, reader)
        own.length += 1
        return hidden[:, 0]

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """float32 [R, V] for a wave's current tokens."""
        logits: Tensor = self.model.get_output_embeddings()(hidden_RD)
        return logits.float()

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        group_R: Tensor,
        tokens_RT: Tensor,
        lengths_R: Tensor,
        *,
        temperature: float,
    ) -> TokenLogprobs:
        """Log-probs and entropies of given answers, the prompt of each group read once.

        Args:
            prompts: G prompts, token ids.
            group_R: int64 [R], ascending, in [0, G).
            tokens_RT: int64 [R, T], padded on the right with any id.
            lengths_R: int64 [R], real tokens per row, >= 1. Padding is never read.
            temperature: the one the answers were sampled at.

        Returns:
            TokenLogprobs over the M = sum(lengths_R) real tokens, rows in order.

        Raises:
            ShapeError: no row, rows out of order, a group without a prompt, a length beyond T.
        """
        _check_rows(len(prompts), group_R, tokens_RT, lengths_R)
        read = self.read_prompts(prompts)
        real_RT = torch.arange(tokens_RT.shape[1], device=self.device) < lengths_R[:, None]
        hidden_MD = self._before_each_token(read, group_R, tokens_RT, lengths_R, real_RT)
        head = self.model.get_output_embeddings()
        return token_logprobs(
            hidden_MD,
            head.weight,
            getattr(head, "bias", None),
            tokens_RT[real_RT],
            temperature=temperature,
        )

    def _before_each_token(
        self,
        read: Prompts,
        group_R: Tensor,
        tokens_RT: Tensor,
        lengths_R: Tensor,
        real_RT: Tensor,
    ) -> Tensor:
        """[M, D]: the hidden state that scores each token; a row's first is scored by its prompt.

        The last token of a row scores nothing, so rows are read without it.
        """
        longer_R = lengths_R > 1
        if not bool(longer_R.any()):
            return read.last_hidden_GD[group_R]
        read_RT = real_RT.clone()
        read_RT[:, :-1] &= real_RT[:, 1:]
        read_RT[:, -1] = False
        hidden = self.read_answers(
            read, group_R[longer_R], tokens_RT[read_RT], lengths_R[longer_R] - 1
        )
        # Rows of [prompts' last states; answers' states] in the order of the tokens they score.
        at_RT = torch.empty_like(tokens_RT)
        at_RT[:, 0] = group_R
        after = torch.arange(len(hidden), device=self.device) + len(read.last_hidden_GD)
        at_RT[:, 1:][real_RT[:, 1:]] = after
        return torch.cat([read.last_hidden_GD, hidden]).index_select(0, at_RT[real_RT])

    def _forward(self, ids: Tensor, positions: Tensor, reader: Reader) -> Tensor:
        with shared_attention(self.model):
            hidden: Tensor = self.model.base_model(
                input_ids=ids, position_ids=positions, use_cache=False, reader=reader
            ).last_hidden_state
        return hidden


def _check_rows(prompts: int, group_R: Tensor, tokens_RT: Tensor, lengths_R: Tensor) -> None:
    if tokens_RT.ndim != 2 or not len(group_R) == len(lengths_R) == len(tokens_RT) >= 1:
        shapes = [tuple(x.shape) for x in (group_R, tokens_RT, lengths_R)]
        raise ShapeError(f"need group [R], tokens [R, T], lengths [R] with R >= 1, got {shapes}")
    if bool((group_R[1:] < group_R[:-1]).any()):
        raise ShapeError("rows must come sorted by group")
    if int(group_R[0]) < 0 or int(group_R[-1]) >= prompts:
        raise ShapeError(
            f"groups must be in [0, {prompts}), got {int(group_R[0])} ... {int(group_R[-1])}"
        )
    if int(lengths_R.min()) < 1 or int(lengths_R.max()) > tokens_RT.shape[1]:
        raise ShapeError(
            f"lengths must be in [1, {tokens_RT.shape[1]}], "
            f"got {int(lengths_R.min())} ... {int(lengths_R.max())}"
        )
