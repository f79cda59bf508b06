"""The figures of a simulation: the paper's three panels and the decomposition, or a sweep."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from brorl.simulator.curves import Curve
from brorl.simulator.flat import Cell
from brorl.simulator.summary import summarise

PARTS = {
    "sampled_correct": ("sampled correct", "#009E73"),
    "sampled_wrong": ("sampled wrong", "#0072B2"),
    "unsampled": ("unsampled", "#D55E00"),
    "never_drawn": ("of it: never drawn", "#F0B080"),
    "decay": ("of all: weight decay", "#999999"),
}


def draw(curves: Sequence[Curve], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Correct mass, improved share and worst change over the steps, and where the change is from.

    With several replicates a line is their mean and the band reaches from the smallest to the
    largest.
    """
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    grid: Any = figure.subplots(2, 2)
    (mass, improved), (worst, parts) = grid
    _lines(mass, curves, "correct_mass", lambda values: values)
    mass.set(title="Probability of the correct tokens", ylabel="correct mass")
    mass.legend(title="draws a step", fontsize="small")
    _lines(improved, curves, "improved_share", lambda values: 100 * values)
    improved.set(title="Correct tokens above their start", ylabel="% of the correct tokens")
    _lines(worst, curves, "worst_change", lambda values: values)
    worst.set(title="Largest loss of a correct token", ylabel="smallest change of probability")
    worst.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for axes in (mass, improved, worst):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    draw_parts(parts, summarise(curves))
    _save(figure, path, metadata)


def draw_sweep(
    cells: Sequence[Cell],
    curves: Sequence[Sequence[Curve]],
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Correct mass over the steps, a panel per cell on one scale."""
    columns = min(len(cells), 4)
    rows = math.ceil(len(cells) / columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 2.9 * rows), layout="constrained")
    grid: Any = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for axes, cell, of_cell in zip(panels, cells, curves, strict=False):
        _lines(axes, of_cell, "correct_mass", lambda values: values)
        axes.set_title(", ".join(f"{k} = {v}" for k, v in cell.axes.items()), fontsize="medium")
        axes.grid(alpha=0.3)
    for axes in panels[len(cells) :]:
        axes.set_visible(False)
    panels[0].legend(title="draws a step", fontsize="small")
    figure.supxlabel("step")
    figure.supylabel("correct mass")
    _save(figure, path, metadata)


def draw_parts(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Bars of the summed first-order parts by width, and the exact change as a mark."""
    places = np.arange(len(rows))
    width = 0.8 / len(PARTS)
    for i, (name, (label, color)) in enumerate(PARTS.items()):
        heights = [row[name] for row in rows]
        left = places - 0.4 + (i + 0.5) * width
        axes.bar(left, heights, width, color=color, label=label)
    exact = [row["exact_change"] for row in rows]
    axes.plot(places, exact, "kD", markersize=5, label="exact change, all tokens")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(places, [f"{row['n']:,}" for row in rows])
    axes.set(
        title="Where the change of correct mass comes from",
        xlabel="draws a step",
        ylabel="first-order change, summed over steps",
    )
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize="small", loc="lower right")


def _lines(
    axes: Axes,
    curves: Sequence[Curve],
    name: str,
    convert: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> None:
    widths = list(dict.fromkeys(curve.n for curve in curves))
    colors = mpl.colormaps["viridis"](np.linspace(0.0, 0.9, len(widths)))
    for n, color in zip(widths, colors, strict=True):
        values_RT = convert(np.stack([curve.column(name) for curve in curves if curve.n == n]))
        steps = np.arange(values_RT.shape[1])
        axes.plot(steps, values_RT.mean(axis=0), color=color, label=f"{n:,}")
        if len(values_RT) > 1:
            low, high = values_RT.min(axis=0), values_RT.max(axis=0)
            axes.fill_between(steps, low, high, color=color, alpha=0.25, linewidth=0)


def _save(figure: Figure, path: Path, metadata: Mapping[str, str] | None) -> None:
    figure.savefig(path, dpi=120, metadata=dict(metadata or {}))
