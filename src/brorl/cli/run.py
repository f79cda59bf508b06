"""`brorl train` and `brorl resume`: parse, call, print."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Dotted overrides, e.g. rollout.n=512."),
]


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a path to a YAML file.")],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Train a policy with wide rollouts.

    Example: brorl train quickstart rollout.n=128 seed=1
    """
    from brorl.cli.console import Console
    from brorl.train.recipe import load_recipe

    load_recipe(recipe, overrides or [])  # a mistake is told before torch is imported
    from brorl.train.api import train as run_train

    with Console() as console:
        result = run_train(recipe, overrides or [], progress=console)
    _print(result, as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Go on with a run from its newest checkpoint, as if it had never stopped.

    Example: brorl resume runs/quickstart steps=120
    """
    from brorl.cli.console import Console
    from brorl.train.api import resume as run_resume

    with Console() as console:
        result = run_resume(run, overrides or [], progress=console)
    _print(result, as_json)


def _print(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    from brorl.cli.summary import summary

    typer.echo(summary(Path(result["run"]), result))
