"""What a run has spent by each step, in the units that runs can be compared in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from brorl.record.rollouts import read_rollouts, rollout_steps

BUDGETS = {
    "step": "steps",
    "generated": "generated samples",
    "kept": "kept samples",
    "tokens": "generated tokens",
    "update_tokens": "update tokens",
    "updates": "optimizer updates",
    "seconds": "seconds, evaluation left out",
}
"""Names of the axes and what stands under them."""

_PHASES = ("generate", "grade", "update", "other")

Row = Mapping[str, Any]


def spent(run: Path, metrics: Sequence[Row]) -> dict[str, NDArray[np.float64]]:
    """Cumulative budgets at the end of each row of `metrics`, float64 [S] each.

    A budget with a step that does not tell what it cost is left out: a sum with a hole in it
    would put every later point in the wrong place. Row 0 (the evaluation before training) cost
    nothing.
    """
    update_tokens = _update_tokens(run)
    parts: dict[str, list[float | None]] = {
        "generated": [_value(r, "samples/generated") for r in metrics],
        "kept": [_value(r, "samples/kept") for r in metrics],
        "tokens": [_tokens(r) for r in metrics],
        "update_tokens": [_or_start(r, update_tokens.get(r["step"])) for r in metrics],
        "seconds": [_seconds(r) for r in metrics],
    }
    found = {"step": np.array([float(r["step"]) for r in metrics])}
    for name, values in parts.items():
        known = [v for v in values if v is not None]
        if len(known) == len(values):
            found[name] = np.cumsum(np.array(known, dtype=np.float64))
    updates = [r.get("updates") for r in metrics]
    if all(u is not None for u in updates):
        found["updates"] = np.array(updates, dtype=np.float64)
    return {name: found[name] for name in BUDGETS if name in found}


def _update_tokens(run: Path) -> dict[int, float]:
    """Step to answer tokens that the update saw, of every step whose rollouts are there."""
    found = {}
    for step in rollout_steps(run):
        table = read_rollouts(run, step, ("response_length", "kept"))
        lengths = table.filter(table["kept"])["response_length"]
        found[step] = float(pc.sum(lengths).as_py() or 0)
    return found


def _or_start(row: Row, value: float | None) -> float | None:
    return 0.0 if row["step"] == 0 else value


def _value(row: Row, name: str) -> float | None:
    value = row.get(name)
    return _or_start(row, None if value is None else float(value))


def _tokens(row: Row) -> float | None:
    samples, length = _value(row, "samples/generated"), row.get("response/length_mean")
    if samples is None or samples == 0:
        return samples
    return None if length is None else samples * float(length)


def _seconds(row: Row) -> float | None:
    if row["step"] == 0:
        return 0.0
    parts = [row.get(f"time/{phase}") for phase in _PHASES]
    known = [float(p) for p in parts if p is not None]
    return sum(known) if len(known) == len(parts) else None
