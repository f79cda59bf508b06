"""LoRA through peft: the base is frozen, two thin matrices a projection learn.

A checkpoint holds the merged model, which any loader opens, and beside it `adapter/`, in peft's
own format: merging rounds, so a run goes on from base and adapter, bit for bit.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from brorl.errors import PolicyError
from brorl.policy.model import Policy

ADAPTER = "adapter"
_NAME = "default"  # of the one adapter, as peft calls it
_PREFIX = "base_model.model."  # before every name in peft's files
_BASE = "base.json"


def add_lora(
    policy: Policy, *, rank: int, alpha: int, target_modules: str | tuple[str, ...], seed: int
) -> None:
    """Freeze a policy and put an adapter beside the projections that are named; it begins as 0.

    W becomes W + (alpha / rank) B A, with A [rank, in] random and B [out, rank] zero.

    Args:
        policy: changed in place.
        rank: of the adapter.
        alpha: its scale is alpha / rank.
        target_modules: names of modules, or "all-linear": every linear map but the head.
        seed: of A.

    Raises:
        PolicyError: peft is missing, or no module bears such a name, or the head does.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise PolicyError("lora needs the extra: pip install 'brorl[peft]'") from error
    model = policy.model
    base = _hash_of(dict(model.named_parameters()))
    named = target_modules if isinstance(target_modules, str) else list(target_modules)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=named,
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()),  # GPT-2's projections
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model, _NAME)
    except ValueError as error:
        line = str(error).splitlines()[0][:200]
        raise PolicyError(f"lora.target_modules {named}: {line}") from error
    if any(_NAME in n for n, _ in model.get_output_embeddings().named_parameters()):
        raise PolicyError("lora.target_modules: the head is scored as one linear map; leave it out")
    for name, parameter in model.named_parameters():
        learns = "lora_" in name
        parameter.requires_grad_(learns)
        if learns:
            parameter.data = parameter.data.to(model.dtype)
    model.eval()
    model.brorl_base_sha256, model.brorl_lora = base, config


def has_lora(policy: Policy) -> bool:
    """Whether an adapter was added."""
    return hasattr(policy.model, "brorl_lora")


def save_lora(policy: Policy, folder: Path) -> None:
    """Write the merged model into a folder, and `adapter/` in it."""
    model = policy.model
    model.save_pretrained(folder, state_dict=merged(model))
    (folder / ADAPTER).mkdir()
    save_file(
        {f"{_PREFIX}{n}": t.contiguous() for n, t in _adapter(model).items()},
        folder / ADAPTER / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    dataclasses.replace(model.brorl_lora).save_pretrained(folder / ADAPTER)
    (folder / ADAPTER / _BASE).write_text(json.dumps({"sha256": model.brorl_base_sha256}) + "\n")


def restore_lora(policy: Policy, folder: Path) -> None:
    """Take the adapter of a checkpoint over; the policy has one of the same settings already.

    Raises:
        PolicyError: no adapter there, one of another shape, or one of another base.
    """
    try:
        saved = load_file(folder / ADAPTER / "adapter_model.safetensors")
        base = json.loads((folder / ADAPTER / _BASE).read_text())["sha256"]
    except (OSError, ValueError, KeyError) as error:
        raise PolicyError(f"{folder}: no adapter to go on from: {error!r:.200}") from error
    model = policy.model
    if base != model.brorl_base_sha256:
        raise PolicyError(
            f"model.path: the weights of {policy.source} have changed since {folder} was saved; "
            "its adapter belongs to the old ones"
        )
    own = _adapter(model)
    if {n.removeprefix(_PREFIX): t.shape for n, t in saved.items()} != {
        n: t.shape for n, t in own.items()
    }:
        raise PolicyError(f"{folder}: its adapter has another shape than lora asks for")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[f"{_PREFIX}{name}"])


@torch.no_grad()
def merged(model: Any) -> dict[str, Tensor]:
    """The state dict of the model without adapter: W + (alpha / rank) B A where one lies."""
    state: dict[str, Tensor] = model.state_dict()
    layers = {n: m for n, m in model.named_modules() if hasattr(m, "get_delta_weight")}
    out: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if "lora_" in name:
            continue
        owner, _, leaf = name.rpartition(".base_layer.")
        if owner in layers and leaf == "weight":
            delta = layers[owner].get_delta_weight(_NAME)
            tensor = (tensor.float() + delta.float()).to(tensor.dtype)
        out[name.replace(".base_layer.", ".")] = tensor
    return out


def _adapter(model: Any) -> dict[str, Tensor]:
    """The adapter's weights under peft's names, which do not say which adapter it is."""
    return {
        n.replace(f".{_NAME}", ""): p.detach() for n, p in model.named_parameters() if "lora_" in n
    }


def _hash_of(parameters: dict[str, Tensor]) -> str:
    """sha256 over names and bytes."""
    digest = hashlib.sha256()
    for name in sorted(parameters):
        digest.update(name.encode())
        whole = parameters[name].detach().cpu().contiguous().flatten()
        digest.update(whole.view(torch.uint8).numpy().data)
    return digest.hexdigest()
