"""What the named tasks are, for people who choose one."""

import dataclasses
from typing import Any

from brorl.errors import ConfigError
from brorl.tasks.build import build_task, task_names
from brorl.tasks.names import unknown_name
from brorl.tasks.options import COMPOSITION, MIXTURE, PROGRAMS, REASONING_GYM
from brorl.verify.reasoning_gym_rules import FORM, OWN, REFUSED

_OURS = {
    "composition": (COMPOSITION, "functions on text, nested to a level; exact match"),
    "programs": (PROGRAMS, "a function from its values, by unit tests of which some are hidden"),
    "mixture": (MIXTURE, "several tasks with weights and floors; each by its own verifier"),
}


def describe_all() -> list[dict[str, Any]]:
    """One row per task: name, category, usable, note."""
    return [_row(name) for name in task_names()]


def describe(name: str) -> dict[str, Any]:
    """One task: name, category, how it is judged, settings, config, and an example problem.

    Raises:
        ConfigError: no such task, with the nearest known name.
    """
    if name not in task_names():
        raise ConfigError(unknown_name("task", name, task_names()))
    row = _row(name)
    options = _OURS[name][0] if name in _OURS else REASONING_GYM
    example = None
    if row["usable"] and name != "mixture":
        sizes = {"train_size": 1, "eval_size": 0, "warmstart_size": 0}
        problem = build_task({"name": name, **sizes}, {}).problems("train")[0]
        example = {"prompt": problem.prompt, "gold": problem.gold}
    return {
        "name": name,
        "category": row["category"],
        "judged_by": row["note"] or "the library's scorer, full marks only",
        "settings": {key: option.default for key, option in options.items() if key != "config"},
        "config": {} if name in _OURS else _config(name),
        "example": example,
    }


def _row(name: str) -> dict[str, Any]:
    note = ""
    if name in _OURS:
        note = _OURS[name][1]
    elif name in REFUSED:
        note = f"refused: {REFUSED[name]}"
    elif name in OWN:
        note = f"own check, for the library's scorer {OWN[name].fault}"
    elif name in FORM:
        note = f"form checked first, for the library's scorer {FORM[name].fault}"
    return {
        "name": name,
        "category": "brorl" if name in _OURS else _category(name),
        "usable": name not in REFUSED,
        "note": note,
    }


def _category(name: str) -> str:
    from reasoning_gym.factory import DATASETS

    return str(DATASETS[name][0].__module__.split(".")[1])


def _config(name: str) -> dict[str, Any]:
    """Defaults of the data set's own configuration, plain types only."""
    from reasoning_gym.factory import DATASETS

    found = {}
    for field in dataclasses.fields(DATASETS[name][1]):
        if field.name in ("seed", "size") or field.default is dataclasses.MISSING:
            continue
        if isinstance(field.default, str | int | float | bool | None):
            found[field.name] = field.default
    return found
