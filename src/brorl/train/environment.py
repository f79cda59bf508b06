"""What a run ran on: versions, hardware, threads, where the model came from, state of the code."""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import brorl
from brorl.policy.model import Policy
from brorl.tasks.problem import Problem

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "reasoning-gym", "math-verify")
DECIDES_BITS = ("python", "versions", "machine", "device", "threads")
"""Fields that a bit-identical resume needs unchanged."""


def environment(policy: Policy, revision: str | None, data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values for environment.json."""
    return {
        "brorl": brorl.__version__,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "machine": f"{platform.machine()} {_cpu_flags()}",
        "cpus": os.cpu_count(),
        "device": str(policy.device),
        "device_name": _device_name(policy.device),
        "threads": torch.get_num_threads(),
        "model": {
            "source": policy.source,
            "revision": revision,
            "weights_sha256": weights_hash(policy),
            "parameters": sum(p.numel() for p in policy.model.parameters()),
        },
        "data": dict(data),
        "git": _git_state(),
    }


def changes(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs of the things that decide bits, each as `name: then, now`."""
    return [
        f"{name}: {recorded.get(name)!r} then, {now.get(name)!r} now"
        for name in DECIDES_BITS
        if recorded.get(name) != now.get(name)
    ]


def identity(recorded: Mapping[str, Any], may_change: Sequence[str]) -> str:
    """What makes a checkpoint one of this run: sha256 of the settings and data it began with.

    Args:
        recorded: environment.json of the run.
        may_change: settings that do not decide the numbers.
    """
    apart = {*may_change, "name", "run_dir"}
    decides = {k: v for k, v in recorded["settings"].items() if k not in apart}
    content = json.dumps([decides, recorded["data"]["sha256"]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def data_hash(problems: Sequence[Problem]) -> str:
    """sha256 over ids, prompts and golds, in order."""
    digest = hashlib.sha256()
    for p in problems:
        digest.update(repr((p.id, p.prompt, p.gold)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def weights_hash(policy: Policy) -> str:
    """sha256 over the names and bytes of all parameters."""
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _cpu_flags() -> str:
    """The vector capability that torch's kernels choose by."""
    return str(torch.backends.cpu.get_cpu_capability())


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _git_state() -> dict[str, Any] | None:
    """Commit of the working copy this package runs from; None for an installed package."""
    folder = Path(brorl.__file__).resolve().parent

    def ask(*words: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return result.stdout.strip()

    try:
        if not ask("ls-files", "__init__.py"):
            return None
        return {"commit": ask("rev-parse", "HEAD"), "changed": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
