"""`brorl rollouts`: the recorded answers of a step, by group, on the terminal."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brorl.report.groups import Answer, Group
    from brorl.report.lookup import Found

_ID, _ANSWER, _PROMPT, _TEXT = 60, 40, 800, 1200  # characters shown


def rollouts(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    step: Annotated[
        int | None,
        typer.Option(help="Step to show; the newest one (with the problem) where not given."),
    ] = None,
    problem: Annotated[
        str | None, typer.Option(help="Id of a problem or a group: show its distinct answers.")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Most groups, or most distinct answers of a group.")
    ] = 20,
    hacking: Annotated[
        bool,
        typer.Option("--hacking", help="Show how far the rewarded score has left the true one."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """Show the groups of a step, or the distinct answers to one problem.

    Groups stand by kind of surprise: rare successes, agreement on a wrong answer, and so on; a
    limit takes some of every kind. With --hacking: the best of n by the rewarded score (a proxy,
    where reward.source is one), its true score, and the share that is paid and not right.

    Example: brorl rollouts runs/quickstart --step 40 --problem spell_backward/train/67108985
    """
    from brorl.errors import ConfigError
    from brorl.report.lookup import find_groups
    from brorl.report.surprise import pick

    if limit < 1:
        raise ConfigError(f"--limit needs at least 1, got {limit}")
    if hacking and problem is not None:
        raise ConfigError("--hacking is of a whole step: leave --problem out")
    found = find_groups(run, step=step, problem=problem)
    if hacking:
        from brorl.cli.rollouts_hacking import measured, plain, text

        shown = found.step.step
        drift = measured(run, shown)
        typer.echo(json.dumps(plain(drift, run, shown)) if as_json else text(drift, shown))
        return
    if problem is not None:
        typer.echo(json.dumps(_answers_json(found, limit)) if as_json else _answers(found, limit))
        return
    picks = pick(found.groups, limit)
    left_out = len(found.groups) - len(picks)
    if as_json:
        groups = [{"surprise": p.kind} | _group_json(p.group) for p in picks]
        typer.echo(json.dumps(_head(found) | {"groups": groups, "left_out": left_out}))
        return
    typer.echo(_table(found.step.step, [(p.kind, p.group) for p in picks]))
    if left_out:
        typer.echo(f"{left_out} more groups; --limit {len(found.groups)} shows all")


def _table(step: int, rows: list[tuple[str, "Group"]]) -> str:
    from brorl.evaluate.render import Table, to_text
    from brorl.report.text import one_line

    columns = ("problem", "group", "n", "right", "distinct", "top", "top answer", "outcome")
    cells = tuple(
        (
            one_line(g.problem_id, _ID),
            one_line(g.group_id.removeprefix(g.problem_id), _ID),
            str(g.n),
            str(g.right),
            str(g.distinct),
            f"{100 * g.top_share:.0f} %",
            one_line(g.top_answer or "-", _ANSWER),
            g.outcome,
            g.why,
            kind,
        )
        for kind, g in rows
    )
    return to_text(Table(f"step {step}", (*columns, "kept", "kind"), cells))


def _answers(found: "Found", limit: int) -> str:
    from brorl.report.text import one_line, printable, shorten

    lines = []
    for group in found.groups:
        answers = found.step.answers([group.group_id])[group.group_id]
        head = found.step.rows([group.first_row], ["prompt", "gold"])[group.first_row]
        samples = found.step.rows([a.row for a in answers[:limit]], ["text", "reason"])
        lines += [
            f"step {found.step.step}  {one_line(group.problem_id, _ID)}",
            f"group    {one_line(group.group_id, _ID)}",
            f"answers  {group.n}, {group.right} right, {group.distinct} distinct; {group.why}",
            f"prompt   {_indented(printable(shorten(head['prompt'], _PROMPT)))}",
            f"gold     {one_line(head['gold'], _PROMPT) if head['gold'] is not None else '-'}",
            "",
        ]
        told = None
        for answer in answers[:limit]:
            sample = samples[answer.row]
            lines.append(_answer_line(answer, group))
            lines.append(f"         {_indented(printable(shorten(sample['text'], _TEXT)))}")
            if sample["reason"] and sample["reason"] != told:
                told = sample["reason"]
                lines.append(f"         ({one_line(sample['reason'], _PROMPT)})")
        if len(answers) > limit:
            lines.append(f"{len(answers) - limit} more distinct answers; --limit shows more")
        lines.append("")
    return "\n".join(lines).rstrip("\n")


def _answer_line(answer: "Answer", group: "Group") -> str:
    from brorl.report.text import one_line

    verdicts = sorted(answer.verdicts.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(kind if len(verdicts) == 1 else f"{kind} {n}" for kind, n in verdicts)
    advantage = "-" if answer.advantage is None else f"{answer.advantage:+.3f}"
    return (
        f"{answer.votes:>6}×  {100 * answer.votes / group.n:>5.1f} %  {told:<12}  "
        f"advantage {advantage:>7}  {one_line(answer.answer, _ANSWER)}"
    )


def _indented(text: str) -> str:
    return text.replace("\n", "\n         ")


def _head(found: "Found") -> dict[str, Any]:
    return {"run": str(found.step.run), "step": found.step.step}


def _group_json(group: "Group") -> dict[str, Any]:
    fields = group._asdict()
    del fields["first_row"]
    return fields | {"outcome": group.outcome, "why": group.why}


def _answers_json(found: "Found", limit: int) -> dict[str, Any]:
    groups = []
    by_group = found.step.answers([g.group_id for g in found.groups])
    for group in found.groups:
        answers = by_group[group.group_id]
        head = found.step.rows([group.first_row], ["prompt", "gold"])[group.first_row]
        samples = found.step.rows([a.row for a in answers[:limit]], ["text", "reason", "stop"])
        shown = [_answer_json(a) | samples[a.row] for a in answers[:limit]]
        left_out = len(answers) - len(shown)
        groups.append(_group_json(group) | head | {"answers": shown, "left_out": left_out})
    return _head(found) | {"groups": groups}


def _answer_json(answer: "Answer") -> dict[str, Any]:
    return {
        "answer": answer.answer,
        "count": answer.votes,
        "right": answer.right,
        "verdicts": answer.verdicts,
        "advantage": answer.advantage,
        "sample_index": answer.sample_index,
    }
