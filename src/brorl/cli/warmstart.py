"""`brorl warmstart`: the supervised part of a recipe alone."""

import json

import typer

from brorl.cli.run import Json, Overrides


def warmstart(
    recipe: str = typer.Argument(help="A shipped recipe or a path to a YAML file."),
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Run a recipe's warm start and print the folder of its checkpoint.

    The folder is a Hugging Face checkpoint: model.path=FOLDER trains or evaluates it.

    Example: brorl warmstart quickstart seed=1
    """
    from brorl.cli.console import Console
    from brorl.train.api import warm_start_only

    with Console() as console:
        folder, rate = warm_start_only(recipe, overrides or [], progress=console)
    if as_json:
        typer.echo(json.dumps({"checkpoint": str(folder), "pass_rate": rate}))
    else:
        typer.echo(str(folder))
