"""result.json of a study: everything that its report says, in plain values."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brorl.errors import DataError
from brorl.studies.runner.analysis import matched
from brorl.studies.runner.contract import BUDGETS, Chart, Findings, Study, Table
from brorl.studies.runner.results import Results, RunResult
from brorl.studies.runner.spec import Spec
from brorl.studies.runner.text import read_text

FORMAT, VERSION = "brorl-study", 1
RESULT = "result.json"
MEANS = (
    "dynamic_sampling/pass_rate",
    "groups/solved_none",
    "groups/solved_some",
    "groups/solved_all",
    "samples/kept_easy_share",
    "response/length_mean",
    "policy/entropy",
    "policy/lr",
    "policy/clipped_frac_high",
    "mismatch/k3",
    "throughput/generated_samples_per_s",
    "throughput/tokens_per_s",
)
"""Of a step's metrics, means over the steps of a run."""
PHASES = ("generate", "grade", "update", "eval", "other")


def make_result(
    spec: Spec,
    results: Results[Any],
    study: Study[Any],
    folder: Path,
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """Judge, and put everything together. A smoke run's `holds` is None: it is not for claims."""
    found: Findings = study.judge(results)
    because = found.because
    if spec.smoke:
        because = f"A smoke run decides nothing. Its sizes would have said: {because}"
    text = read_text(spec.study)
    return {
        "format": FORMAT,
        "version": VERSION,
        "study": spec.study,
        "smoke": spec.smoke,
        "holds": None if spec.smoke else found.holds,
        "because": because,
        "text": text._asdict(),
        "spec": spec.to_json(),
        "environment": dict(environment),
        "arms": [_arm(a, spec) for a in study.arms(spec.knobs)],
        "runs": [_run(run, folder) for run in results.runs.values()],
        "matched": {block: matched(part) for block, part in results.parts().items()},
        "match": results.knobs.match,
        "level": results.knobs.level,
        "problems": {block: len(part.problems) for block, part in results.parts().items()},
        "tables": [_table(t) for t in found.tables],
        "charts": [_chart(c) for c in found.charts],
        "figures": _plain(found.figures),
    }


def read_outcome(folder: Path) -> dict[str, Any]:
    """result.json of a study's folder. Raises DataError."""
    path = folder / RESULT
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT or found["version"] != VERSION:
            raise ValueError(f"format {found['format']!r}, version {found['version']!r}")
    except FileNotFoundError as error:
        raise DataError(f"{folder} has no {RESULT}: it is no finished study") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the result of a study: {error!r:.200}") from error
    assert isinstance(found, dict)
    return found


def _arm(arm: Any, spec: Spec) -> dict[str, Any]:
    return {
        "name": arm.name,
        "block": arm.block,
        "says": arm.says,
        "settings": _plain(arm.settings),
        "start": None if arm.start is None else _plain(arm.start),
        "factors": _plain(arm.factors),
    }


def _run(run: RunResult, folder: Path) -> dict[str, Any]:
    phases = {p: round(run.total(f"time/{p}"), 3) for p in PHASES}
    peaks = {m: run.largest(f"memory/{m}") for m in ("peak_rss", "kv_cache", "device_peak")}
    return {
        "arm": run.arm,
        "seed": run.seed,
        "path": str(run.path.relative_to(folder)),
        "ended": run.ended,
        "steps": run.metrics[-1]["step"],
        "totals": {b: round(v, 4) for b, v in run.totals.items()},
        "curve": {
            "spent": {
                b: [round(float(x), 4) for x in run.spent[b]] for b in BUDGETS if b in run.spent
            },
            "scores": _scores(run),
        },
        "means": {m: run.mean(m) for m in MEANS if run.mean(m) is not None},
        "seconds": phases,
        "memory": {m: v for m, v in peaks.items() if v is not None},
        "measured": _plain(run.measured),
    }


def _scores(run: RunResult) -> dict[str, list[float]]:
    """pass@1 and the widest pass@k of each evaluation."""
    rows = [row for row in run.metrics if "eval/pass@1" in row]
    found = (n.removeprefix("eval/pass@") for n in rows[-1] if n.startswith("eval/pass@"))
    widest = max(int(k) for k in found if k.isdecimal())
    return {f"pass@{k}": [round(r[f"eval/pass@{k}"], 6) for r in rows] for k in (1, widest)}


def _table(table: Table) -> dict[str, Any]:
    return table._asdict() | {"columns": list(table.columns), "rows": _plain(table.rows)}


def _chart(chart: Chart) -> dict[str, Any]:
    return chart._asdict() | {"lines": [_plain(line._asdict()) for line in chart.lines]}


def _plain(value: Any) -> Any:
    """numpy, tuples and mappings as JSON; numbers that are not finite as null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
