"""Recorded metrics as columns for curves: thinned, rounded, with gaps for what is not known."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = list[float | None]
"""One metric by point; None is a gap in the curve, never a zero."""


class Curves(NamedTuple):
    """Columns of equal length: what the curves of one run are drawn from."""

    x: dict[str, Column]  # by budget
    y: dict[str, Column]  # by metric; all-empty ones are left out
    rows_per_point: int  # 1, or how many steps each point is the mean of


def step_curves(
    metrics: Sequence[Mapping[str, Any]],
    budgets: Mapping[str, NDArray[np.float64]],
    *,
    most_points: int,
) -> Curves:
    """Every number that training steps recorded. Held-out evaluations are apart: eval_curves.

    Args:
        metrics: rows of metrics.jsonl, ascending; row 0 (before training) is left out.
        budgets: of the same rows, see budgets.spent.
        most_points: thin to at most this many. A point is the mean over its steps of what is
            known, and stands at the last of them.
    """
    keep = [i for i, row in enumerate(metrics) if row["step"] > 0]
    size = max(1, math.ceil(len(keep) / most_points))
    buckets = [keep[i : i + size] for i in range(0, len(keep), size)]
    names = _names([metrics[i] for i in keep], lambda name: not name.startswith("eval/"))
    return Curves(
        {name: [_round(axis[b[-1]]) for b in buckets] for name, axis in budgets.items()},
        _without_empty({n: [_mean(metrics, b, n) for b in buckets] for n in names}),
        size,
    )


def eval_curves(
    metrics: Sequence[Mapping[str, Any]], budgets: Mapping[str, NDArray[np.float64]]
) -> Curves:
    """Every held-out evaluation, none left out: names keep their eval/ prefix."""
    keep = [i for i, row in enumerate(metrics) if "eval/pass@1" in row]
    names = _names([metrics[i] for i in keep], lambda name: name.startswith("eval/"))
    return Curves(
        {name: [_round(axis[i]) for i in keep] for name, axis in budgets.items()},
        _without_empty({n: [_mean(metrics, [i], n) for i in keep] for n in names}),
        1,
    )


def with_shares(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows and, where both are known, samples/kept_share = kept over generated."""
    rows = []
    for row in metrics:
        kept, generated = row.get("samples/kept"), row.get("samples/generated")
        more = {"samples/kept_share": kept / generated} if kept is not None and generated else {}
        rows.append({**row, **more})
    return rows


def _names(rows: Sequence[Mapping[str, Any]], wanted: Any) -> list[str]:
    """In order of first appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name != "step" and wanted(name)]


def _mean(metrics: Sequence[Mapping[str, Any]], rows: Sequence[int], name: str) -> float | None:
    values = [metrics[i].get(name) for i in rows]
    numbers = [float(v) for v in values if isinstance(v, int | float)]
    return _round(sum(numbers) / len(numbers)) if numbers else None


def _round(value: float) -> float | None:
    """Nine significant digits (a ratio near 1 needs them); None where it is not finite."""
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.9g}")


def _without_empty(columns: dict[str, Column]) -> dict[str, Column]:
    return {name: c for name, c in columns.items() if any(v is not None for v in c)}
