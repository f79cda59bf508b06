"""What a simulation writes: curves.parquet, figure.png and result.json of a folder."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brorl.errors import ConfigError
from brorl.simulator.curves import Curve
from brorl.simulator.flat import Cell
from brorl.simulator.step import Record
from brorl.simulator.summary import Effect, effects, summarise


def result_object(
    cells: Sequence[Cell], curves: Sequence[Sequence[Curve]], seconds: float
) -> dict[str, Any]:
    """What result.json and --json hold: rows, settings, seconds, and effects of two factors.

    In a sweep every row names its cell, `settings` are those of the first cell, and a sweep over
    exactly two axes has `effects` of going from the first to the last value of each.
    """
    rows = [
        ({"cell": dict(cell.axes)} if cell.axes else {}) | row
        for cell, of_cell in zip(cells, curves, strict=True)
        for row in summarise(of_cell)
    ]
    result = {
        "rows": rows,
        "settings": cells[0].settings.model_dump(mode="json"),
        "seconds": seconds,
    }
    values = {name: list(dict.fromkeys(c.axes[name] for c in cells)) for name in cells[0].axes}
    if len(values) == 2 and min(map(len, values.values())) > 1:
        first_values, second_values = values.values()
        by_axes = {tuple(cell.axes.values()): of for cell, of in zip(cells, curves, strict=True)}
        corners = [
            by_axes[a, b]
            for a in (first_values[0], first_values[-1])
            for b in (second_values[0], second_values[-1])
        ]
        result["effects"] = {
            "factors": [
                {"name": name, "from": listed[0], "to": listed[-1]}
                for name, listed in values.items()
            ],
            "rows": [
                {
                    name: x._asdict() if isinstance(x, Effect) else x
                    for name, x in e._asdict().items()
                }
                for e in effects(corners)
            ],
        }
    return result


def check_folder(folder: Path) -> None:
    """Make the folder now, so that a simulation is not run for a place that cannot be written.

    Raises:
        ConfigError: it is a file, or may not be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror}") from error


def write_folder(
    folder: Path,
    cells: Sequence[Cell],
    curves: Sequence[Sequence[Curve]],
    result: Mapping[str, Any],
) -> None:
    """Write the three files; what stood under these names before is replaced.

    Raises:
        ConfigError: the folder cannot be written.
    """
    from brorl.simulator.figure import draw, draw_sweep

    try:
        pq.write_table(curve_table(cells, curves), folder / "curves.parquet", compression="zstd")
        if len(cells) > 1:
            draw_sweep(cells, curves, folder / "figure.png")
        else:
            draw(curves[0], folder / "figure.png")
        text = json.dumps(result, indent=1, allow_nan=False)
        (folder / "result.json").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror}") from error


def curve_table(cells: Sequence[Cell], curves: Sequence[Sequence[Curve]]) -> pa.Table:
    """One row per step, step 0 the start: cell_AXIS for a sweep, n, replicate, step, Record."""
    blocks = []
    for cell, of_cell in zip(cells, curves, strict=True):
        for curve in of_cell:
            rows = len(curve.values_TR)
            columns: dict[str, Any] = {
                f"cell_{name}": pa.array([value] * rows).dictionary_encode()
                for name, value in cell.axes.items()
            }
            columns["n"] = np.full(rows, curve.n)
            columns["replicate"] = np.full(rows, curve.replicate)
            columns["step"] = np.arange(rows)
            columns |= {name: curve.column(name) for name in Record._fields}
            blocks.append(pa.table(columns))
    return pa.concat_tables(blocks).unify_dictionaries()
