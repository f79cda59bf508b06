"""`brorl plan`: what a recipe asks for, before anything starts."""

import json
from typing import Annotated

import typer

from brorl.cli.run import Json, Overrides


def plan(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a path to a YAML file.")],
    overrides: Overrides = None,
    prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a typical prompt; the data is not opened.")
    ] = 256,
    as_json: Json = False,
) -> None:
    """Count prompts, samples, updates, memory, disk and grading of one step, without the model.

    Example: brorl plan brorl rollout.n=256 --prompt-tokens 512
    """
    from brorl.train.plan import Plan
    from brorl.train.plan import plan as make_plan
    from brorl.train.recipe import load_recipe

    made: Plan = make_plan(load_recipe(recipe, overrides or []), prompt_tokens=prompt_tokens)
    if as_json:
        typer.echo(json.dumps(made.to_json()))
        return
    width = f"{made.rollout_n}" if made.waves is None else f"waves {made.waves}"
    rows = [
        ("rollouts a prompt", width),
        ("prompts a step", f"{made.prompts_per_step:,}"),
        ("samples in the update", f"{made.samples_per_step:,} at most"),
        (
            "samples generated",
            f"{made.samples_generated_least:,} to {made.samples_generated_most:,} "
            "(every group kept; every round used)",
        ),
        ("tokens in the update", f"{made.tokens_per_step_most:,} at most"),
        (
            "updates a step",
            f"{made.updates_per_step} of {made.samples_per_update:,} samples",
        ),
        ("learning rate", made.lr_derivation),
        ("rows a sampling wave", f"{made.rows_per_wave:,}"),
        ("parameters", f"{made.parameters:,}"),
        *((f"memory, {part}", _bytes(value)) for part, value in made.memory_bytes.items()),
        ("disk a step", f"{_bytes(made.disk_bytes_per_step)} at most"),
        ("grader calls", f"{made.grader_calls:,} to {made.samples_generated_most:,}"),
    ]
    for p, samples in (made.samples_per_prompt_expected or {}).items():
        rows.append((f"expected samples at p={p}", f"{samples:.1f}"))
    typer.echo(f"plan of {made.recipe}, prompts of {made.prompt_tokens} tokens")
    for name, value in rows:
        typer.echo(f"  {name:<26} {value}")
    for warning in made.warnings:
        typer.echo(f"  warning: {warning}")


def _bytes(value: int) -> str:
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.2f} TiB"
