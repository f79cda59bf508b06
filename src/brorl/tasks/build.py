"""From the `task` and `data` sections of a recipe to a Task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brorl.errors import ConfigError
from brorl.tasks.files import FileTask
from brorl.tasks.names import unknown_name
from brorl.tasks.problem import Task
from brorl.tasks.reasoning_gym import ReasoningGymTask
from brorl.verify.choice import ChoiceVerifier
from brorl.verify.exact import ExactMatch
from brorl.verify.instruction import InstructionVerifier
from brorl.verify.math import MathVerifier
from brorl.verify.protocol import Verifier
from brorl.verify.reasoning_gym import registered_names
from brorl.verify.user import load_verifier

TAGGED_PROMPT = "{question}\n\nGive the final answer between <answer> and </answer>."


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its default, what it may be, and that in words."""

    default: Any
    kinds: tuple[type, ...]
    meaning: str


REASONING_GYM = {
    "config": Option({}, (dict,), "a mapping"),
    "seed": Option(0, (int,), "an integer"),
    "train_size": Option(1024, (int,), "an integer"),
    "eval_size": Option(256, (int,), "an integer"),
    "warmstart_size": Option(0, (int,), "an integer"),
    "prompt": Option(None, (str, type(None)), "text"),
    "tagged": Option(False, (bool,), "true or false"),
    "score": Option("threshold", (str,), "text"),
}
DATA = {
    "train": Option(None, (str, type(None)), "a path"),
    "eval": Option(None, (str, type(None)), "a path"),
    "held_out": Option(0.0, (float, int), "a number in [0, 1)"),
    "prompt": Option("prompt", (str,), "the name of a field"),
    "answer": Option("answer", (str,), "the name of a field"),
    "verifier": Option(None, (str,), "the name of a verifier, module:function or file.py:function"),
    "name": Option("data", (str,), "text"),
}
# Settings of the data section that belong to the trainer, not to the task.
_TRAINER_DATA = frozenset({"solved_weight"})


def build_task(task_settings: Mapping[str, Any], data_settings: Mapping[str, Any]) -> Task:
    """The task a recipe names: `task.name` (Reasoning Gym) or `data.train` / `data.eval` (files).

    Settings with the value None count as not given.

    Raises:
        ConfigError: neither or both given, an unknown name (with the nearest known one), an
            unknown key, a value of the wrong type.
        DataError: a data file that cannot be used.
    """
    task = {k: v for k, v in task_settings.items() if v is not None}
    data = {k: v for k, v in data_settings.items() if v is not None and k not in _TRAINER_DATA}
    if task and (data.get("train") or data.get("eval")):
        raise ConfigError("need either task or data.train/data.eval, got both")
    if task:
        return _named_task(task)
    if data:
        return _file_task(data)
    raise ConfigError("need task.name or data.train, got neither")


def build_verifier(name: str) -> Verifier:
    """A verifier by its short name, or a user's own by "module:function" or "file.py:function".

    Raises:
        ConfigError: no such verifier, with the nearest known name.
    """
    if name in VERIFIERS:
        return VERIFIERS[name]
    if ":" in name or "." in name:
        return load_verifier(name)
    raise ConfigError(unknown_name("verifier", name, VERIFIERS))


VERIFIERS: dict[str, Verifier] = {
    "choice": ChoiceVerifier(options="options"),
    "exact": ExactMatch(),
    "instructions": InstructionVerifier(profile="strict", score="all"),
    "instructions-loose": InstructionVerifier(profile="loose", score="all"),
    "math": MathVerifier(profile="lenient"),
    "math-strict": MathVerifier(profile="strict"),
}


def _named_task(settings: Mapping[str, Any]) -> Task:
    name = settings.get("name")
    if not isinstance(name, str):
        raise ConfigError(f"need task.name, got {name!r}")
    if name not in registered_names():
        raise ConfigError(unknown_name("task.name", name, registered_names()))
    values = _checked({k: v for k, v in settings.items() if k != "name"}, REASONING_GYM, "task")
    if values["prompt"] is None:
        values["prompt"] = TAGGED_PROMPT if values["tagged"] else "{question}"
    return ReasoningGymTask(name, **values)


def _file_task(settings: Mapping[str, Any]) -> Task:
    values = _checked(settings, DATA, "data")
    if values["verifier"] is None:
        raise ConfigError("need data.verifier, got none")
    return FileTask(
        values["name"],
        train=values["train"],
        evaluation=values["eval"],
        held_out=float(values["held_out"]),
        prompt=values["prompt"],
        answer=values["answer"],
        verifier=build_verifier(values["verifier"]),
    )


def _checked(
    settings: Mapping[str, Any], options: Mapping[str, Option], section: str
) -> dict[str, Any]:
    """Every option with its value or default; unknown keys and wrong types are refused."""
    for key, value in settings.items():
        if key not in options:
            raise ConfigError(unknown_name(f"setting of {section}", key, options))
        option = options[key]
        wrong_bool = isinstance(value, bool) and bool not in option.kinds
        if wrong_bool or not isinstance(value, option.kinds):
            raise ConfigError(f"{section}.{key} must be {option.meaning}, got {value!r:.80}")
    return {key: settings.get(key, option.default) for key, option in options.items()}
