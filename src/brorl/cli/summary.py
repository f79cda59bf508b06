"""The table at the end of a run: before, after, samples, seconds by phase, the report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brorl.record.metrics import read_metrics


def summary(run: Path, result: Mapping[str, Any]) -> str:
    """Plain text of a finished run, from its recorded metrics."""
    lines = [f"run      {run}", f"steps    {result['steps']}"]
    lines.append(
        f"samples  {result['samples_generated']:,} generated, {result['samples_kept']:,} kept"
    )
    seconds = result["seconds"]
    phases = ", ".join(f"{k} {v:.1f}" for k, v in seconds.items() if k != "total")
    lines.append(f"seconds  {seconds['total']:.1f} ({phases})")
    evals = [r for r in read_metrics(run) if "eval/pass@1" in r]
    if evals:
        lines += ["", f"held-out, {evals[-1]['eval/problems']} problems, 95 % intervals"]
        lines += _table(evals[0], evals[-1])
        best = max(evals, key=lambda row: row["eval/pass@1"])
        lines.append(f"best held-out pass@1 {best['eval/pass@1']:.3f} after step {best['step']}")
    if (run / "report.html").exists():
        lines += ["", f"report   {run / 'report.html'}"]
    return "\n".join(lines)


def _table(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    ks = sorted(
        int(name.removeprefix("eval/pass@"))
        for name in after
        if name.startswith("eval/pass@") and not name.endswith(("_low", "_high"))
    )
    head = f"{'':>8}  {'before':^22}  {'after':^22}"
    rows = [head]
    for k in ks:
        cells = "  ".join(_cell(row, k) for row in (before, after))
        rows.append(f"{f'pass@{k}':>8}  {cells}")
    return rows


def _cell(row: Mapping[str, Any], k: int) -> str:
    name = f"eval/pass@{k}"
    if name not in row:
        return f"{'-':^22}"
    return f"{row[name]:.3f} [{row[name + '_low']:.3f}, {row[name + '_high']:.3f}]".center(22)
