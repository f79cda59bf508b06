"""The text side of a policy in processes that hold no model: encodes prompts, decodes answers."""

from typing import Any

from brorl.errors import PolicyError
from brorl.policy.model import Policy


class NoModel:
    """Stands where a policy has its model; verl's workers hold that."""

    base_model = None


def reader(tokenizer: Any, source: str) -> Policy:
    """A policy that reads and writes text as the embedded trainer's does.

    Args:
        tokenizer: of the model.
        source: the model's folder or hub name; its generation config may name further EOS tokens.

    Raises:
        PolicyError: the tokenizer has no EOS token.
    """
    from transformers import GenerationConfig

    if tokenizer.eos_token_id is None:
        raise PolicyError(f"{source}: the tokenizer has no EOS token, so no answer could end")
    try:
        named = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        named = None
    listed = named if isinstance(named, list) else [named]
    ends = frozenset(int(i) for i in [*listed, tokenizer.eos_token_id] if i is not None)
    return Policy(NoModel(), tokenizer, ends, source)
