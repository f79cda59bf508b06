"""metrics.jsonl: one object a step, appended and flushed; read, and cut back on resume."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brorl.errors import DataError
from brorl.record.files import write_atomic

FILE = "metrics.jsonl"


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
        DataError: a line that is not a JSON object with an integer step, by file and number.
    """
    path = run / FILE
    if not path.exists():
        return []
    rows = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last \n is torn
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise ValueError("needs an object with an integer step")
        except ValueError as error:
            raise DataError(f"{path}:{number}: not a line of metrics: {error}") from error
        rows.append(row)
    return rows


def cut_metrics(run: Path, last_step: int) -> None:
    """Drop every line after `last_step`, and a torn one."""
    rows = [r for r in read_metrics(run) if r["step"] <= last_step]
    text = "".join(json.dumps(r, allow_nan=False) + "\n" for r in rows)
    write_atomic(run / FILE, text)
