"""A run of verl on disk before it starts: settings, command, data, and the table of settings."""

import json
import shlex
from pathlib import Path
from typing import Any

from brorl.errors import ConfigError, DataError
from brorl.record.files import write_atomic
from brorl.record.rundir import CONFIG, create_run
from brorl.train.recipe import dump_settings, load_settings
from brorl.train.settings import TrainSettings
from brorl.verl.compile import Compiled
from brorl.verl.table import TABLE, Place, fields, value_of

SETTINGS, COMMAND, TABLE_FILE = "verl.json", "command.sh", "settings.md"
MAY_CHANGE = ("steps", "logger", "keep_checkpoints")


def prepare(compiled: Compiled, run: Path) -> None:
    """Write config.yaml, verl.json, command.sh, settings.md and data/ into the run's folder.

    A folder of the same recipe is gone on with; another one is refused.

    Raises:
        ConfigError: the folder holds something else, or another recipe.
        DataError: the task's data cannot be used.
    """
    from brorl.train.api import check_golds
    from brorl.train.setup import read_data
    from brorl.verl.data_files import write_problems

    begun = (run / CONFIG).is_file()
    if begun:
        _same_recipe(compiled.settings, run)
    data = read_data(compiled.settings)
    if not data.heldout:
        raise DataError("verl evaluates before the first step: the task needs held-out problems")
    check_golds(compiled.settings, data)
    if not begun:
        create_run(run, {CONFIG: dump_settings(compiled.settings)})
    write_atomic(run / CONFIG, dump_settings(compiled.settings))
    write_problems(run, data.train, data.heldout)
    write_atomic(run / SETTINGS, json.dumps(compiled.verl, indent=1) + "\n")
    write_atomic(run / COMMAND, "#!/bin/sh\nexec " + shlex.join(compiled.command("python")) + "\n")
    write_atomic(run / TABLE_FILE, table(compiled))


def _same_recipe(settings: TrainSettings, run: Path) -> None:
    """A run that goes on keeps its recipe, but for MAY_CHANGE. Raises ConfigError."""
    old = load_settings(run / CONFIG, {}, may_change=())
    for dotted in fields():
        before, now = value_of(old, dotted), value_of(settings, dotted)
        if before != now and dotted not in (*MAY_CHANGE, "run_dir"):
            raise ConfigError(
                f"{run} holds a run with {dotted}={before!r}, got {now!r}; "
                "name another folder with --out"
            )


def table(compiled: Compiled) -> str:
    """Markdown: our setting, its place, and the value it has there."""
    lines = ["| setting | value | where | value there |", "|---|---|---|---|"]
    for dotted in fields():
        entry = TABLE[dotted]
        there = ""
        if entry.place is Place.VERL:
            there = ", ".join(_shown(compiled.verl.get(t)) for t in entry.target.split(", "))
        where = entry.target if entry.place is Place.VERL else f"{entry.place}: {entry.target}"
        value = _shown(value_of(compiled.settings, dotted))
        lines.append(f"| {dotted} | {value} | {where} | {there} |")
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return (text if len(text) <= 60 else text[:57] + "...").replace("|", "\\|")
