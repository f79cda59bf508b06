"""What a run has written so far; it may be finished, killed or going on."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from brorl.errors import DataError
from brorl.record.evals import eval_path
from brorl.record.metrics import read_metrics
from brorl.record.rundir import CONFIG, ENVIRONMENT, require_run


class RunRecord(NamedTuple):
    """The small files of a run; rollouts are asked for where they are needed."""

    path: Path
    name: str
    config_text: str
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]  # one a step, step 0 is the evaluation before training
    best: dict[str, Any] | None  # step and pass@1 of the best held-out evaluation

    @property
    def last_step(self) -> int:
        """Steps done; 0 where none is recorded."""
        return self.metrics[-1]["step"] if self.metrics else 0

    @property
    def planned_steps(self) -> int:
        """What the configuration asks for."""
        return int(self.config.get("steps") or 0)

    @property
    def finished(self) -> bool:
        """Whether the last planned step is recorded."""
        return bool(self.metrics) and self.last_step >= self.planned_steps

    @property
    def task(self) -> str:
        """Name of what was trained on."""
        return str(self.environment.get("data", {}).get("task", "unknown"))


def read_run(path: Path) -> RunRecord:
    """Read a run folder.

    Raises:
        DataError: not a run, or a file of it that cannot be read, by name.
    """
    require_run(path)
    config_text = _text(path / CONFIG)
    try:
        config = yaml.safe_load(config_text)
    except yaml.YAMLError as error:
        raise DataError(f"{path / CONFIG}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(config, dict):
        raise DataError(f"{path / CONFIG}: needs a mapping of settings")
    environment = _json(path / ENVIRONMENT)
    if environment is not None and not isinstance(environment.get("data", {}), dict):
        raise DataError(f"{path / ENVIRONMENT}: needs an object under data")
    return RunRecord(
        path,
        path.resolve().name,
        config_text,
        config,
        environment or {},
        read_metrics(path),
        _json(path / "best.json"),
    )


class Counts(NamedTuple):
    """One held-out problem of one evaluation: c of n samples right."""

    n: int
    c: int
    category: str


def read_problems(run: Path, step: int) -> list[Counts]:
    """Problems of the evaluation after `step`; none where that was not written.

    Raises:
        DataError: a file that is not an evaluation, by name.
    """
    return list((read_counts(run, step) or {}).values())


def read_counts(run: Path, step: int) -> dict[str, Counts] | None:
    """Problem id to counts of the evaluation after `step`; None where that was not written.

    Raises:
        DataError: a file that is not an evaluation, by name.
    """
    path = eval_path(run, step)
    record = _json(path)
    if record is None:
        return None
    try:
        problems = [p for suite in record["suites"].values() for p in suite["problems"]]
        return {
            str(p["id"]): Counts(int(p["n"]), int(p["c"]), str(p.get("category", "")))
            for p in problems
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{path}: not an evaluation: {type(error).__name__} {error}") from error


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        value = json.loads(_text(path))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: needs a JSON object, got {type(value).__name__}")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
