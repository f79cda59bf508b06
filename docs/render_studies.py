"""What the studies found, from studies/results alone: a paragraph each, and a table of all.

`python docs/render_studies.py` renders the blocks; `--check` only says whether documents are
current. `make studies STUDIES="width"` makes a result.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import blocks

RESULTS = blocks.ROOT / "studies" / "results"


@cache
def outcomes() -> dict[str, dict[str, Any] | None]:
    """Every study with its kept result, or None; NAME.WORD: a second one, with other knobs."""
    from brorl.studies.runner.outcome import RESULT, read_outcome
    from brorl.studies.runner.text import study_names

    kept = {path.parent.name for path in RESULTS.glob(f"*/{RESULT}")}
    names = sorted({*study_names(), *kept})
    return {name: read_outcome(RESULTS / name) if name in kept else None for name in names}


def knobs(name: str, result: dict[str, Any]) -> str:
    """What a second run of a study changed, as «with ...»; nothing for a first one."""
    if "." not in name:
        return ""
    from brorl.studies.runner.spec import make_spec

    usual = make_spec(result["study"]).knobs.model_dump(mode="json")
    changed = {k: v for k, v in result["spec"]["knobs"].items() if usual[k] != v}
    return " with " + ", ".join(f"`study.{k}={v}`" for k, v in changed.items())


def paragraphs() -> str:
    """Question, whether the prediction held, the numbers that say so, where the report is."""
    lines = []
    for name, result in outcomes().items():
        if result is None:
            continue
        lines.append(
            f"- **[{name}](studies/results/{name}/report.md)**: {title(name)} "
            f"*The prediction {verdict(result)}{knobs(name, result)}.* {result['because']} "
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

    return read_text(name.split(".")[0]).title


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


def evidence(name: str) -> str:
    """What a study measured, as a quotation under a sentence that leans on it."""
    result = outcomes()[name]
    if result is None:
        return f"> Study {name}: not yet run in full."
    report = f"../studies/results/{name}/report.md"
    says = f"the prediction {verdict(result)}{knobs(name, result)}"
    return f"> [{name}]({report}), {says}: {result['because']}"


def blocks_of() -> dict[str, Callable[[], str]]:
    """Every block by its name: `finding-NAME` for each study."""
    found = {f"finding-{name}": partial(evidence, name) for name in outcomes()}
    return {"studies-found": paragraphs, "studies-table": table, **found}


BLOCKS = blocks_of()

if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS))
