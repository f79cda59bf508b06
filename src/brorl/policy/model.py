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

from brorl.errors import PolicyError, ShapeError
from brorl.policy.shared_prefix import GroupReader, OwnCache, PromptReader, shared_attention
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

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    @property
    def vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a prompt, through the chat template where the tokenizer has one.

        Raises:
            PolicyError: an empty prompt, or two BOS tokens in a row (a template that already
                holds one, tokenised again with special tokens).
        """
        if getattr(self.tokenizer, "chat_template", None):
            ids = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        else:
            ids = self.tokenizer(text).input_ids
            if ids and ids[-1] == self.tokenizer.eos_token_id != self.tokenizer.bos_token_id:
                ids = ids[:-1]  # some tokenizers close every text; a prompt is not closed
        if not ids:
            raise PolicyError(f"a prompt needs at least one token, got none from {text[:80]!r}")
        bos = self.tokenizer.bos_token_id
        if bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos:
            raise PolicyError(
                f"prompt begins with two BOS tokens ({bos}); take the BOS out of the chat template "
                f"or out of the text {text[:80]!r}"
            )
        return tuple(int(i) for i in ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text for graders and people; never tokenised again."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def decode_all(self, answers: Sequence[NDArray[np.int32]]) -> list[str]:
        """`decode` of many answers; equal token sequences, common in a group, are decoded once."""
        known: dict[bytes, str] = {}
        texts = []
        for tokens in answers:
            key = tokens.tobytes()
            if key not in known:
                known[key] = self.decode(tokens.tolist())
            texts.append(known[key])
        return texts

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

    def read_answers(self, prompts: Prompts, group_R: Tensor, tokens_RT: Tensor) -> Tensor:
        """Hidden states of whole answers, each after its group's prompt: [R, T, D]."""
        reader = GroupReader(prompts.reader, prompts.lengths_G, group_R, own=None)
        steps = torch.arange(tokens_RT.shape[1], device=self.device)
        return self._forward(tokens_RT, prompts.lengths_G[group_R][:, None] + steps, reader)

    def read_next(
        self, prompts: Prompts, group_R: Tensor, reader: GroupReader, own: OwnCache, token_R: Tensor
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
        """
        if bool((group_R[1:] < group_R[:-1]).any()) or bool((lengths_R < 1).any()):
            raise ShapeError("rows must come sorted by group and hold at least one token each")
        read = self.read_prompts(prompts)
        first_R1D = read.last_hidden_GD[group_R][:, None]
        columns = tokens_RT.shape[1]
        real_RT = torch.arange(columns, device=self.device) < lengths_R[:, None]
        if columns > 1:
            # Padding is replaced by a real id: what lies there must not reach the embedding.
            safe = torch.where(real_RT[:, :-1], tokens_RT[:, :-1], 0)
            hidden_RTD = torch.cat([first_R1D, self.read_answers(read, group_R, safe)], dim=1)
        else:
            hidden_RTD = first_R1D
        head = self.model.get_output_embeddings()
        return token_logprobs(
            hidden_RTD[real_RT],
            head.weight,
            getattr(head, "bias", None),
            tokens_RT[real_RT],
            temperature=temperature,
        )

    def _forward(
        self, ids: Tensor, positions: Tensor, reader: PromptReader | GroupReader
    ) -> Tensor:
        with shared_attention(self.model):
            hidden: Tensor = self.model.base_model(
                input_ids=ids, position_ids=positions, use_cache=False, reader=reader
            ).last_hidden_state
        return hidden


def plain_logprobs(policy: Policy, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
    """The slow, obvious way: float32 [T] log-probs of one answer by one ordinary full forward.

    The oracle of the start-up check and of the tests; temperature 1.
    """
    ids = torch.tensor([[*prompt, *answer]], device=policy.device)
    logits = policy.model(input_ids=ids, use_cache=False).logits[0].float()
    logp = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return logp.gather(-1, ids[0, len(prompt) :, None])[:, 0]  # type: ignore[no-any-return]


def check_shared_prefix(policy: Policy) -> None:
    """Score a fixed probe both ways; refuse the model, by name, where they differ.

    What this rules out: an architecture that does not hand our attention its keys and values,
    a head that is more than a linear map, sliding windows, position schemes that count padding.

    Raises:
        PolicyError: naming the architecture and the difference.
    """
    config = policy.model.config
    name = type(policy.model).__name__
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(policy.vocabulary, (2, 9), generator=generator).tolist()
    prompts, answers = [ids[0][:5], ids[1][:3]], [ids[0][5:], ids[1][3:7]]
    try:
        with torch.no_grad():
            got = policy.score(
                prompts,
                torch.tensor([0, 1], device=policy.device),
                torch.tensor(answers, device=policy.device),
                torch.tensor([4, 4], device=policy.device),
                temperature=1.0,
            ).logp_M
            want = torch.cat(
                [plain_logprobs(policy, p, a) for p, a in zip(prompts, answers, strict=True)]
            )
    except (PolicyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise PolicyError(f"{name} ({config.model_type}) cannot share prompts: {error}") from error
    gap = float((got - want).abs().max())
    tolerance = 1e-3 if policy.model.dtype == torch.float32 else 0.1
    if not gap <= tolerance:
        raise PolicyError(
            f"{name} ({config.model_type}) is not supported: log-probs with a shared prompt differ "
            f"from a plain forward by {gap:.2g} nats, need at most {tolerance}"
        )
