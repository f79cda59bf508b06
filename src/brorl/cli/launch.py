"""`brorl launch`: the same recipe on verl, on a local or an existing Ray cluster."""

import json
from pathlib import Path
from typing import Annotated

import typer

from brorl.cli.run import Json, Overrides


def launch(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a path to a YAML file.")],
    overrides: Overrides = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs of each machine.")] = 1,
    ray_address: Annotated[
        str | None, typer.Option(help="A running Ray cluster: HOST:PORT or auto.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write everything and start nothing.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder, seen by every node.", show_default=False)
    ] = None,
    max_prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of the longest prompt.")
    ] = 1024,
    verl: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of verl that the recipe leaves open."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile a recipe for verl and start verl's own trainer on Ray.

    The same command on the same folder goes on from the newest checkpoint.

    Example: brorl launch brorl data.train=math.jsonl --nodes 8 --gpus-per-node 8 --dry-run
    """
    from brorl.train.api import run_path
    from brorl.train.recipe import load_recipe
    from brorl.verl import start
    from brorl.verl.compile import Cluster, compile_recipe
    from brorl.verl.overrides import parsed
    from brorl.verl.prepare import prepare, table

    settings = load_recipe(recipe, overrides or [])
    cluster = Cluster(nodes, gpus_per_node, ray_address, max_prompt_tokens)
    run = (out or run_path(settings)).resolve()
    compiled = compile_recipe(settings, run, cluster, dict(map(parsed, verl or [])))
    if not dry_run:
        start.check_versions()
    prepare(compiled, run)
    if not dry_run:
        start.fetch_model(compiled, run)
        start.check_cluster(compiled, cluster)
        start.run_verl(compiled.command(), run)
    if as_json:
        found = {
            "run": str(run),
            "verl": compiled.verl,
            "brorl": compiled.brorl,
            "not_used": compiled.not_used,
            "unmapped": compiled.unmapped,
            "command": compiled.command(),
        }
        typer.echo(json.dumps(found))
        return
    if dry_run:
        typer.echo(table(compiled))
        typer.echo(f"written to {run}; start it with: sh {run / 'command.sh'}")
    else:
        typer.echo(f"run {run}")
