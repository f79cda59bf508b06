"""Whether every prompt fits the model with its answer, and reads as what it says."""

import warnings
from collections.abc import Sequence
from typing import Any

from brorl.errors import DataError, PolicyError
from brorl.policy.load import check_length
from brorl.policy.model import Policy
from brorl.policy.token_bound import TokenBound
from brorl.tasks.problem import Problem

_LONG = 1 << 16
"""Characters from which on a prompt is measured before it is tokenised."""


def check_prompts(
    policy: Policy, problems: Sequence[Problem], *, split: str, new_tokens: int, key: str
) -> None:
    """Refuse prompts that leave no room for an answer; warn of those that hold <unk>.

    Args:
        policy: its limits and its tokenizer.
        problems: of one split.
        split: "training" or "held-out", for the message.
        new_tokens: of an answer at most.
        key: the setting that says so.

    Raises:
        DataError: the first prompt that does not fit, or that cannot be encoded.
    """
    bound = TokenBound(policy.tokenizer)
    unknown = _unknown_id(policy)
    holding: list[tuple[Problem, int]] = []
    for problem in problems:
        try:
            if len(problem.prompt) >= _LONG:
                check_length(policy, bound.fewest(_as_tokenised(policy, problem)) + new_tokens)
            ids = policy.encode(problem.prompt)
            check_length(policy, len(ids) + new_tokens)
        except PolicyError as error:
            raise DataError(
                f"{split} problem {problem.id}: {error}; lower {key} ({new_tokens}), or "
                "shorten the prompt"
            ) from error
        if unknown in ids:
            holding.append((problem, ids.count(unknown)))
    if holding:
        first = holding[0][0]
        warnings.warn(
            f"{len(holding)} of {len(problems)} {split} prompts hold characters that the tokenizer "
            f"does not know, {sum(n for _, n in holding)} in all: the policy reads each as "
            f"{policy.tokenizer.unk_token}; first {first.id}: {_examples(policy, first.prompt)}",
            stacklevel=2,
        )


def _as_tokenised(policy: Policy, problem: Problem) -> str:
    if not getattr(policy.tokenizer, "chat_template", None):
        return problem.prompt
    turns = [{"role": "user", "content": problem.prompt}]
    text: Any = policy.tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=False
    )
    return str(text)


def _unknown_id(policy: Policy) -> int | None:
    """The id of <unk>; None where there is none, or where it is a token with another use."""
    tokenizer = policy.tokenizer
    others = {tokenizer.bos_token_id, tokenizer.pad_token_id, *policy.eos_ids}
    return None if tokenizer.unk_token_id in others else tokenizer.unk_token_id


def _examples(policy: Policy, prompt: str) -> str:
    """Up to five unknown characters of a prompt, in ASCII."""
    unknown = policy.tokenizer.unk_token_id
    found: list[str] = []
    for character in dict.fromkeys(prompt):
        ids = policy.tokenizer(character, add_special_tokens=False).input_ids
        if unknown in ids:
            found.append(ascii(character))
    return ", ".join(found[:5]) or "a sequence of characters"
