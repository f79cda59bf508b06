"""Runs that arms begin from, made once a seed and kept in the cache by content.

A start is an ordinary run, so one that was interrupted goes on. Its folder's name is a hash of all
that its weights depend on; two studies that ask for the same start share it. Under a budget, which
may end it early, a study keeps its starts to itself.
"""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import brorl
from brorl.record.files import file_hash
from brorl.studies.runner.spec import RunPlan
from brorl.train.recipe import load_recipe, plain_settings

_NOT_CONTENT = ("name", "run_dir", "logger", "keep_checkpoints", "max_seconds", "save_every")


def start_folder(plan: RunPlan, own: Path | None = None) -> Path | None:
    """Where the run lies that a run begins from, made or not; None where it begins from none.

    Args:
        plan: of the run.
        own: folder for the starts of this study alone; None: the cache.
    """
    if plan.start is None:
        return None
    import torch
    import transformers

    from brorl.train.warmstart import cache_root

    settings = plain_settings(load_recipe(plan.recipe, plan.start))
    content = {
        "settings": {k: v for k, v in settings.items() if k not in _NOT_CONTENT},
        "files": {name: _content(name) for name in _paths(settings)},
        "versions": [brorl.__version__, torch.__version__, transformers.__version__],
        "machine": [platform.machine(), str(torch.backends.cpu.get_cpu_capability())],
    }
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]
    return (cache_root() / "starts" if own is None else own) / key


def _paths(settings: dict[str, Any]) -> list[str]:
    """Files and folders that the settings name; a hub's name is none of ours."""
    named = (settings["model"]["path"], settings["data"]["train"], settings["data"]["eval"])
    return [name for name in named if name and Path(name).exists()]


def _content(name: str) -> list[Any]:
    """Of a file its hash; of a model's folder each file with size and time, not gigabytes read."""
    path = Path(name)
    if path.is_file():
        return [file_hash(path)]
    found = sorted(p for p in path.rglob("*") if p.is_file())
    return [[str(p.relative_to(path)), p.stat().st_size, p.stat().st_mtime_ns] for p in found]
