"""One self-contained HTML page from recorded runs.

Curves are drawn by our own small script from numbers inside the page: a plotting library would
weigh 1 to 4.5 MB in every run's folder. Everything that a model wrote goes in as escaped text or
as JSON that cannot close its element, the script makes text nodes only, and a content security
policy with the hashes of our own style and script forbids any other, and every request.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from brorl.report.browser import ANSWERS, STEPS, browser_groups
from brorl.report.budgets import BUDGETS, spent
from brorl.report.facts import (
    Cost,
    Table,
    before_after_table,
    differing,
    facts,
    flat,
    sentences,
    side_by_side,
)
from brorl.report.heldout import BeforeAfter, before_after, pass_curves
from brorl.report.load import RunRecord
from brorl.report.outlook import Outlook, outlook, window_of
from brorl.report.panels import Panel, panels_for
from brorl.report.paper import Arm
from brorl.report.paper import tables as paper_tables
from brorl.report.series import eval_curves, step_curves, with_shares
from brorl.report.spent import BINS, spent_by_rate
from brorl.report.text import safe_json

MOST_POINTS = 400  # of a curve
MOST_COLUMNS = 120  # steps in the picture of where rollouts went
MOST_GROUPS = 30  # in the rollout browser, all runs together
MOST_BYTES = 600_000  # of their JSON

_SCRIPTS = ("draw.js", "chart.js", "spent.js", "browser.js", "page.js")


class Gathered(NamedTuple):
    """All that a page says about one run."""

    record: RunRecord
    cost: Cost
    found: BeforeAfter | None
    outlook: Outlook | None
    budgets: dict[str, NDArray[np.float64]]
    drawn: dict[str, Any]  # as the page's script reads it


def gather(record: RunRecord, name: str, *, runs: int) -> Gathered:
    """Read and aggregate everything about one run that a page of `runs` runs shows.

    Raises:
        DataError: a recorded file that cannot be read.
    """
    metrics = with_shares(record.metrics)
    budgets = spent(record.path, metrics)
    steps = step_curves(metrics, budgets, most_points=MOST_POINTS)
    evals = eval_curves(metrics, budgets)
    drawn = {
        "name": name,
        "x": steps.x,
        "y": steps.y,
        "rows_per_point": steps.rows_per_point,
        "evals": {"x": evals.x, "y": evals.y},
        "passk": [curve._asdict() for curve in pass_curves(record.path, metrics)],
        "spent": _spent(record, budgets),
        "events": _events(metrics, budgets),
        "groups": browser_groups(
            record.path, most_groups=MOST_GROUPS // runs, most_bytes=MOST_BYTES // runs
        ),
    }
    return Gathered(
        record,
        _cost(budgets),
        before_after(record.path, metrics),
        outlook(metrics, window=window_of(record.config)),
        budgets,
        drawn,
    )


def render(runs: Sequence[Gathered], refresh_s: int | None) -> str:
    """The page.

    Args:
        runs: at least one.
        refresh_s: let the browser read the file again after so many seconds; None for never.
    """
    drawn = [run.drawn for run in runs]
    panels = panels_for(drawn)
    common = [name for name in BUDGETS if all(name in run["x"] for run in drawn)]
    data = {
        "runs": drawn,
        "panels": [_panel(p) for p in panels],
        "budgets": {name: BUDGETS[name] for name in common},
        "bins": BINS,
    }
    style, script = _style(), _script()
    page: str = _template().render(
        title=" · ".join(run["name"] for run in drawn),
        refresh_s=refresh_s,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        sentences=sentences(*runs[0][:4]) if len(runs) == 1 else [],
        facts=facts(*runs[0][:3]) if len(runs) == 1 else [],
        events=[event["text"] for event in drawn[0]["events"]] if len(runs) == 1 else [],
        tables=_tables(runs),
        browser_note=_browser_note(runs),
        blocks=_blocks(runs),
        data=Markup(safe_json(data)),
    )
    return page


def _spent(record: RunRecord, budgets: dict[str, NDArray[np.float64]]) -> dict[str, Any] | None:
    found = spent_by_rate(record.path, most_steps=MOST_COLUMNS)
    if found is None:
        return None
    rows = {int(step): i for i, step in enumerate(budgets["step"])}
    at = [rows[step] for step in found.steps if step in rows]
    if len(at) != len(found.steps):  # rollouts of a step that a kill left without metrics
        keep = [i for i, step in enumerate(found.steps) if step in rows]
        found = found._replace(
            steps=[found.steps[i] for i in keep],
            generated=[found.generated[i] for i in keep],
            kept=[found.kept[i] for i in keep],
        )
    if not at:
        return None
    return found._asdict() | {"x": {name: axis[at].tolist() for name, axis in budgets.items()}}


def _events(
    metrics: Sequence[dict[str, Any]], budgets: dict[str, NDArray[np.float64]]
) -> list[dict[str, Any]]:
    """What changed the run on its way: resets of the reference policy, waves added."""
    found = []
    for i, row in enumerate(metrics):
        at = {name: float(axis[i]) for name, axis in budgets.items()}
        if row.get("ref/reset"):
            text = f"step {row['step']}: reference policy reset ({row.get('ref/reset_reason')})"
            found.append({"x": at, "text": text})
        if row.get("width/switch_widest") is not None:
            text = (
                f"step {row['step']}: a wave added, groups may grow to "
                f"{row['width/switch_widest']} ({row.get('width/switch_cause')})"
            )
            found.append({"x": at, "text": text})
    return found


def _cost(budgets: dict[str, NDArray[np.float64]]) -> Cost:
    def last(name: str) -> float | None:
        axis = budgets.get(name)
        return float(axis[-1]) if axis is not None and axis.size else None

    return Cost(last("generated"), last("kept"), last("seconds"))


def _panel(panel: Panel) -> dict[str, Any]:
    return panel._asdict() | {"metrics": [m._asdict() for m in panel.metrics]}


def _tables(runs: Sequence[Gathered]) -> list[Table]:
    arms = [
        Arm(run.drawn["name"], i, run.record, run.budgets, run.found) for i, run in enumerate(runs)
    ]
    more = paper_tables(arms)
    if len(runs) > 1:
        return [side_by_side([(run.drawn["name"], *run[:4]) for run in runs]), *more]
    return [before_after_table(runs[0].found), *more] if runs[0].found else more


def _browser_note(runs: Sequence[Gathered]) -> str:
    steps = sorted({g["step"] for run in runs for g in run.drawn["groups"]})
    if not steps:
        return ""
    thinned = [run.drawn["rows_per_point"] for run in runs]
    note = (
        f"Some groups of the last {STEPS} recorded steps, the most surprising first, with at most "
        f"{ANSWERS} distinct answers each. `brorl rollouts RUN --step S --problem P` shows any."
    )
    return note if max(thinned) == 1 else f"{note} Points of the curves are means over steps."


def _blocks(runs: Sequence[Gathered]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if len(runs) > 1:
        rows = differing([run.record.config for run in runs])
        names = ["setting", *(run.drawn["name"] for run in runs)]
        blocks.append(_block("settings that differ", columns=names, rows=rows, open_=True))
    for run in runs:
        name = f" · {run.drawn['name']}" if len(runs) > 1 else ""
        blocks.append(_block(f"config.yaml{name}", text=run.record.config_text))
        rows = list(flat(run.record.environment).items())
        blocks.append(_block(f"environment{name}", rows=rows))
    return blocks


def _block(
    title: str,
    *,
    text: str | None = None,
    columns: Sequence[str] = (),
    rows: Sequence[tuple[str, ...]] = (),
    open_: bool = False,
) -> dict[str, Any]:
    return {"title": title, "text": text, "columns": columns, "rows": rows, "open": open_}


def _asset(name: str) -> str:
    return (files("brorl.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return _asset("page.css")


@cache
def _script() -> str:
    """Our script files as one, in a scope of its own."""
    return "(() => {\n'use strict';\n" + "\n".join(map(_asset, _SCRIPTS)) + "\n})();\n"


@cache
def _template() -> Any:
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.from_string(_asset("page.html"))


def _hash(text: str) -> str:
    """As a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
