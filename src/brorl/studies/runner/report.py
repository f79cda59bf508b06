"""report.html, report.md and PNG files of a study, rendered from its result.json alone."""

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError

from brorl.errors import ConfigError, DataError
from brorl.record.files import write_atomic
from brorl.stats.clustered import runs_to_tell
from brorl.stats.intervals import Interval
from brorl.studies.runner.analysis import at_amount, shown
from brorl.studies.runner.contract import BUDGETS, Plain, Table
from brorl.studies.runner.figure import draw_all
from brorl.studies.runner.outcome import read_outcome
from brorl.studies.runner.progress import clock

REPORT, MARKDOWN = "report.html", "report.md"
VERDICTS = {True: "holds", False: "refuted", None: "not decided"}
MOST_SEEDS = 1000
"""Beyond so many, a difference counts as out of reach."""


def write_study_report(folder: Path) -> Path:
    """Write the report beside result.json; replaces an older one.

    Raises:
        DataError: no result in the folder, or one that is not a study's.
        ConfigError: the folder cannot be written.
    """
    result = read_outcome(folder)
    try:
        figures = draw_all(result, folder)
        write_atomic(folder / MARKDOWN, markdown(result, figures))
        pictures = [
            (base64.b64encode((folder / name).read_bytes()).decode(), says)
            for name, says in figures
        ]
        write_atomic(folder / REPORT, _html(result, pictures))
    except OSError as error:
        raise ConfigError(f"{folder}: the report cannot be written: {error.strerror}") from error
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        TemplateError,
        TypeError,
        ValueError,
    ) as error:
        raise DataError(
            f"{folder}: its result is not what a study writes: {error!r:.200}"
        ) from error
    return folder / REPORT


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Those that every study has: decision budget, all budgets, spending, runs, arms."""
    of_study = [Table(**table) for table in result["tables"]]
    return [
        *(_comparisons(result, block) for block in result["matched"]),
        *of_study,
        *(_all_budgets(result, block) for block in result["matched"] if _spent(result, block)),
        *([_spending(result)] if any(_spent(result, b) for b in result["matched"]) else []),
        _arms(result),
        _runs(result),
    ]


def markdown(result: Mapping[str, Any], figures: Sequence[tuple[str, str]]) -> str:
    """The report as Markdown; figures are links to the PNG files beside it."""
    lines = [f"# Study {result['study']}: {result['text']['title']}", "", *_head(result), ""]
    for table in tables(result):
        lines += [f"## {table.title}", "", *_pipe(table), ""]
        if table.note:
            lines += [table.note, ""]
    for name, says in figures:
        lines += [f"![{says}]({name})", "", says, ""]
    return "\n".join(lines)


def cell(value: Plain | bool) -> str:
    """A value for the eye: floats with four significant digits, counts with commas."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return value


def facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was run, in words."""
    spec, where = result["spec"], result["environment"]
    rows = [
        ("runs", f"{len(result['runs'])}: {len(result['arms'])} arms, {spec['seeds']} seeds"),
        ("knobs", ", ".join(f"{k}={v}" for k, v in spec["knobs"].items())),
        ("held-out problems", ", ".join(f"{n:,}" for n in result["problems"].values())),
        ("time", f"{clock(where['seconds'])} on {where['cores']} cores"),
        ("budget", f"{spec['budget_minutes']:g} minutes" if spec["budget_minutes"] else "none set"),
        ("overrides", ", ".join(f"{k}={v}" for k, v in spec["overrides"].items()) or "none"),
        ("versions", f"brorl {where['brorl']}, torch {where['torch']}, Python {where['python']}"),
    ]
    cut = sum(run["ended"] == "max_seconds" for run in result["runs"])
    if cut:
        rows.append(("ended by the budget", f"{cut} of {len(result['runs'])} runs"))
    return rows


def _head(result: Mapping[str, Any]) -> list[str]:
    text = result["text"]
    parts = (
        ("Question", text["question"]),
        ("Prediction", text["prediction"]),
        ("Design", text["design"]),
        ("Decided by", text["decided_by"]),
        ("Cost", text["cost"]),
    )
    lines = [f"**The prediction: {VERDICTS[result['holds']]}.** {result['because']}", ""]
    lines += [f"- **{name}**: {words}" for name, words in parts]
    return [*lines, "", *(f"- {name}: {words}" for name, words in facts(result))]


def _spent(result: Mapping[str, Any], block: str) -> bool:
    """Whether arms of the block spent anything; those that are only measured did not."""
    return any(at["amount"] > 0 for at in result["matched"][block].values())


def _of_block(result: Mapping[str, Any], block: str) -> str:
    return "" if len(result["matched"]) == 1 else f"{block}: "


def _comparisons(result: Mapping[str, Any], block: str) -> Table:
    at = result["matched"][block][result["match"]]
    by = {c["b"]: c for c in at["comparisons"]}
    control = next(iter(at["levels"]))
    rows = []
    for arm in at["levels"]:
        c = by.get(arm)
        rows.append(
            [
                arm,
                shown(Interval(**at["levels"][arm])),
                _difference(c),
                c and c["p_holm"],
                ", ".join(f"{d:+.3f}" for d in c["per_seed"]) if c else None,
                _seeds_that_tell(result, block, c),
            ]
        )
    level = f"{100 * result['level']:g} %"
    return Table(
        f"{_of_block(result, block)}Held-out pass@1 at {at_amount(result['match'], at['amount'])}",
        ("arm", "pass@1", f"minus {control}", "p (Holm)", "each seed", "seeds to tell"),
        rows,
        f"{level} intervals; seeds and problems are both draws; differences are of runs that "
        "share a seed's start. Between two evaluations scores are linear in the budget. Seeds to "
        "tell: where the interval holds 0, how many would clear it of 0 on as many problems, were "
        "difference and spread as seen.",
    )


def open_differences(result: Mapping[str, Any]) -> dict[str, int | None]:
    """Seeds that each comparison with a control would take, where its interval holds 0.

    At the budget that the study matches on, by the name of the arm; None: no number up to 1,000.
    Where one seed alone was run nothing is known, and nothing is said.
    """
    return {
        c["b"]: seeds_to_tell(result, block, c)
        for block, budgets in result["matched"].items()
        for c in budgets[result["match"]]["comparisons"]
        if _is_open(c)
    }


def _is_open(c: Mapping[str, Any]) -> bool:
    """Whether the interval holds 0 and there are seeds to say how many more would tell."""
    return c["low"] <= 0 <= c["high"] and c["standard_error"]["seeds"] is not None


def seeds_to_tell(result: Mapping[str, Any], block: str, c: Mapping[str, Any]) -> int | None:
    """`stats.clustered.runs_to_tell` of a comparison of two seeds or more."""
    of = c["standard_error"]
    return runs_to_tell(
        c["value"],
        runs=len(c["per_seed"]),
        run_standard_error=of["seeds"],
        problem_standard_error=of["problems"],
        problems=result["problems"][block],
        level=result["level"],
        most=MOST_SEEDS,
    )


def _seeds_that_tell(
    result: Mapping[str, Any], block: str, c: Mapping[str, Any] | None
) -> str | None:
    if c is None or not _is_open(c):
        return None
    told = seeds_to_tell(result, block, c)
    return f"{told:,}" if told else f"> {MOST_SEEDS:,}"


def _all_budgets(result: Mapping[str, Any], block: str) -> Table:
    arms = [arm["name"] for arm in result["arms"] if arm["block"] == block]
    rows = []
    for budget, at in result["matched"][block].items():
        by = {c["b"]: c for c in at["comparisons"]}
        first = shown(Interval(**at["levels"][arms[0]]))
        mark = " (matched)" if budget == result["match"] else ""
        rows.append(
            [at["name"] + mark, at["amount"], first, *(_difference(by[arm]) for arm in arms[1:])]
        )
    return Table(
        f"{_of_block(result, block)}At equal amounts of every budget",
        ("budget", "amount a run", arms[0], *(f"{arm} minus {arms[0]}" for arm in arms[1:])),
        rows,
        "Each row compares the arms where all had spent as much as the one that spent least. "
        "Intervals as above.",
    )


def _spending(result: Mapping[str, Any]) -> Table:
    budgets = [b for b in BUDGETS if all(b in run["totals"] for run in result["runs"])]
    rows = []
    for arm in result["arms"]:
        runs = [r for r in result["runs"] if r["arm"] == arm["name"]]
        spent = [sum(r["totals"][b] for r in runs) / len(runs) for b in budgets]
        scores = [r["curve"]["scores"]["pass@1"][-1] for r in runs]
        rows.append([arm["name"], *spent, sum(scores) / len(scores)])
    return Table(
        "What a run spent, and where it ended",
        ("arm", *(BUDGETS[b] for b in budgets), "pass@1 at its end"),
        rows,
        "Means over seeds. Budgets that are not matched differ: read the last column with them.",
    )


def _arms(result: Mapping[str, Any]) -> Table:
    rows = [
        [
            arm["name"],
            arm["says"],
            ", ".join(f"{k}={v}" for k, v in arm["settings"].items()) or "none",
            ", ".join(f"{k}={v}" for k, v in (arm["start"] or {}).items()) or "warm start",
        ]
        for arm in result["arms"]
    ]
    return Table("Arms", ("arm", "what", "settings", "begins from"), rows)


def _runs(result: Mapping[str, Any]) -> Table:
    rows = []
    for run in result["runs"]:
        scores = run["curve"]["scores"]
        widest = max(int(name.removeprefix("pass@")) for name in scores)
        rows.append(
            [
                run["path"],
                run["steps"],
                run["ended"],
                scores["pass@1"][0],
                scores["pass@1"][-1],
                f"@{widest}: {scores[f'pass@{widest}'][-1]:.3f}",
                run["means"].get("dynamic_sampling/pass_rate"),
                run["means"].get("samples/kept_easy_share"),
                sum(run["seconds"].values()),
            ]
        )
    columns = (
        "run",
        "steps",
        "ended by",
        "pass@1 before",
        "after",
        "pass@k after",
        "groups kept",
        "kept from easy prompts",
        "seconds",
    )
    return Table("Runs", columns, rows, "Shares are means over steps; easy: at least 90 % right.")


def _difference(comparison: Mapping[str, Any] | None) -> str | None:
    if comparison is None:
        return None
    return shown(Interval(*(comparison[x] for x in ("value", "low", "high"))), signed=True)


def _pipe(table: Table) -> list[str]:
    def row(values: Sequence[Any]) -> str:
        return "| " + " | ".join(cell(v).replace("|", "\\|") for v in values) + " |"

    return [row(table.columns), row(["---"] * len(table.columns)), *(row(r) for r in table.rows)]


def _html(result: Mapping[str, Any], pictures: Sequence[tuple[str, str]]) -> str:
    template = (files("brorl.studies.runner") / "report.html.jinja").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    page: str = environment.from_string(template).render(
        result=result,
        verdict=VERDICTS[result["holds"]],
        facts=facts(result),
        tables=tables(result),
        cell=cell,
        pictures=pictures,
    )
    return page
