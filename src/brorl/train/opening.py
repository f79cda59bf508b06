"""The policy that settings name: from a checkpoint, a model's folder, or new; adapters put on."""

from pathlib import Path

import torch

from brorl.errors import ConfigError
from brorl.policy.checkpointing import checkpoint_layers
from brorl.policy.load import load_policy, tiny_policy
from brorl.policy.lora import add_lora, restore_lora
from brorl.policy.model import Policy
from brorl.policy.tiny import TinyShape
from brorl.seeds import derive_seed
from brorl.train.settings import TrainSettings


def open_weights(settings: TrainSettings, checkpoint: Path | None) -> Policy:
    """The policy as the trainer holds it.

    Args:
        settings: of the run.
        checkpoint: a folder to take the weights from instead of model.path; under lora the
            adapter alone is taken from it, beside the base of model.path.

    Raises:
        ConfigError: no policy named, or a device that is not there.
        PolicyError: see load_policy, add_lora, restore_lora and checkpoint_layers.
    """
    m, lora = settings.model, settings.lora
    if lora is None:
        policy = _plain(settings, checkpoint)
    else:
        policy = _plain(settings, None)
        add_lora(
            policy,
            rank=lora.rank,
            alpha=lora.alpha,
            target_modules=lora.target_modules,
            seed=derive_seed(settings.seed, "lora"),
        )
        if checkpoint is not None:
            restore_lora(policy, checkpoint)
    if m.gradient_checkpointing:
        checkpoint_layers(policy.model)
    return policy


def device_of(settings: TrainSettings) -> str:
    """The device that settings name; auto takes CUDA where there is one, else the CPU."""
    named = settings.model.device
    if named == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(named)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ConfigError(f"model.device: {named!r} cannot be used here: {reason}") from error
    return named


def _plain(settings: TrainSettings, checkpoint: Path | None) -> Policy:
    m, device = settings.model, device_of(settings)
    if checkpoint is not None:
        return load_policy(
            str(checkpoint), revision=None, dtype=m.dtype, device=device, trained_length=1
        )
    if m.path is not None:
        return load_policy(
            m.path, revision=m.revision, dtype=m.dtype, device=device, trained_length=1
        )
    if m.shape is None:
        raise ConfigError("no policy: set model.path (a folder or a hub name), or model.shape")
    shape = TinyShape(**m.shape.model_dump(exclude={"vocabulary"}))
    seed = derive_seed(settings.seed, "model")
    policy = tiny_policy(shape, seed=seed, device=device, trained_length=1)
    if m.shape.vocabulary != policy.vocabulary:
        raise ConfigError(
            f"model.shape.vocabulary is {m.shape.vocabulary}, the character tokenizer of a "
            f"tiny policy has {policy.vocabulary}"
        )
    return policy
