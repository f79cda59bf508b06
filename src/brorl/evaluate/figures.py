"""Figures of evaluations and comparisons, as SVG text that stands inside an HTML page.

The same numbers give the same bytes: no date, no random ids, text as text.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.evaluate.compare import Part
from brorl.evaluate.results import ProblemResult
from brorl.stats.intervals import bootstrap_band
from brorl.stats.pass_at_k import doubling_ks, pass_at_k_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#1f5fa8", "#c1491d", "#2e7d4f", "#7b4ea3", "#8a6d1f", "#555555")


class Curve(NamedTuple):
    """A pass@k curve with a band that holds all of it at once."""

    name: str
    ks: tuple[int, ...]
    mean_J: NDArray[np.float64]
    low_J: NDArray[np.float64]
    high_J: NDArray[np.float64]


def pass_curve(
    name: str, problems: Sequence[ProblemResult], *, level: float, resamples: int, seed: int
) -> Curve:
    """pass@k for k = 1, 2, 4, ... up to the smallest n, with a bootstrap band over problems."""
    total = [p.n for p in problems]
    ks = doubling_ks(min(total))
    table_KJ = pass_at_k_table([p.c for p in problems], total, ks)
    low_J, high_J = bootstrap_band(table_KJ, level=level, resamples=resamples, seed=seed)
    return Curve(name, ks, table_KJ.mean(axis=0), low_J.clip(0, 1), high_J.clip(0, 1))


def curves_svg(curves: Sequence[Curve], *, level: float) -> str:
    """pass@k against k on a log axis."""
    figure = _figure(7.0, 4.2)
    axes = figure.subplots()
    for i, curve in enumerate(curves):
        colour = _COLOURS[i % len(_COLOURS)]
        axes.fill_between(curve.ks, curve.low_J, curve.high_J, color=colour, alpha=0.15, lw=0)
        axes.plot(curve.ks, curve.mean_J, color=colour, marker="o", ms=3.5, label=curve.name)
    ticks = sorted({k for curve in curves for k in curve.ks})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.set_xlabel("k (samples)")
    axes.set_ylabel("pass@k, mean over problems")
    axes.set_title(f"pass@k with {100 * level:g} % bands over problems", fontsize=10)
    axes.legend(fontsize=8, loc="lower right")
    return _svg(figure)


def changes_svg(parts: Sequence[Part], *, a: str, b: str, level: float) -> str:
    """Change of each task or benchmark, sorted, with its interval."""
    shown = sorted(parts, key=lambda p: p.mean_b - p.mean_a)
    figure = _figure(7.0, 1.2 + 0.24 * len(shown))
    axes = figure.subplots()
    axes.axvline(0, color="#999999", lw=0.8)
    for i, part in enumerate(shown):
        change = part.mean_b - part.mean_a
        sure = part.p_holm is not None and part.p_holm <= 1 - level
        colour = _COLOURS[0] if sure and change > 0 else _COLOURS[1] if sure else "#777777"
        if part.difference is not None:
            axes.plot([part.difference.low, part.difference.high], [i, i], color=colour, lw=1.2)
        axes.plot([change], [i], color=colour, marker="o", ms=4)
    axes.set_yticks(range(len(shown)), [f"{p.name} ({p.problems})" for p in shown], fontsize=8)
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel(f"{b} minus {a}, {100 * level:g} % intervals; coloured: holds after Holm")
    return _svg(figure)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: "Figure") -> str:
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": "brorl", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
