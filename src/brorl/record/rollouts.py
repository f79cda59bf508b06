"""rollouts/step-000123.parquet: every answer of a step with all that is known about it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.record.files import step_files, sweep_asides, sync_folder

FOLDER = "rollouts"

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("step", pa.int32()),  # the step that wrote the row
        ("born", pa.int32()),  # the step that sampled it: earlier for carried groups
        ("task", pa.string()),
        ("problem_id", pa.string()),
        ("group_id", pa.string()),
        ("sample_index", pa.int32()),
        ("prompt", pa.string()),
        ("gold", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("response_ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.bool_())),
        ("engine_logprobs", pa.list_(pa.float32())),
        ("response_length", pa.int32()),
        ("stop", pa.string()),
        ("policy_version", pa.int32()),
        ("text", pa.string()),
        ("verdict", pa.string()),
        ("extracted", pa.string()),
        ("reason", pa.string()),
        ("raw_score", pa.float64()),  # of the configured reward source
        ("true_score", pa.float64()),  # of the true verifier; never reaches the update
        ("shaped_reward", pa.float64()),
        ("advantage", pa.float64()),  # null where the update did not see the answer
        ("weight", pa.float64()),
        ("kept", pa.bool_()),
        ("fate", pa.string()),
    ]
)


class RolloutRow(NamedTuple):
    """One answer, in the order of SCHEMA. Token fields are None where they are not recorded."""

    run: str
    step: int
    born: int
    task: str
    problem_id: str
    group_id: str
    sample_index: int
    prompt: str
    gold: str | None
    prompt_ids: Sequence[int] | None
    response_ids: NDArray[np.int32] | None
    mask: NDArray[np.bool_] | None
    engine_logprobs: NDArray[np.float32] | None
    response_length: int
    stop: str
    policy_version: int
    text: str
    verdict: str
    extracted: str | None
    reason: str
    raw_score: float
    true_score: float
    shaped_reward: float
    advantage: float | None
    weight: float
    kept: bool
    fate: str


def rollout_path(run: Path, step: int) -> Path:
    """Where a step's rollouts lie."""
    return run / FOLDER / f"step-{step:06d}.parquet"


def write_rollouts(run: Path, step: int, rows: Sequence[RolloutRow]) -> Path:
    """Write a step's rows, complete or not at all. Text that is not valid Unicode is escaped."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [_array(field, values) for field, values in zip(SCHEMA, columns, strict=True)]
    path = rollout_path(run, step)
    path.parent.mkdir(exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), aside, compression="zstd")
        handle = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return path


def read_rollouts(run: Path, step: int, columns: Sequence[str] | None = None) -> pa.Table:
    """A step's table. Raises DataError naming the file where it is absent or not ours."""
    path = rollout_path(run, step)
    if not path.is_file():
        raise DataError(f"{path}: no rollouts of step {step}; there are {_span(run)}")
    try:
        table = pq.read_table(path, columns=list(columns) if columns else None)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: not a rollout file: {str(error).splitlines()[0]}") from error
    return table


def rollout_steps(run: Path) -> list[int]:
    """Steps that have rollouts, ascending."""
    return step_files(run / FOLDER, "parquet")


def cut_rollouts(run: Path, last_step: int) -> None:
    """Remove rollouts of steps after `last_step` and leftovers of interrupted writes."""
    for step in rollout_steps(run):
        if step > last_step:
            rollout_path(run, step).unlink()
    sweep_asides(run / FOLDER)


def _array(field: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_list(field.type) and any(v is not None for v in values):
        return _lists(field.type, values)
    if pa.types.is_string(field.type):
        values = list(_encodable(values))
    return pa.array(values, type=field.type)


def _lists(kind: Any, values: Sequence[Any]) -> Any:
    """A list column from arrays, without a Python object per token."""
    lengths = np.array([0 if v is None else len(v) for v in values])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = np.concatenate([np.asarray(v) for v in values if v is not None])
    missing = pa.array([v is None for v in values])
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(flat, type=kind.value_type), type=kind, mask=missing
    )


def _encodable(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if value is None or value.isascii():
            yield value
        else:
            yield value.encode("utf-8", "backslashreplace").decode("utf-8")


def _span(run: Path) -> str:
    steps = rollout_steps(run)
    return f"steps {steps[0]} to {steps[-1]}" if steps else "none in this run"
