"""`brorl simulate`: parse, call, print."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brorl.cli.run import Json

if TYPE_CHECKING:
    from brorl.simulator.curves import Progress as OnSteps
    from brorl.simulator.flat import Cell


def simulate(
    axes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=V1,V2]...", help="Axes of --sweep, e.g. eps=1e-8,1e-20."),
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Simulate every combination of the axes given.")
    ] = False,
    n: Annotated[str | None, typer.Option(help="Draws a step. Default: 4,8,16,512,51200.")] = None,
    steps: Annotated[str | None, typer.Option(help="Default: 1000.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Replicates of every width. Default: 1.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Root of every random stream. Default: 0.")
    ] = None,
    vocab: Annotated[str | None, typer.Option(help="Tokens. Default: 128000.")] = None,
    correct: Annotated[str | None, typer.Option(help="Correct tokens. Default: 10000.")] = None,
    reward_correct: Annotated[str | None, typer.Option(help="Default: 1.")] = None,
    reward_wrong: Annotated[str | None, typer.Option(help="Default: -1.")] = None,
    init: Annotated[
        str | None,
        typer.Option(help="Initial distribution: seeded, uniform, zipf, file. Default: seeded."),
    ] = None,
    correct_logit: Annotated[str | None, typer.Option(help="Of seeded. Default: 3.")] = None,
    anchor_logit: Annotated[str | None, typer.Option(help="Of seeded. Default: 5.")] = None,
    anchor_correct: Annotated[
        str | None, typer.Option(help="Of seeded: is the anchor correct? Default: true.")
    ] = None,
    zipf_exponent: Annotated[str | None, typer.Option(help="Of zipf. Default: 1.")] = None,
    zipf_order: Annotated[
        str | None, typer.Option(help="Of zipf: shuffled or ranked. Default: shuffled.")
    ] = None,
    init_file: Annotated[
        str | None,
        typer.Option(help="Of file: .npy or text, a number per token, correct tokens first."),
    ] = None,
    init_values: Annotated[
        str | None, typer.Option(help="Of file: probs or logits. Default: probs.")
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="adamw, sgd (dz = -lr gradient), sgd-normalised (dz = -lr N gradient). "
            "Default: adamw."
        ),
    ] = None,
    lr: Annotated[str | None, typer.Option(help="Default: 1e-3 with adamw.")] = None,
    beta1: Annotated[str | None, typer.Option(help="Of adamw. Default: 0.9.")] = None,
    beta2: Annotated[str | None, typer.Option(help="Of adamw. Default: 0.999.")] = None,
    eps: Annotated[str | None, typer.Option(help="Of adamw. Default: 1e-8.")] = None,
    decay: Annotated[str | None, typer.Option(help="Of adamw. Default: 0.01.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="none, mean, leave-one-out. Default: mean.")
    ] = None,
    counting: Annotated[
        str | None, typer.Option(help="draws, or set: each token once. Default: draws.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="linear, log-likelihood, ppo. Default: linear.")
    ] = None,
    clip_low: Annotated[str | None, typer.Option(help="Of ppo. Default: 0.2.")] = None,
    clip_high: Annotated[str | None, typer.Option(help="Of ppo. Default: 0.28.")] = None,
    epochs: Annotated[
        str | None,
        typer.Option(help="Updates per batch of draws; ppo clips from the second. Default: 1."),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64. Default: float64.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads. Default: the cores this process may use.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write result.json, curves.parquet and figure.png into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate BroRL on one vocabulary: what N draws a step do to the mass of the correct tokens.

    The defaults are those of figure 3 of the paper (arXiv:2510.01180).

    Example: brorl simulate --seeds 5 --out runs/figure

    Example: brorl simulate --seeds 5 --sweep eps=1e-8,1e-20 decay=0.01,0
    """
    given = dict(locals())  # the options, by the flat names of their settings
    from brorl.errors import ConfigError
    from brorl.simulator import output
    from brorl.simulator.curves import simulate as run
    from brorl.simulator.flat import NAMES, Cell, make_settings, sweep_cells
    from brorl.simulator.initial import initial_logits

    flat = {name: given[name] for name in NAMES if given[name] is not None}
    if "n" in flat:
        flat["n"] = tuple(flat["n"].split(","))
    if axes and not sweep:
        raise ConfigError(f"need --sweep before axes such as {axes[0]!r}, got none")
    cells = sweep_cells(flat, axes or []) if sweep else [Cell({}, make_settings(flat))]
    if workers is not None and workers < 1:
        raise ConfigError(f"need --workers >= 1, got {workers}")
    for cell in cells:
        initial_logits(cell.settings)  # a file that cannot be used leaves no folder behind
    if out is not None:
        output.check_folder(out)
    start = time.perf_counter()
    with _progress(cells) as on_steps:
        curves = run(
            [cell.settings for cell in cells],
            workers=workers or len(os.sched_getaffinity(0)),
            on_steps=on_steps,
        )
    result = output.result_object(cells, curves, time.perf_counter() - start)
    if out is not None:
        output.write_folder(out, cells, curves, result)
    if as_json:
        typer.echo(json.dumps(result))
        return
    typer.echo(_table(result["rows"]))
    for line in _effect_lines(result.get("effects")):
        typer.echo(line)
    typer.echo(f"{result['seconds']:.1f} s" + (f", written to {out}" if out else ""))


@contextmanager
def _progress(cells: Sequence["Cell"]) -> Iterator["OnSteps"]:
    """A bar of all steps of all curves on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    total = sum(c.settings.steps * len(c.settings.widths) * c.settings.seeds for c in cells)
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("simulating", total=total)
        yield lambda done: bar.advance(task, done)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per width (and cell): masses, then the parts of the first-order change."""
    cell = max(len(_cell(row)) for row in rows)
    head = (
        f"{'':{cell}}{'N':>7} {'mass at start':>13} {'at end':>8} {'improved':>8} "
        f"{'worst change':>12} | {'sampled right':>13} {'wrong':>8} {'unsampled':>9} "
        f"{'(never drawn)':>13} {'(decay)':>8}"
    )
    lines = [head]
    for row in rows:
        lines.append(
            f"{_cell(row):{cell}}{row['n']:>7,} {row['correct_mass_start']:>13.4f} "
            f"{row['correct_mass']:>8.4f} {row['improved_share']:>8.1%} "
            f"{row['worst_change']:>12.1e} | {_signed(row['sampled_correct']):>13} "
            f"{_signed(row['sampled_wrong']):>8} {_signed(row['unsampled']):>9} "
            f"{_signed(row['never_drawn']):>13} {_signed(row['decay']):>8}"
        )
    return "\n".join(lines)


def _signed(value: float) -> str:
    return f"{value:+.4f}" if abs(value) < 100 else f"{value:+.1e}"


def _cell(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row.get("cell", {}).items())


def _effect_lines(found: Mapping[str, Any] | None) -> list[str]:
    """The effects of two factors on the change of correct mass, with standard errors."""
    if found is None:
        return []
    first, second = (f"{f['name']} {f['from']} -> {f['to']}" for f in found["factors"])
    lines = ["", "total change of correct mass, and what changing a factor adds to it (± s.e.)"]
    for row in found["rows"]:
        parts = (
            ("as given", row["reference"]),
            (first, row["first"]),
            (second, row["second"]),
            ("both", row["both"]),
            ("interaction", row["interaction"]),
        )
        lines.append(f"N = {row['n']:>7,}  " + "   ".join(f"{k} {_pm(v)}" for k, v in parts))
    return [*lines, ""]


def _pm(effect: Mapping[str, float | None]) -> str:
    error = effect["standard_error"]
    return f"{effect['value']:+.4f}" + ("" if error is None else f" ± {error:.4f}")
