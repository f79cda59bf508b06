"""Figures of `brorl theory`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from brorl.errors import ConfigError
from brorl.theory.coverage import expected_unsampled_second_moment
from brorl.theory.distribution import FloatV, MaskV


def plot_mass(numbers: Mapping[str, float], path: Path) -> None:
    """Bars of the three terms, their sum and the exact change.

    Raises:
        ConfigError: the file cannot be written, or its ending names no format.
    """
    bars = {
        "sampled correct": (numbers["sampled_correct"], "#009E73"),
        "sampled wrong": (numbers["sampled_wrong"], "#0072B2"),
        "unsampled": (numbers["unsampled"], "#D55E00"),
        "sum of the three": (numbers["first_order"], "#666666"),
        "exact": (numbers["exact"], "#000000"),
    }
    figure = Figure(figsize=(6.5, 3.5), layout="constrained")
    axes = figure.subplots()
    values = [value for value, _ in bars.values()]
    axes.barh(list(bars), values, color=[color for _, color in bars.values()])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("change of the correct mass in one step")
    axes.set_title(f"N = {numbers['n']:,}, eta = {numbers['eta']:g}, Q = {numbers['q_pos']:.4g}")
    axes.grid(alpha=0.3, axis="x")
    _save(figure, path)


def plot_width(p_V: FloatV, correct_V: MaskV | None, needed: Mapping[str, int], path: Path) -> None:
    """E[U2(N)] over N on two logarithmic axes, by side where it is known.

    Raises:
        ConfigError: the file cannot be written, or its ending names no format.
    """
    last = 4 * max(needed.values())
    points = np.unique(np.logspace(0, np.log10(float(last)), 60).astype(np.int64)).tolist()
    everything = np.ones(p_V.size, dtype=np.bool_)
    moment = expected_unsampled_second_moment(
        p_V, everything if correct_V is None else correct_V, points
    )
    lowest = min(moment.correct_W[-1], moment.wrong_W[-1]) if correct_V is not None else 0.0
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.loglog(points, moment.total_W, color="black", label="all tokens", linewidth=2)
    if correct_V is not None:
        axes.loglog(points, moment.correct_W, color="#009E73", linestyle="--", label="correct")
        axes.loglog(points, moment.wrong_W, color="#D55E00", linestyle="--", label="wrong")
    for (percent, n), shade in zip(needed.items(), np.linspace(0.7, 0.3, len(needed)), strict=True):
        label = f"{percent} % gone: N = {n:,}"
        axes.axvline(n, color=str(shade), linestyle=":", label=label)
    axes.set(
        xlabel="draws N",
        ylabel="E[U2(N)], squared probability",
        title="Second moment that N draws leave unsampled",
        ylim=(max(lowest, 1e-6 * moment.total_W[0]) / 2, None),
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write a figure to {path}: {error}") from error
