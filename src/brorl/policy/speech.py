"""How a policy is talked to: prompts to token ids, answers to text. Needs a tokenizer, no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.errors import PolicyError


@dataclass(frozen=True)
class Speech:
    """A tokenizer, and the chat template that it may have."""

    tokenizer: Any

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
            ids = self._open(text)
        if not text or not ids:
            raise PolicyError(f"a prompt needs at least one token, got none from {text[:80]!r}")
        bos = self.tokenizer.bos_token_id
        if bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos:
            raise PolicyError(
                f"prompt begins with two BOS tokens ({bos}); take the BOS out of the chat template "
                f"or out of the text {text[:80]!r}"
            )
        return tuple(int(i) for i in ids)

    def _open(self, text: str) -> list[int]:
        """Ids of a text that goes on: without the EOS with which some tokenizers close it."""
        ids: list[int] = self.tokenizer(text).input_ids
        bare: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        if len(ids) > len(bare) and ids[-1] == self.tokenizer.eos_token_id:
            return ids if bare and ids[-len(bare) :] == bare else ids[:-1]
        return ids

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
