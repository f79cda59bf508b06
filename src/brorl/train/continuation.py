"""What a run that goes on finds in its folder, and whether that is what it left there."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from brorl.errors import ConfigError, DataError
from brorl.policy.model import Policy
from brorl.record.metrics import FILE as METRICS
from brorl.record.metrics import MetricsMark
from brorl.record.rundir import CONFIG, ENVIRONMENT
from brorl.train.checkpoint import (
    Checkpoint,
    checkpoint_path,
    checkpoint_steps,
    open_checkpoint,
    set_aside,
)
from brorl.train.environment import changes, environment, weights_hash
from brorl.train.progress import Progress
from brorl.train.recipe import plain_settings
from brorl.train.settings import TrainSettings

MAY_CHANGE = ("steps", "max_samples", "max_seconds", "logger", "keep_checkpoints")
"""Settings that may differ on resume; the rest decide the numbers."""
_MOST_THREADS = 1 << 12
_OWN_CODE = re.compile(r"(?s)(.+\.py):\w+")


def recorded(run: Path) -> dict[str, Any]:
    """environment.json of a run. Raises DataError."""
    try:
        record: dict[str, Any] = json.loads((run / ENVIRONMENT).read_text())
        threads, _ = int(record["threads"]), str(record["data"]["sha256"])
        if not 1 <= threads <= _MOST_THREADS:
            raise ValueError(f"{threads} threads")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise DataError(f"{run / ENVIRONMENT}: not what a run records: {error!r:.200}") from error
    return record


def check_settings(run: Path, settings: TrainSettings, began_with: object) -> None:
    """Refuse a config.yaml that was changed by hand where a change would change the numbers."""
    now = plain_settings(settings)
    if not isinstance(began_with, dict):
        raise DataError(f"{run / ENVIRONMENT}: it records no settings")
    for name in sorted({*now, *began_with} - set(MAY_CHANGE)):
        if now.get(name) != began_with.get(name):
            raise ConfigError(
                f"{run / CONFIG}: {name} was {began_with.get(name)!r:.80} at the start, is now "
                f"{now.get(name)!r:.80}; put it back, or begin a run with init.from={run}"
            )


def check_data(run: Path, record: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuse data that changed since the run began. Raises DataError."""
    if record["data"]["sha256"] != found["sha256"]:
        raise DataError(
            f"{run}: the data of task {found['task']} has changed since the run began; "
            "put the old data back, or begin a new run"
        )


def check_start(run: Path, record: Mapping[str, Any], policy: Policy) -> None:
    """Refuse other weights than those the run began with, where no checkpoint holds them yet."""
    began = record.get("model")
    if not isinstance(began, dict) or began.get("weights_sha256") != weights_hash(policy):
        raise DataError(
            f"{run}: no step is saved yet, and the model in {policy.source} is not the one that "
            "the run began with; begin a new run"
        )


def newest_checkpoint(run: Path, progress: Progress, own: str) -> Checkpoint | None:
    """The newest checkpoint that verifies and is this run's; others are named, then renamed.

    Args:
        run: folder.
        progress: told of those that are passed over.
        own: see `brorl.train.environment.identity`.

    Raises:
        DataError: there are checkpoints, and none can be used.
    """
    unusable: list[int] = []
    for step in reversed(checkpoint_steps(run)):
        try:
            found = open_checkpoint(checkpoint_path(run, step))
            if not found.state.keys() >= {"updates", "totals"}:
                raise DataError(f"{found.folder}: not the state of this version")
            if found.state.get("run") != own:
                raise DataError(f"{found.folder}: saved by a run of other settings or other data")
        except DataError as error:
            unusable.append(step)
            progress.note(f"passing over a damaged or foreign checkpoint: {error}")
            continue
        for bad in unusable:
            progress.note(f"it lies in {set_aside(run, bad)} from here on")
        return found
    if unusable:
        raise DataError(f"{run}: none of its checkpoints ({unusable}) can be used")
    return None


def say_metrics(
    run: Path, checkpoint: Checkpoint | None, kept: MetricsMark, progress: Progress
) -> None:
    """Name a metrics.jsonl that is not the one this run wrote. Its numbers decide nothing."""
    saved = checkpoint.state.get("metrics") if checkpoint else None
    if saved is None or saved == kept._asdict():
        return
    progress.note(
        f"{run / METRICS} was changed by somebody: at step {checkpoint.step if checkpoint else 0} "
        f"it had {saved['lines']} lines, now {kept.lines} and others; the training goes on "
        "unharmed, but report, totals and TensorBoard show what is left"
    )


def say_changes(
    record: Mapping[str, Any], settings: TrainSettings, policy: Policy, progress: Progress
) -> None:
    """Name what keeps the rest of the run from being bit-identical to an unstopped one."""
    differing = changes(record, environment(policy, None, {}))
    began, now = record.get("code"), own_code(settings)
    if isinstance(began, dict):
        differing += [f"code of {name}" for name in now if began.get(name) != now[name]]
    if differing:
        progress.note(
            "resumed on other ground, so not bit for bit as if never stopped: "
            + "; ".join(differing)
        )


def own_code(settings: TrainSettings) -> dict[str, str]:
    """sha256 of every Python file that the settings name, as FILE.py:NAME."""
    found = {}
    for text in _texts(plain_settings(settings)):
        named = _OWN_CODE.fullmatch(text)
        if named and Path(named[1]).is_file():
            found[text] = hashlib.sha256(Path(named[1]).read_bytes()).hexdigest()
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
