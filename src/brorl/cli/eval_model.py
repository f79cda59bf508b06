"""The model of an evaluation: from a path, a hub name or a run, opened and identified."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from brorl.errors import ConfigError, DataError, PolicyError
from brorl.evaluate.results import ModelSource
from brorl.policy.load import check_length, load_policy
from brorl.policy.model import Policy
from brorl.policy.speech import Speech
from brorl.record.rundir import CONFIG
from brorl.train.checkpoint import find_checkpoint, open_checkpoint
from brorl.train.environment import weights_hash
from brorl.train.recipe import load_settings

CONTEXT = 32_768  # tokens: the paper's, arXiv:2510.01180v1, App. D
RESERVED = 2_048  # of them for the prompt, so that the limit on answers is the same for all suites


class Opened(NamedTuple):
    """A policy and how to name it."""

    policy: Policy
    source: ModelSource


def open_model(
    model: str, *, revision: str | None, dtype: str | None, device: str, plain: bool
) -> Opened:
    """Open MODEL.

    Args:
        model: a checkpoint folder, a hub name, or a run (its newest complete checkpoint).
        revision: of a hub model.
        dtype: None for a run's own, else float32 on the CPU and bfloat16 elsewhere.
        device: a torch device, or "auto".
        plain: send prompts as they are, even if the tokenizer has a chat template.

    Raises:
        ConfigError, DataError, PolicyError: nothing there, damaged, or not supported.
    """
    place = _device(device)
    path, step = Path(model), None
    if (path / CONFIG).is_file():
        checkpoint = open_checkpoint(find_checkpoint(path))
        dtype = dtype or load_settings(path / CONFIG, (), may_change=()).model.dtype
        folder, step = str(checkpoint.folder), checkpoint.step
    else:
        folder = model
    dtype = dtype or ("float32" if place == "cpu" else "bfloat16")
    policy = load_policy(folder, revision=revision, dtype=dtype, device=place, trained_length=1)
    if plain:
        policy.tokenizer.chat_template = None
    source = ModelSource(
        source=model,
        revision=revision,
        step=step,
        weights_sha256=weights_hash(policy),
        dtype=dtype,
    )
    return Opened(policy, source)


def template_hash(policy: Policy | Speech) -> str | None:
    """SHA-256 of the chat template's text; None where prompts go in as they are."""
    template = getattr(policy.tokenizer, "chat_template", None)
    return hashlib.sha256(str(template).encode()).hexdigest() if template else None


def new_token_limit(policy: Policy, prompts: Iterable[str], wanted: int | None) -> int:
    """How long an answer may be: what the user asks for, else what the paper's context leaves.

    Without a wish it is 32,768 - 2,048, or what the model's positions leave to the longest prompt
    where that is less.

    Raises:
        DataError: the longest prompt leaves no room for `wanted` tokens, or for one.
    """
    longest = max(len(policy.encode(prompt)) for prompt in prompts)
    limit = wanted
    if limit is None:
        positions = getattr(policy.model.config, "max_position_embeddings", None) or CONTEXT
        limit = max(1, min(CONTEXT - RESERVED, positions - longest))
    try:
        check_length(policy, longest + limit)
    except PolicyError as error:
        raise DataError(f"a prompt of {longest} tokens and {limit} new ones: {error}") from error
    return limit


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=torch.device(name))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ConfigError(f"--device {name} cannot be used here: {reason}") from error
    return name
