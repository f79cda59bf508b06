"""What the studies found, from studies/results alone: a paragraph each, and a table of all.

`python docs/render_studies.py` renders the blocks; `--check` only says whether documents are
current. `make studies STUDIES="width"` makes a result.
"""

import sys
from typing import Any

import blocks

RESULTS = blocks.ROOT / "studies" / "results"


def outcomes() -> dict[str, dict[str, Any] | None]:
    """Every study with its kept result, or None."""
    from brorl.studies.runner.outcome import RESULT, read_outcome
    from brorl.studies.runner.text import study_names

    return {
        name: read_outcome(RESULTS / name) if (RESULTS / name / RESULT).exists() else None
        for name in study_names()
    }


def paragraphs() -> str:
    """Question, whether the prediction held, the numbers that say so, where the report is."""
    lines = []
    for name, result in outcomes().items():
        if result is None:
            continue
        lines.append(
            f"- **[{name}](studies/results/{name}/report.md)**: {result['text']['title']} "
            f"*The prediction {verdict(result)}.* {result['because']} "
            f"({result['spec']['seeds']} seeds, {size(result)}.)" + more_seeds(result)
        )
    missing = [name for name, result in outcomes().items() if result is None]
    if missing:
        lines.append(f"- Not yet run in full: {', '.join(missing)}.")
    return "\n".join(lines)


def table() -> str:
    """One row a study: seeds, runs, minutes, whether the prediction held."""
    lines = [
        "| study | question | seeds | runs | minutes | prediction |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in outcomes().items():
        if result is None:
            lines.append(f"| {name} | {title(name)} | - | - | - | not yet run in full |")
            continue
        spent = result["environment"]["seconds"] / 60
        lines.append(
            f"| [{name}](../studies/results/{name}/report.md) | {title(name)} | "
            f"{result['spec']['seeds']} | {len(result['runs'])} | {spent:.0f} | {verdict(result)} |"
        )
    return "\n".join(lines)


def title(name: str) -> str:
    """A study's question in one line."""
    from brorl.studies.runner.text import read_text

    return read_text(name).title


def verdict(result: dict[str, Any]) -> str:
    """In words that follow «the prediction»."""
    return {True: "held", False: "failed", None: "could not be decided at this size"}[
        result["holds"]
    ]


def more_seeds(result: dict[str, Any]) -> str:
    """What would decide: seeds for the comparisons with the first arm that hold 0."""
    from brorl.studies.runner.report import MOST_SEEDS, open_differences

    told = open_differences(result)
    if result["holds"] is not None or not told:
        return ""
    known = sorted(s for s in told.values() if s is not None)
    beyond = len(told) - len(known)
    parts = []
    if known:
        span = f"{known[0]}" if known[0] == known[-1] else f"{known[0]} to {known[-1]}"
        parts.append(f"{span} seeds would tell {len(known)} of them from 0")
    if beyond:
        parts.append(f"{beyond} would stay open with {MOST_SEEDS:,}")
    total = sum(len(at[result["match"]]["comparisons"]) for at in result["matched"].values())
    return (
        f" Of {total} comparisons with a control at equal samples {len(told)} leave 0 open; were "
        f"differences and spread as seen, {' and '.join(parts)} (column «seeds to tell»)."
    )


def size(result: dict[str, Any]) -> str:
    """Runs and time."""
    where = result["environment"]
    return (
        f"{len(result['runs'])} runs, {where['seconds'] / 60:.0f} minutes on {where['cores']} cores"
    )


BLOCKS = {"studies-found": paragraphs, "studies-table": table}

if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS))
