"""Figures of a study, drawn from result.json by matplotlib."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from PIL import Image

from brorl.studies.runner.contract import BUDGETS

COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#555555",
    "#8B4513",
)
"""Okabe and Ito's, told apart by colour-blind readers; then dashes."""
MANY = 8
"""Arms in one figure, beyond which seeds are left out."""


def draw_all(result: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Write every figure of a result as PNG.

    Returns:
        (file name, what it shows), the curves of the arms first.
    """
    found = []
    for block in result["matched"]:
        one = len(result["matched"]) == 1
        name = "curves.png" if one else f"curves-{block}.png"
        arms = [a for a in result["arms"] if a["block"] == block]
        if not _trained(result, arms):
            continue  # only measured: an evaluation each, and no curve
        _save(_curves(result, arms), folder / name)
        of_block = "" if one else f"{block}: "
        found.append((name, f"{of_block}Held-out pass@1 against every budget; thick: the mean."))
    for number, chart in enumerate(result["charts"], start=1):
        name = f"chart-{number}.png"
        _save(_chart(chart), folder / name)
        found.append((name, f"{chart['title']}. {chart['note']}".strip()))
    return found


def style(number: int) -> dict[str, Any]:
    """Colour and dashes of line `number`."""
    dashes = ("-", "--", ":", "-.")[number // len(COLORS) % 4]
    return {"color": COLORS[number % len(COLORS)], "linestyle": dashes}


def _trained(result: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run of these arms was evaluated more than once."""
    names = {a["name"] for a in arms}
    curves = [r["curve"]["scores"]["pass@1"] for r in result["runs"] if r["arm"] in names]
    return any(len(scores) > 1 for scores in curves)


def _curves(result: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> Figure:
    budgets = [b for b in BUDGETS if all(b in r["curve"]["spent"] for r in result["runs"])]
    columns = 3 if len(budgets) > 4 else 2
    rows = -(-len(budgets) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.1 * rows), layout="constrained")
    grid: Any = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, budget in zip(grid.flat, budgets, strict=False):
        for number, arm in enumerate(arms):
            runs = [r for r in result["runs"] if r["arm"] == arm["name"]]
            curves = [_xy(r, budget) for r in runs]
            _arm(axes, curves, arm["name"], number, alone=len(arms) > MANY)
        matched = " (matched)" if budget == result["match"] else ""
        axes.set(xlabel=BUDGETS[budget] + matched)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k
        axes.grid(alpha=0.3)
    for axes in list(grid.flat)[len(budgets) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("held-out pass@1")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _xy(run: Mapping[str, Any], budget: str) -> tuple[Sequence[float], Sequence[float]]:
    return run["curve"]["spent"][budget], run["curve"]["scores"]["pass@1"]


def _arm(
    axes: Axes,
    runs: Sequence[tuple[Sequence[float], Sequence[float]]],
    name: str,
    number: int,
    *,
    alone: bool,
) -> None:
    """The mean over seeds, and unless `alone` each seed."""
    for x, y in () if alone else runs:
        axes.plot(x, y, linewidth=0.8, alpha=0.4, **style(number))
    grid = np.linspace(0, min(x[-1] for x, _ in runs), 50)
    mean = np.mean([np.interp(grid, x, y) for x, y in runs], axis=0)
    axes.plot(grid, mean, linewidth=2, label=name, **style(number))


def _chart(chart: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, line in enumerate(chart["lines"]):
        axes.plot(line["x"], line["y"], marker="o", label=line["name"], **style(number))
        if line["low"]:
            color = style(number)["color"]
            axes.fill_between(line["x"], line["low"], line["high"], color=color, alpha=0.15)
    axes.set(title=chart["title"], xlabel=chart["x"], ylabel=chart["y"])
    if chart["log_x"]:
        axes.set_xscale("log", base=2)
    if chart["log_y"]:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    if len(chart["lines"]) > 1:
        axes.legend(fontsize="small")
    return figure


def _save(figure: Figure, path: Path) -> None:
    """As a PNG of 128 colours: a fifth of the bytes for the same picture."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=100, metadata={"Software": None})
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)
