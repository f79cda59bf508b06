"""Open and save policies: Hugging Face checkpoints from a folder or a hub, or a tiny new one."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from brorl.errors import PolicyError
from brorl.policy.allocator import keep_freed_memory
from brorl.policy.lora import has_lora, save_lora
from brorl.policy.model import Policy
from brorl.policy.speech import Speech
from brorl.policy.support import check_shared_prefix
from brorl.policy.tiny import TinyShape, character_tokenizer, tiny_model

# Bars for loading a file belong to an interactive session, not to a run's own progress.
transformers_logging.disable_progress_bar()

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_policy(
    path: str, *, revision: str | None, dtype: str, device: str, trained_length: int
) -> Policy:
    """Open a causal LM and its tokenizer with Hugging Face's own loaders.

    Code that comes with a checkpoint is never run.

    Args:
        path: a folder, or a hub name.
        revision: branch, tag or commit of a hub model.
        dtype: "float32", "bfloat16" or "float16".
        device: a torch device string.
        trained_length: prompt + answer tokens that will be used, checked against what the
            model's positions and sliding windows allow.

    Raises:
        PolicyError: nothing there, not a causal LM, weights missing, no EOS, too short, or an
            architecture on which sharing a prompt is not exact.
    """
    if dtype not in DTYPES:
        raise PolicyError(f"model.dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    found = _place(path)
    common = {"revision": revision, "trust_remote_code": False}  # None would ask at the terminal
    try:
        config = AutoConfig.from_pretrained(found, **common)
        tokenizer = _open_tokenizer(found, common)
        opened: Any = AutoModelForCausalLM.from_pretrained(
            found, dtype=DTYPES[dtype], output_loading_info=True, **common
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise PolicyError(
            f"model.path: cannot open {path!r} as a causal LM: {_first(error)}"
        ) from error
    model, loading = opened
    architectures = getattr(config, "architectures", None) or []
    if architectures and type(model).__name__ not in architectures:
        raise PolicyError(
            f"model.path: {path!r} holds {', '.join(architectures)}, not a causal language model"
        )
    missing = sorted(loading["missing_keys"])
    if missing:  # they would be random numbers, and nothing would say so
        raise PolicyError(
            f"model.path: {path!r} lacks {len(missing)} of the weights of {type(model).__name__}, "
            f"the first is {missing[0]}"
        )
    return _ready(model.to(device), tokenizer, path, trained_length)


class WithoutModel(NamedTuple):
    """What can be known of a policy whose weights lie elsewhere."""

    speech: Speech
    eos_ids: frozenset[int]
    positions: int | None  # that the model's configuration allows; None where it does not say


def load_without_model(path: str, *, revision: str | None) -> WithoutModel:
    """Open a checkpoint's tokenizer and configuration, and none of its weights.

    Args:
        path: a folder, or a hub name.
        revision: branch, tag or commit of a hub model.

    Raises:
        PolicyError: nothing there, or no EOS.
    """
    found = _place(path)
    common: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(found, **common)
        tokenizer = _open_tokenizer(found, common)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise PolicyError(
            f"model.path: cannot open the tokenizer of {path!r}: {_first(error)}"
        ) from error
    try:
        generation = GenerationConfig.from_pretrained(found, **common)
    except OSError:  # a checkpoint need not have one; then the model's configuration stands in
        generation = config
    positions = getattr(config, "max_position_embeddings", None)
    return WithoutModel(Speech(tokenizer), _eos_ids(generation, tokenizer, path), positions)


def tiny_policy(shape: TinyShape, *, seed: int, device: str, trained_length: int) -> Policy:
    """A tiny, randomly initialised policy with a character tokenizer."""
    tokenizer = character_tokenizer()
    model = tiny_model(shape, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed)
    return _ready(model.to(device), tokenizer, "tiny", trained_length)


def save_policy(policy: Policy, folder: Path) -> None:
    """Write a checkpoint folder that plain `from_pretrained` opens."""
    if has_lora(policy):
        save_lora(policy, folder)
    else:
        policy.model.save_pretrained(folder)
    try:
        policy.tokenizer.save_pretrained(folder)
    except Exception as error:
        if type(error) is not Exception:  # tokenizers raises the bare class for a full disk
            raise
        raise OSError(f"tokenizer.json: {error}") from error


def _ready(model: Any, tokenizer: Any, source: str, trained_length: int) -> Policy:
    model.eval()  # no dropout, in training too: a rollout must be scored as it was sampled
    model.requires_grad_(True)
    eos_ids = _eos_ids(model.generation_config, tokenizer, source)
    if len(tokenizer) > model.get_output_embeddings().weight.shape[0]:
        raise PolicyError(
            f"{source}: the tokenizer knows {len(tokenizer)} tokens, the model only "
            f"{model.get_output_embeddings().weight.shape[0]}"
        )
    policy = Policy(model, tokenizer, eos_ids, source)
    if policy.device.type == "cpu":
        keep_freed_memory()
    check_length(policy, trained_length)
    check_shared_prefix(policy)
    return policy


def _place(path: str) -> str:
    """The folder where there is one, else a hub name. Raises PolicyError where it is neither."""
    folder = Path(path).expanduser()
    if not folder.exists() and (path.startswith((".", "/", "~")) or path.count("/") != 1):
        raise PolicyError(f"model.path: no folder {path!r}, and it is not a hub name (owner/name)")
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    if checkpoints and not (folder / "config.json").exists():
        raise PolicyError(
            f"model.path: {path} is a run; give one of its checkpoints, e.g. {checkpoints[-1]}, or "
            f"go on from it with init.from={path}"
        )
    return str(folder) if folder.exists() else path


def _first(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _open_tokenizer(found: str, common: dict[str, Any]) -> Any:
    """AutoTokenizer's choice, except where the folder itself says that tokenizer.json is all.

    For some model types AutoTokenizer puts a class of its own over tokenizer.json, with other
    rules of splitting: a policy would read its prompts anew after a save.
    """
    described = Path(found) / "tokenizer_config.json"
    if described.is_file() and (Path(found) / "tokenizer.json").is_file():
        named = json.loads(described.read_text()).get("tokenizer_class")
        if named in ("TokenizersBackend", "PreTrainedTokenizerFast"):
            return PreTrainedTokenizerFast.from_pretrained(found, **common)
    return AutoTokenizer.from_pretrained(found, **common)


def check_length(policy: Policy, tokens: int) -> None:
    """Refuse sequences longer than the model's positions, its sliding window, or its short RoPE.

    Raises:
        PolicyError: naming the limit.
    """
    config = policy.model.config
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and tokens > positions:
        raise PolicyError(
            f"prompt + answer need {tokens} positions, {policy.source} has {positions}"
        )
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    if window and slides and tokens > window:
        raise PolicyError(
            f"prompt + answer of {tokens} tokens exceed the sliding window of {window} of "
            f"{policy.source}; a shared prompt needs full attention"
        )

    rope = getattr(config, "rope_parameters", None) or {}
    short = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") == "longrope" and short is not None and tokens > short:
        raise PolicyError(
            f"prompt + answer of {tokens} tokens exceed the {short} positions up to which "
            f"{policy.source} rotates by its short factors; a shared prompt cannot change over"
        )


def _eos_ids(generation: Any, tokenizer: Any, source: str) -> frozenset[int]:
    """Every id that ends an answer; one that is missed shows as answers that never end.

    A model config names an EOS by default, true or not, so the tokenizer must name one itself.
    """
    if tokenizer.eos_token_id is None:
        raise PolicyError(f"{source}: the tokenizer has no EOS token, so no answer could end")
    named = getattr(generation, "eos_token_id", None)
    listed = named if isinstance(named, list) else [named]
    return frozenset(int(i) for i in [*listed, tokenizer.eos_token_id] if i is not None)
