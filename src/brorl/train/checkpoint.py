"""checkpoints/step-000123/: a Hugging Face checkpoint plus what the trainer needs to go on.

Written aside, hashed, flushed, then renamed: complete or absent, never half. A folder that a
kill left aside begins with a dot and is swept away on resume.
"""

import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError

from brorl.errors import DataError, RunError
from brorl.policy.load import save_policy
from brorl.policy.model import Policy
from brorl.record.files import (
    file_hash,
    remove_tree,
    sweep_asides,
    sync_folder,
    sync_tree,
    write_json,
)
from brorl.rollout.engine import Completion, Stop
from brorl.train.groups import Group, Sample
from brorl.verify.verdict import Kind, Verdict

FORMAT = 1
_MANIFEST, _STATE, _OPTIMIZER = "manifest.json", "trainer/state.json", "trainer/optimizer.pt"
_REFERENCE, _CARRIED = "reference", "trainer/carried.json"
_READ_BY_LOADERS = {".json", ".safetensors", ".bin", ".pt", ".model", ".jinja", ".py", ".txt"}
_NAME = re.compile(r"step-(\d{6,})")


class Checkpoint(NamedTuple):
    """An opened checkpoint folder, its manifest verified."""

    folder: Path
    step: int
    state: dict[str, Any]

    @property
    def reference(self) -> Path | None:
        """Folder of the reference policy's weights, where there was one."""
        folder = self.folder / _REFERENCE
        return folder if folder.is_dir() else None


def save_checkpoint(
    run: Path,
    step: int,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    reference: Policy | None,
    carried: Sequence[Group],
    state: Mapping[str, Any],
) -> Path:
    """Write a checkpoint; atomic. Raises RunError (disk full, unwritable); older ones stay."""
    folder = checkpoint_path(run, step)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        if aside.exists():
            remove_tree(aside)
        (aside / "trainer").mkdir(parents=True)
        save_policy(policy, aside)
        torch.save(optimizer.state_dict(), aside / _OPTIMIZER)
        (aside / _STATE).write_text(json.dumps({"format": FORMAT, "step": step, **state}))
        (aside / _CARRIED).write_text(json.dumps([_group_out(g) for g in carried]))
        if reference is not None:
            save_policy(reference, aside / _REFERENCE)
        files = sorted(p for p in aside.rglob("*") if p.is_file())
        hashes = {p.relative_to(aside).as_posix(): file_hash(p) for p in files}
        write_json(aside / _MANIFEST, {"format": FORMAT, "step": step, "sha256": hashes})
        sync_tree(aside)
        if folder.exists():
            remove_tree(folder)
        aside.rename(folder)
        sync_folder(folder.parent)
    except (
        OSError,
        RuntimeError,
        SafetensorError,
    ) as error:  # each library its own
        shutil.rmtree(aside, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0][:200]
        if shutil.disk_usage(run).free < 1 << 16:  # torch and safetensors say it in words of theirs
            reason = "no space left on device"
        raise RunError(
            f"checkpoint of step {step} could not be written to {folder}: {reason}; earlier "
            f"checkpoints are intact, go on with `brorl resume {run}`"
        ) from error
    return folder


def open_checkpoint(folder: Path) -> Checkpoint:
    """Verify a checkpoint folder against its manifest.

    Raises:
        DataError: no manifest (foreign or half), a file missing or altered, one added that a
            loader would read, or the folder of one step under the name of another.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        hashes = dict(manifest["sha256"])
        version = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{folder} is not a brorl checkpoint: no readable {_MANIFEST}") from error
    if version != FORMAT:
        raise DataError(f"{folder}: checkpoint format {version!r}, this version reads {FORMAT}")
    for name, want in {_STATE: "", _OPTIMIZER: "", _CARRIED: "", **hashes}.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{folder}: {name} is missing")
        if file_hash(path) != want:
            raise DataError(f"{folder}: {name} differs from what was saved (truncated or altered)")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in _READ_BY_LOADERS and name not in hashes and name != _MANIFEST:
            raise DataError(f"{folder}: {name} was not saved with it; take it out")
    try:
        state = json.loads((folder / _STATE).read_text())
        step = int(state["step"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{folder}: {_STATE} is not a trainer's state: {error!r:.200}") from error
    named = _NAME.fullmatch(folder.name)
    if named and int(named[1]) != step:
        raise DataError(f"{folder}: it holds step {step}; give it that name again")
    return Checkpoint(folder, step, state)


def load_optimizer(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Restore AdamW's moments. Only tensors and plain values are read, never code."""
    path = checkpoint.folder / _OPTIMIZER
    try:
        saved = torch.load(path, weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"{path}: not an optimizer's state: {reason}") from error
    try:
        optimizer.load_state_dict(saved)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{checkpoint.folder}: optimizer of another model: {error}") from error


def load_carried(checkpoint: Checkpoint, problems: Mapping[str, Any]) -> list[Group]:
    """Carried groups, joined to their problems by id."""
    rows = json.loads((checkpoint.folder / _CARRIED).read_text())
    return [_group_in(row, problems) for row in rows]


def checkpoint_path(run: Path, step: int) -> Path:
    """Where the checkpoint after `step` finished steps lies."""
    return run / "checkpoints" / f"step-{step:06d}"


def checkpoint_steps(run: Path) -> list[int]:
    """Steps of complete checkpoints, ascending."""
    folder = run / "checkpoints"
    names = (_NAME.fullmatch(p.name) for p in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(m.group(1)) for m in names if m)


def find_checkpoint(path: Path) -> Path:
    """A checkpoint folder, from itself or from a run (its newest). Raises DataError."""
    if (path / _MANIFEST).is_file():
        return path
    steps = checkpoint_steps(path)
    if not steps:
        raise DataError(f"{path} is neither a checkpoint nor a run with one")
    return checkpoint_path(path, steps[-1])


def set_aside(run: Path, step: int) -> Path:
    """Rename a checkpoint that is damaged or not this run's: no count of checkpoints has it."""
    folder = checkpoint_path(run, step)
    aside = folder.with_name(f"unusable-{folder.name}")
    if aside.exists():
        remove_tree(aside)
    return folder.rename(aside)


def sweep(run: Path, saved: int, keep: int, best: int | None) -> None:
    """Remove what was saved before, but for `keep` checkpoints in all and the best one.

    Only steps before the one just saved are looked at: a folder with a later name is none of this
    session's, and must not push out the one checkpoint that is known to be whole.
    """
    earlier = [step for step in checkpoint_steps(run) if step < saved]
    for step in earlier[: max(0, len(earlier) - (keep - 1))]:
        if step != best:
            remove_tree(checkpoint_path(run, step))


def sweep_leftovers(run: Path) -> None:
    """Remove what interrupted writes left aside."""
    sweep_asides(run / "checkpoints")
    sweep_asides(run)


def _group_out(group: Group) -> dict[str, Any]:
    return {
        "id": group.id,
        "problem": group.problem.id,
        "prompt": list(group.prompt),
        "seed": group.seed,
        "born": group.born,
        "samples": [_sample_out(s) for s in group.samples],
    }


def _sample_out(s: Sample) -> dict[str, Any]:
    c, v = s.completion, s.verdict
    return {
        "index": s.index,
        "tokens": c.tokens.tolist(),
        "logprobs": [float(x) for x in c.logprobs],  # float32 survives a round trip by repr
        "stop": str(c.stop),
        "version": c.policy_version,
        "text": s.text,
        "verdict": [str(v.kind), v.score, v.extracted, v.reason],
        "raw": s.raw,
        "rewarded": s.rewarded,
    }


def _group_in(row: Mapping[str, Any], problems: Mapping[str, Any]) -> Group:
    if row["problem"] not in problems:
        raise DataError(f"carried group {row['id']}: its problem is not in the training data")
    samples = []
    for s in row["samples"]:
        tokens = np.array(s["tokens"], dtype=np.int32)
        completion = Completion(
            tokens,
            np.array(s["logprobs"], dtype=np.float32),
            np.ones(len(tokens), dtype=bool),
            Stop(s["stop"]),
            int(s["version"]),
        )
        kind, score, extracted, reason = s["verdict"]
        verdict = Verdict(Kind(kind), float(score), extracted, reason)
        sample = Sample(int(s["index"]), completion, s["text"], verdict, float(s["raw"]))
        sample.rewarded = bool(s["rewarded"])
        samples.append(sample)
    prompt = tuple(int(i) for i in row["prompt"])
    return Group(
        row["id"], problems[row["problem"]], prompt, int(row["seed"]), int(row["born"]), samples
    )
