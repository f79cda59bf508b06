"""`brorl plan`: what a recipe asks for, how long a step takes, and what other widths would do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brorl.cli.run import Json, Overrides

if TYPE_CHECKING:
    from brorl.train.advise import Advice
    from brorl.train.plan import Plan
    from brorl.train.plan_time import Device, TimePlan
    from brorl.train.settings import TrainSettings


def plan(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a path to a YAML file.")],
    overrides: Overrides = None,
    prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a typical prompt; the data is not opened.")
    ] = 256,
    from_runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Predict other widths from a run's records; runs of other widths may follow.",
        ),
    ] = None,
    widths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Widths that --from predicts.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Last steps of a run that --from reads; default 20.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Predict minutes on so many devices.")
    ] = None,
    device: Annotated[str, typer.Option(help="a100, h100 or h200; for --devices.")] = "h100",
    bandwidth: Annotated[
        float | None, typer.Option(help="Of a device's memory, bytes/s, in place of its own.")
    ] = None,
    arithmetic: Annotated[
        float | None, typer.Option(help="Dense bf16 operations/s of a device, likewise.")
    ] = None,
    answer_tokens: Annotated[
        float | None, typer.Option(help="Mean answer; half of rollout.max_new_tokens by default.")
    ] = None,
    pass_rate: Annotated[
        float | None, typer.Option(help="Kept groups over generated; from --from, else 0.5.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count prompts, samples, updates, memory, disk and grading of one step, without the model.

    With --devices also minutes by phase, and with --from what other widths would do, from the
    records of a run on the same task.

    Example: brorl plan brorl rollout.n=256 --devices 64, or brorl plan quickstart --from runs/a
    """
    from brorl.train.plan import plan as make_plan
    from brorl.train.recipe import load_recipe

    _refuse_idle(
        from_runs,
        devices,
        {"--widths": widths, "--window": window},
        {
            "--bandwidth": bandwidth,
            "--arithmetic": arithmetic,
            "--answer-tokens": answer_tokens,
            "--pass-rate": pass_rate,
            "--device": None if device == "h100" else device,
        },
    )
    settings = load_recipe(recipe, overrides or [])
    made = make_plan(settings, prompt_tokens=prompt_tokens)
    advice = _advice(settings, from_runs, widths, window) if from_runs else None
    timed = None
    if devices is not None:
        given = _device(device, bandwidth, arithmetic)
        timed = _timed(settings, given, devices, prompt_tokens, answer_tokens, pass_rate, advice)
    if as_json:
        more: dict[str, Any] = {}
        if timed is not None:
            more["time"] = timed.to_json()
        if advice is not None:
            more["advice"] = advice.to_json()
        typer.echo(json.dumps(made.to_json() | more))
        return
    _print_plan(made)
    if timed is not None:
        _print_time(timed)
    if advice is not None:
        _print_advice(advice)


def _refuse_idle(
    runs: list[Path] | None,
    devices: int | None,
    of_runs: dict[str, Any],
    of_devices: dict[str, Any],
) -> None:
    """An option without the one that it belongs to would be ignored."""
    from brorl.errors import ConfigError

    for there, needed, options in ((runs, "--from", of_runs), (devices, "--devices", of_devices)):
        idle = [name for name, value in options.items() if value is not None]
        if not there and idle:
            raise ConfigError(f"{', '.join(idle)} needs {needed}")


def _advice(
    settings: "TrainSettings", runs: list[Path], widths: str | None, window: int | None
) -> "Advice":
    from brorl.errors import ConfigError
    from brorl.train.advise import WIDTHS, WINDOW, advise

    try:
        chosen = WIDTHS if widths is None else tuple(int(n) for n in widths.split(","))
    except ValueError:
        raise ConfigError(f"--widths needs whole numbers like 16,64,256, got {widths!r}") from None
    return advise(runs, settings, widths=chosen, window=window or WINDOW)


def _device(name: str, bandwidth: float | None, arithmetic: float | None) -> "Device":
    from brorl.errors import ConfigError
    from brorl.train.plan_time import DEVICES

    if name not in DEVICES:
        raise ConfigError(f"--device needs one of {', '.join(DEVICES)}, got {name!r}")
    for option, value in (("bandwidth", bandwidth), ("arithmetic", arithmetic)):
        if value is not None and not 0 < value < 1e30:
            raise ConfigError(f"--{option} needs a positive rate, got {value:g}")
    found = DEVICES[name]
    return replace(
        found,
        bandwidth=found.bandwidth if bandwidth is None else bandwidth,
        arithmetic=found.arithmetic if arithmetic is None else arithmetic,
    )


def _timed(
    settings: "TrainSettings",
    device: "Device",
    devices: int,
    prompt_tokens: int,
    answer_tokens: float | None,
    pass_rate: float | None,
    advice: "Advice | None",
) -> "TimePlan":
    from brorl.train.plan import model_shape
    from brorl.train.plan_time import Load, plan_time

    own = tuple(settings.rollout.totals)
    if pass_rate is None:
        known = [row.pass_rate.value for row in advice.at if row.totals == own] if advice else []
        pass_rate = known[0] if known else 0.5
    mean = settings.rollout.max_new_tokens / 2 if answer_tokens is None else answer_tokens
    load = Load(prompt_tokens, max(mean, 1), pass_rate)
    return plan_time(settings, model_shape(settings), device, load, devices=devices)


def _print_plan(made: "Plan") -> None:
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
    _print_rows(rows)
    for warning in made.warnings:
        typer.echo(f"  warning: {warning}")


def _print_time(t: "TimePlan") -> None:
    as_json = t.to_json()
    typer.echo(
        f"on {t.devices} {t.device} ({t.devices_per_engine} an engine), answers of "
        f"{t.answer_tokens:,.0f} tokens, pass rate {t.pass_rate:.3f}, groups at their widest; "
        "docs/planning.md says how far to trust it"
    )
    _print_rows(
        [
            ("weights, one copy", _bytes(t.weights_bytes)),
            ("training state a device", _bytes(t.training_state_bytes_per_device)),
            ("cache pages an engine", f"{t.kv_pages_per_engine:,} of 16 tokens"),
            ("rows at once an engine", f"{t.rows_at_once_per_engine:,}"),
            ("rounds", f"{t.rounds}, of {t.answers_per_round_and_engine:,.0f} answers an engine"),
            ("waves a round", f"{t.waves_per_round:.2f}"),
            ("minutes, generate", f"{t.generate_min:,.1f}"),
            ("minutes, update", f"{t.update_min:,.1f}"),
            ("minutes, fixed", f"{t.fixed_min:,.1f}"),
            ("minutes a step", f"{t.total_min:,.1f}"),
            ("generated samples/s", f"{as_json['generated_samples_per_s']:,.1f} of generation"),
            ("kept samples/s", f"{as_json['kept_samples_per_s']:,.1f} of the step"),
        ]
    )


def _print_advice(a: "Advice") -> None:
    typer.echo(
        f"from steps {a.steps[0]} to {a.steps[1]} of {a.runs[0]}: {a.groups:,} groups of "
        f"{a.prompts:,} prompts, {a.measured_pass_rate:.3f} of them with answers that disagree"
    )
    typer.echo(
        f"  {'N':>12} {'pass rate':>21} {'direct':>6} {'solved':>6} {'generated':>9} {'kept':>8} "
        f"{'s a step':>22} {'kept/s':>22} {'variance':>8}"
    )
    for row in a.at:
        name = "→".join(str(n) for n in row.totals)
        direct = "-" if row.direct is None else f"{row.direct:.3f}"
        typer.echo(
            f"  {name:>12} {_interval(row.pass_rate, 3):>21} {direct:>6} {row.solved.value:>6.3f} "
            f"{row.samples_per_step.value:>9,.0f} {row.kept_per_step.value:>8,.0f} "
            f"{_interval(row.seconds):>22} {_interval(row.kept_per_s):>22} "
            f"{row.reward_variance.value:>8.3f}"
        )
    typer.echo(f"  {_enough(a)}")
    for note in a.notes:
        typer.echo(f"  note: {note}")


def _enough(a: "Advice") -> str:
    widest = max(row.totals[0] for row in a.at if len(row.totals) == 1)
    if a.enough is None:
        return f"kept samples per second still rise at N = {widest}"
    ends = [f"beyond {widest}" if n is None else str(n) for n in (a.enough_low, a.enough_high)]
    return (
        f"beyond N = {a.enough} kept samples per second no longer rise by more than 2 % "
        f"(95 % of resamples: {ends[0]} to {ends[1]})"
    )


def _interval(x: Any, digits: int | None = None) -> str:
    def number(value: float) -> str:
        return f"{value:.{digits}f}" if digits is not None else f"{value:,.4g}"

    return f"{number(x.value)} [{number(x.low)}, {number(x.high)}]"


def _print_rows(rows: list[tuple[str, str]]) -> None:
    for name, value in rows:
        typer.echo(f"  {name:<26} {value}")


def _bytes(value: int) -> str:
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.2f} TiB"
