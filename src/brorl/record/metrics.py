"""metrics.jsonl: one object a step, appended and flushed; read, and cut back on resume.

A checkpoint keeps a `MetricsMark` of the lines up to it, so that a file that somebody deleted,
cut or edited is noticed when the run goes on.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from brorl.errors import DataError
from brorl.record.files import write_atomic

FILE = "metrics.jsonl"
_TEXTS = ("_reason", "_cause")
"""Endings of the names under which a metric may be text."""


_LARGEST = float(1 << 63)


class MetricsMark(NamedTuple):
    """What metrics.jsonl held when a checkpoint was saved."""

    lines: int
    sha256: str  # of these lines


def append_metrics(run: Path, metrics: Mapping[str, Any]) -> None:
    """Append one step's object. Values that are not finite are written as null."""
    clean = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in metrics.items()
    }
    line = json.dumps(clean, allow_nan=False) + "\n"
    with (run / FILE).open("ab") as file:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """All complete lines. A torn last line (a kill while appending) is left out.

    Raises:
        DataError: a line that is not a JSON object with an integer step and numbers, by file and
            line.
    """
    path = run / FILE
    if not path.exists():
        return []
    rows = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last \n is torn
        try:
            rows.append(_row(line))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not a line of metrics: {error}") from error
    return rows


def cut_metrics(run: Path, last_step: int) -> MetricsMark:
    """Drop every line after `last_step`, and a torn one; the mark of what is left."""
    text = _lines_to(run, last_step)
    write_atomic(run / FILE, text)
    return _mark(text)


def mark_metrics(run: Path, last_step: int) -> MetricsMark:
    """The mark of the lines up to a step; `cut_metrics` gives an equal one if none has changed."""
    return _mark(_lines_to(run, last_step))


def _lines_to(run: Path, last_step: int) -> str:
    rows = [r for r in read_metrics(run) if r["step"] <= last_step]
    return "".join(json.dumps(r, allow_nan=False) + "\n" for r in rows)


def _mark(text: str) -> MetricsMark:
    return MetricsMark(text.count("\n"), hashlib.sha256(text.encode()).hexdigest())


def _row(line: bytes) -> dict[str, Any]:
    """One line's object. Raises ValueError."""
    row = json.loads(line, parse_constant=_no_constant)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("needs an object with an integer step")
    for name, value in row.items():
        text = isinstance(value, str) and ("/" not in name or name.endswith(_TEXTS))
        number = isinstance(value, int | float) and abs(value) < _LARGEST
        if not (number or text or value is None):
            raise ValueError(f"{name!r:.80} needs a number, got {value!r:.40}")
    return row


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")
