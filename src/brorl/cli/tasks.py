"""`brorl tasks list | show | sample | check`: parse, call, print."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brorl.cli.run import Json, Overrides

if TYPE_CHECKING:
    from brorl.tasks.check import TaskCheck
    from brorl.tasks.problem import Task

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Where prompts come from, and whether a verifier can be trusted with them.",
    epilog="Begin with: brorl tasks sample spell_backward",
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="A task's name, a data file (.jsonl, .json, .parquet) or hub:OWNER/NAME, or a recipe.",
    ),
]
_FILES = (".jsonl", ".json", ".parquet", ".gz")


@app.command("list", epilog="Example: brorl tasks list --json")
def list_tasks(as_json: Json = False) -> None:
    """Every named task, and the verifiers that own data can use."""
    from brorl.tasks.build import VERIFIERS
    from brorl.tasks.describe import describe_all

    rows = describe_all()
    verifiers = sorted([*VERIFIERS, "code"])
    if as_json:
        typer.echo(json.dumps({"tasks": rows, "verifiers": verifiers}))
        return
    for row in rows:
        typer.echo(f"{row['name']:<28} {row['category']:<12} {row['note']}".rstrip())
    typer.echo(f"\nverifiers: {', '.join(verifiers)}, module:function, file.py:function")


@app.command("show", epilog="Example: brorl tasks show countdown")
def show(
    name: Annotated[str, typer.Argument(help="A task's name, see `brorl tasks list`.")],
    as_json: Json = False,
) -> None:
    """What one named task is: its settings, how it is judged, and an example."""
    from brorl.tasks.describe import describe

    found = describe(name)
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{found['name']} ({found['category']})")
    typer.echo(f"judged by: {found['judged_by']}")
    for section in ("settings", "config"):
        for key, value in found[section].items():
            typer.echo(f"  task.{'config.' if section == 'config' else ''}{key} = {value!r}")
    if found["example"]:
        typer.echo(f"\n{found['example']['prompt']}\n--> {found['example']['gold']}")


@app.command("sample", epilog="Example: brorl tasks sample gcd config.max_num=99 -n 3")
def sample(
    task: Source,
    overrides: Overrides = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many problems.")] = 3,
    split: Annotated[str, typer.Option(help="train, eval or warmstart.")] = "train",
    as_json: Json = False,
) -> None:
    """The first problems of a split, as the policy and the verifier will see them."""
    from brorl.errors import ConfigError

    if split not in ("train", "eval", "warmstart"):
        raise ConfigError(f"--split must be train, eval or warmstart, got {split!r}")
    problems = _open(task, overrides or [], n).problems(split)[:n]  # type: ignore[arg-type]  # above
    rows = [
        {"id": p.id, "prompt": p.prompt, "gold": p.gold, "worked": p.worked, "row": p.row}
        for p in problems
    ]
    if as_json:
        typer.echo(json.dumps({"task": task, "split": split, "problems": rows}))
        return
    for row in rows:
        typer.echo(f"[{row['id']}]\n{row['prompt']}\n--> {row['gold']}\n")


@app.command("check", epilog="Example: brorl tasks check rows.jsonl verifier=math prompt=question")
def check(
    task: Source,
    overrides: Overrides = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many problems to look at.")] = 64,
    seed: Annotated[int, typer.Option(help="Which ones.")] = 0,
    deadline: Annotated[float, typer.Option(help="Seconds that one grading may take.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Whether a task's verifier takes the task's own golds, and no junk.

    Exit status: 0 valid; 1 not valid, nothing should be trained on it; 2 bad input.
    """
    from brorl.tasks.check import check_task

    opened = _open(task, overrides or [], n)
    result = check_task(opened, sample=n, seed=seed, deadline_s=deadline)
    if as_json:
        typer.echo(json.dumps({"task": task, **_plain(result)}))
    else:
        typer.echo(_in_words(result))
    if not result.valid:
        raise typer.Exit(1)


def _open(task: str, overrides: Sequence[str], size: int) -> "Task":
    """A task by name, by file or from a recipe; named ones only as large as `size` needs.

    Raises:
        ConfigError: an override that is not KEY=VALUE, or what `build_task` refuses.
    """
    from brorl.tasks.build import build_task, task_names

    if task in task_names():
        sizes = {"train_size": size, "eval_size": size, "warmstart_size": size}
        values: dict[str, Any] = {"name": task, **(sizes if task != "mixture" else {})}
        return build_task(_merged(values, overrides, "task"), {})
    if task.startswith("hub:") or task.endswith(_FILES):
        return build_task({}, _merged({"train": task}, overrides, "data"))
    from brorl.train.recipe import load_recipe

    settings = load_recipe(task, overrides)
    own = settings.data.model_dump() if settings.data.train else {}
    return build_task(settings.task or {}, own)


def _merged(values: dict[str, Any], overrides: Sequence[str], section: str) -> dict[str, Any]:
    """Overrides like config.max_num=9 or data.verifier=math; the section may be left out."""
    import yaml

    from brorl.errors import ConfigError

    for text in overrides:
        key, equals, value = text.partition("=")
        path = key.removeprefix(f"{section}.").split(".")
        if not equals or not all(path):
            raise ConfigError(f"need KEY=VALUE, got {text!r}")
        inside = values
        for step in path[:-1]:
            inside = inside.setdefault(step, {})
            if not isinstance(inside, dict):
                raise ConfigError(f"{text!r}: {step} is no section")
        try:
            inside[path[-1]] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"{text!r}: the value is no YAML") from error
    return values


def _plain(result: "TaskCheck") -> dict[str, Any]:
    def rows(refusals: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "id": r.problem_id,
                "text": r.text,
                "verdict": r.verdict.kind,
                "reason": r.verdict.reason,
            }
            for r in refusals
        ]

    return {
        "valid": result.valid,
        "checked": result.checked,
        "accepted": result.accepted,
        "without_gold": result.without_gold,
        "refused": rows(result.refused),
        "paid_junk": rows(result.paid_junk),
    }


def _in_words(result: "TaskCheck") -> str:
    lines = [f"{result.accepted} of {result.checked} golds accepted by their own verifier"]
    if result.without_gold:
        lines.append(f"{result.without_gold} problems have no gold: only a scorer judges them")
    for title, refusals in (("refused", result.refused), ("paid junk", result.paid_junk)):
        for each in refusals[:10]:
            lines.append(f"{title}: {each.problem_id}: {each.text[:80]!r}: {each.verdict.reason}")
        if len(refusals) > 10:
            lines.append(f"{title}: and {len(refusals) - 10} more")
    lines.append("valid" if result.valid else "not valid: nothing should be trained on this task")
    return "\n".join(lines)
