"""The settings of every kind of task: names, defaults, types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brorl.errors import ConfigError
from brorl.tasks.names import unknown_name


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its default, what it may be, and that in words."""

    default: Any
    kinds: tuple[type, ...]
    meaning: str


_INTEGER, _TEXT = (int,), (str,)

REASONING_GYM = {
    "config": Option({}, (dict,), "a mapping"),
    "seed": Option(0, _INTEGER, "an integer"),
    "train_size": Option(1024, _INTEGER, "an integer"),
    "eval_size": Option(256, _INTEGER, "an integer"),
    "warmstart_size": Option(0, _INTEGER, "an integer"),
    "prompt": Option(None, _TEXT, "a template such as {question}"),
    "tagged": Option(False, (bool,), "true or false"),
    "score": Option("threshold", _TEXT, "threshold or continuous"),
    "cascade": Option(False, (bool,), "true or false"),
}
COMPOSITION = {
    "seed": Option(0, _INTEGER, "an integer"),
    "train_size": Option(1024, _INTEGER, "an integer"),
    "eval_size": Option(256, _INTEGER, "an integer"),
    "warmstart_size": Option(0, _INTEGER, "an integer"),
    "levels": Option([2], (list, tuple), "a list of integers"),
    "eval_levels": Option([1, 2, 3, 4], (list, tuple), "a list of integers"),
    "eval_functions": Option("train", _TEXT, "train or held_out"),
    "prompt": Option(None, _TEXT, "a template over expression, definitions, level, question"),
    "tagged": Option(False, (bool,), "true or false"),
}
PROGRAMS = {
    "seed": Option(0, _INTEGER, "an integer"),
    "train_size": Option(1024, _INTEGER, "an integer"),
    "eval_size": Option(256, _INTEGER, "an integer"),
    "warmstart_size": Option(0, _INTEGER, "an integer"),
    "shown": Option(2, _INTEGER, "an integer"),
    "hidden": Option(4, _INTEGER, "an integer"),
    "sandbox": Option(False, (bool,), "true or false"),
    "prompt": Option(None, _TEXT, "a template over examples, question"),
}
MIXTURE = {"tasks": Option([], (list, tuple), "a list of tasks")}
PART = {
    "weight": Option(1.0, (int, float), "a number > 0"),
    "floor": Option(0.0, (int, float), "a share in [0, 1)"),
}
DATA = {
    "train": Option(None, _TEXT, "a path or hub:OWNER/NAME"),
    "eval": Option(None, _TEXT, "a path or hub:OWNER/NAME"),
    "held_out": Option(0.0, (float, int), "a number in [0, 1)"),
    "prompt": Option("prompt", _TEXT, "the name of a field"),
    "answer": Option("answer", _TEXT, "the name of a field, or boxed(FIELD)"),
    "verifier": Option(None, _TEXT, "the name of a verifier, module:function or file.py:function"),
    "name": Option("data", _TEXT, "text"),
}


def checked(
    settings: Mapping[str, Any], options: Mapping[str, Option], section: str
) -> dict[str, Any]:
    """Every option with its value or default.

    Raises:
        ConfigError: an unknown key (with the nearest known one) or a value of the wrong type.
    """
    for key, value in settings.items():
        if key not in options:
            raise ConfigError(unknown_name(f"setting of {section}", key, options))
        option = options[key]
        wrong_bool = isinstance(value, bool) and bool not in option.kinds
        if wrong_bool or not isinstance(value, option.kinds):
            raise ConfigError(f"{section}.{key} must be {option.meaning}, got {value!r:.80}")
    return {key: settings.get(key, option.default) for key, option in options.items()}
