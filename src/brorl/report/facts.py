"""The words and tables at the head of a page: what was run, what it bought, what it cost."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from brorl.report.heldout import BeforeAfter
from brorl.report.load import RunRecord
from brorl.report.outlook import Outlook, describe, waiting, window_of
from brorl.stats.intervals import Interval


class Part(NamedTuple):
    """Text and its tone: "up" for a gain, "down" for a loss, "run3" for run 3's colour, or ""."""

    text: str
    tone: str = ""


class Table(NamedTuple):
    """A table of the page's head; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Part, ...], ...]
    note: str = ""
    title: str = ""


class Cost(NamedTuple):
    """What a run spent; None where its metrics do not tell."""

    generated: float | None
    kept: float | None
    seconds: float | None  # evaluation left out


PAIRED = (
    "95 % intervals over problems; the change is paired: after minus before on the same problems."
)


_PROGRESS = "Progress: the trend of held-out pass@1, and what the records suggest next."


def sentences(
    record: RunRecord, cost: Cost, found: BeforeAfter | None, outlook: Outlook | None
) -> list[list[Part]]:
    """What a reader wants to know first."""
    said = [_progress(record, cost), _gain(found)]
    window = window_of(record.config)
    last = describe(outlook) if outlook else waiting(record.metrics, window=window)
    return said if last is None else [*said, [Part(_capital(last))]]


def facts(record: RunRecord, cost: Cost, found: BeforeAfter | None) -> list[tuple[str, str]]:
    """Name and value of what identifies a run and what it cost."""
    model = record.environment.get("model", {})
    rows = [
        ("task", record.task),
        ("policy", _policy(model)),
        ("rollouts a prompt", width(record.config)),
        ("prompts a step", _count(record.config.get("prompts_per_step"))),
        ("samples generated", _count(cost.generated)),
        ("samples kept", _count(cost.kept)),
        ("best evaluation", _best(record)),
        ("samples per point gained", _per_point(cost.generated, found)),
        ("seconds per point gained", _per_point(cost.seconds, found)),
        ("device", str(record.environment.get("device_name", "")) or None),
    ]
    return [(name, value) for name, value in rows if value is not None]


def before_after_table(found: BeforeAfter) -> Table:
    """One run: a row a k."""
    if found.lines[0].after is None:
        note = f"{found.problems:,} held-out problems; 95 % intervals over problems."
        return Table(
            ("", f"step {found.first_step}"),
            tuple((Part(f"pass@{x.k}"), Part(_cell(x.before))) for x in found.lines),
            note,
        )
    columns = ("", f"before (step {found.first_step})", f"after (step {found.last_step})", "change")
    rows = tuple(
        (
            Part(f"pass@{x.k}"),
            Part(_cell(x.before)),
            Part(_cell(x.after)),
            Part(_signed(x.change), tone(x.change)),
        )
        for x in found.lines
    )
    return Table(columns, rows, f"{found.problems:,} held-out problems; {PAIRED}")


def side_by_side(
    runs: Sequence[tuple[str, RunRecord, Cost, BeforeAfter | None, Outlook | None]],
) -> Table:
    """Several runs: a row a run."""
    columns = (
        "run",
        "N",
        "steps",
        "generated",
        "kept",
        "seconds",
        "pass@1 before",
        "pass@1 after",
        "change",
        "pass@k after",
        "progress",
    )
    rows = tuple(_run_row(i, *run) for i, run in enumerate(runs))
    return Table(columns, rows, f"{PAIRED} pass@k: the largest k that is recorded. {_PROGRESS}")


def width(config: Mapping[str, Any]) -> str | None:
    """`64`, `16 → 64 → 256` for adaptive waves, `auto: 16 → 64` for waves that come by rule."""
    rollout = config.get("rollout") or {}
    waves = rollout.get("waves")
    if waves == "auto":
        ladder = (rollout.get("auto") or {}).get("ladder") or []
        return f"auto: {' → '.join(str(w) for w in ladder)}"
    if waves:
        return " → ".join(str(w) for w in waves)
    return _count(rollout.get("n"))


def flat(settings: Mapping[str, Any], stem: str = "") -> dict[str, str]:
    """Nested settings as dotted keys, in order."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{stem}{key}.")
        else:
            found[f"{stem}{key}"] = _plain(value)
    return found


def differing(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Settings that are not equal in all runs: the key, then a value a run. Names are left out."""
    all_flat = [flat(config) for config in configs]
    keys = [
        k for k in dict.fromkeys(k for f in all_flat for k in f) if k not in {"name", "run_dir"}
    ]
    rows = [(key, *(f.get(key, "–") for f in all_flat)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _capital(text: str) -> str:
    """A sentence of it."""
    return f"{text[:1].upper()}{text[1:]}."


def tone(change: Interval | None) -> str:
    """up or down where the whole interval is on one side of 0."""
    if change is None:
        return ""
    return "up" if change.low > 0 else "down" if change.high < 0 else ""


def _progress(record: RunRecord, cost: Cost) -> list[Part]:
    if not record.metrics:
        return [Part("Nothing is recorded yet.")]
    text = f"{record.last_step} of {record.planned_steps} steps"
    if cost.generated is not None:
        text += f", {cost.generated:,.0f} rollouts"
    if cost.seconds is not None:
        text += f", {cost.seconds:,.0f} s without evaluation"
    if not record.finished:
        text += "; the run is going on, or was stopped and can be resumed"
    return [Part(f"{text}.")]


def _gain(found: BeforeAfter | None) -> list[Part]:
    if found is None:
        return [Part("No held-out evaluation is recorded.")]
    first = found.lines[0]
    if first.after is None:
        return [
            Part(
                f"Held-out pass@1 is {_cell(first.before)} at step {found.first_step}; "
                "there is no later evaluation to compare it with."
            )
        ]
    ends = [first] if len(found.lines) == 1 else [first, found.lines[-1]]
    parts: list[Part] = []
    for line in ends:
        assert line.after is not None
        start = "Held-out pass" if line is first else "; pass"
        parts.append(Part(f"{start}@{line.k} {line.before.value:.3f} → {line.after.value:.3f}"))
        if line.change is not None:
            parts += [Part(" ("), Part(_signed(line.change), tone(line.change)), Part(")")]
    return [*parts, Part(".")]


def _run_row(
    number: int,
    name: str,
    record: RunRecord,
    cost: Cost,
    found: BeforeAfter | None,
    outlook: Outlook | None,
) -> tuple[Part, ...]:
    first = found.lines[0] if found else None
    last = found.lines[-1] if found else None
    change = first.change if first else None
    return (
        Part(name, f"run{number % 8}"),
        Part(width(record.config) or "–"),
        Part(f"{record.last_step} of {record.planned_steps}"),
        *(Part(_count(value) or "–") for value in cost),
        Part(_cell(first.before if first else None)),
        Part(_cell(first.after if first else None)),
        Part(_signed(change), tone(change)),
        Part(f"@{last.k}: {_cell(last.after or last.before)}" if last else "–"),
        Part(f"{outlook.found.trend}: {outlook.suggests}" if outlook else "–"),
    )


def _per_point(spent: float | None, found: BeforeAfter | None) -> str | None:
    """Spent for each hundredth of held-out pass@1; only where there is a gain beyond doubt."""
    change = found.change(1) if found else None
    if spent is None or change is None or change.low <= 0:
        return None
    return (
        f"{spent / (100 * change.value):,.3g}"
        if spent < 1000
        else _count(spent / (100 * change.value))
    )


def _policy(model: Mapping[str, Any]) -> str | None:
    if not model:
        return None
    count = model.get("parameters")
    size = f", {count:,} parameters" if isinstance(count, int) else ""
    return f"{model.get('source', 'unknown')}{size}"


def _best(record: RunRecord) -> str | None:
    best = record.best
    if not best or "step" not in best or "pass@1" not in best:
        return None
    return f"step {best['step']}, pass@1 {best['pass@1']:.3f}"


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _cell(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _signed(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]".replace("-", "−")


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
