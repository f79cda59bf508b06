"""Which panels a page has, and which of them its runs have numbers for.

The list is data, assets/panels.yaml; assets/page.js draws what is chosen here. A panel without a
number is left out, so a page has no empty boxes.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from brorl.report.series import Column

FORMS = ("lines", "stack", "cross", "rates", "heat", "passk")


class Metric(NamedTuple):
    """A line or a band: the recorded name, what the legend says, and a colour of page.css."""

    name: str
    label: str
    color: str  # "" takes the next one of the palette


class Panel(NamedTuple):
    """One figure.

    Attributes:
        section: heading it stands under.
        title: what is drawn.
        form: lines, or stack (bands that add up), or cross (the second metric against the first, a
            point a step), or one with data of its own: rates and heat (rollouts by pass rate) and
            passk (pass@k against k).
        metrics: drawn, in order. A name that ends in * stands for every recorded one that goes on
            with a number.
        unit: of the vertical axis: share, s, bytes, nats, tokens, ratio, or "" for a bare number.
        zero: whether the axis begins at 0.
        log: whether it begins as a log axis; the reader may switch.
        evals: drawn at held-out evaluations, not at every step.
        ramp: the metrics are in order: colours go from one to another, and only the first and the
            last are shown until the reader asks for more.
        note: what to know when reading it.
        needs: a name that must be recorded, or the panel is left out.
    """

    section: str
    title: str
    form: str
    metrics: tuple[Metric, ...]
    unit: str = ""
    zero: bool = True
    log: bool = False
    evals: bool = False
    ramp: bool = False
    note: str = ""
    needs: str = ""


@cache
def all_panels() -> tuple[Panel, ...]:
    """Every panel, in the order of the page."""
    text = (files("brorl.report") / "assets" / "panels.yaml").read_text(encoding="utf-8")
    return tuple(
        _panel(part["section"], dict(values))
        for part in yaml.safe_load(text)
        for values in part["panels"]
    )


def panels_for(runs: Sequence[dict[str, Any]]) -> list[Panel]:
    """The panels that at least one run has numbers for, with their metrics spelt out.

    Args:
        runs: as on the page: "y" and "evals" hold columns by name, "passk" and "spent" the data
            of the other forms.
    """
    chosen = []
    for panel in all_panels():
        columns = [run["evals"]["y"] if panel.evals else run["y"] for run in runs]
        metrics = _recorded(panel, columns)
        if panel.form == "passk":
            there = any(run["passk"] for run in runs)
        elif panel.form in ("rates", "heat"):
            there = any(run["spent"] for run in runs)
        else:
            there = len(metrics) >= (2 if panel.form == "cross" else 1)
        if there and (not panel.needs or _spelt(Metric(panel.needs, "", ""), columns)):
            chosen.append(panel._replace(metrics=tuple(metrics)))
    return chosen


def _panel(section: str, values: dict[str, Any]) -> Panel:
    labels = values.pop("metrics", {})
    colors = values.pop("colors", [""] * len(labels))
    metrics = [
        Metric(name, label, color)
        for (name, label), color in zip(labels.items(), colors, strict=True)
    ]
    return Panel(section=section, metrics=tuple(metrics), **values)


def _recorded(panel: Panel, columns: Sequence[dict[str, Column]]) -> list[Metric]:
    """Recorded metrics of a panel. In a stack, one that is 0 throughout is left out."""
    found = [m for metric in panel.metrics for m in _spelt(metric, columns)]
    if panel.form != "stack":
        return found
    return [m for m in found if any(any(c.get(m.name, ())) for c in columns)]


def _spelt(metric: Metric, columns: Sequence[dict[str, Column]]) -> list[Metric]:
    if not metric.name.endswith("*"):
        return [metric] if any(metric.name in c for c in columns) else []
    stem = metric.name.removesuffix("*")
    ends = {n.removeprefix(stem) for c in columns for n in c if n.startswith(stem)}
    numbers = sorted(int(end) for end in ends if end.isdecimal())
    return [Metric(f"{stem}{n}", f"{metric.label}{n}", metric.color) for n in numbers]
