"""From the `task` and `data` sections of a recipe to a Task."""

from collections.abc import Callable, Mapping
from typing import Any

from brorl.errors import ConfigError
from brorl.tasks.composition import CompositionTask
from brorl.tasks.files import FileTask
from brorl.tasks.mixture import MixtureTask, Part
from brorl.tasks.names import unknown_name
from brorl.tasks.options import COMPOSITION, DATA, MIXTURE, PART, PROGRAMS, REASONING_GYM, checked
from brorl.tasks.problem import Task
from brorl.tasks.programs import ProgramsTask
from brorl.tasks.reasoning_gym import ReasoningGymTask
from brorl.verify.choice import ChoiceVerifier
from brorl.verify.exact import ExactMatch
from brorl.verify.instruction import InstructionVerifier
from brorl.verify.math import MathVerifier
from brorl.verify.protocol import Verifier
from brorl.verify.reasoning_gym import registered_names
from brorl.verify.user import load_verifier

TAGGED = "\n\nGive the final answer between <answer> and </answer>."
TAGGED_PROMPT = "{question}" + TAGGED

VERIFIERS: dict[str, Verifier] = {
    "choice": ChoiceVerifier(options="options"),
    "exact": ExactMatch(),
    "instructions": InstructionVerifier(profile="strict", score="all"),
    "instructions-loose": InstructionVerifier(profile="loose", score="all"),
    "math": MathVerifier(profile="lenient"),
    "math-strict": MathVerifier(profile="strict"),
}

# Settings of the data section that belong to the trainer, not to the task.
_TRAINER_DATA = frozenset({"solved_weight", "solved_share", "solved_visits"})


def build_task(task_settings: Mapping[str, Any], data_settings: Mapping[str, Any]) -> Task:
    """The task a recipe names: `task.name` or `data.train` / `data.eval` (files).

    Names of tasks are those of Reasoning Gym's data sets, "composition", "programs" and "mixture";
    the settings of each are in `brorl.tasks.options`. Settings with the value None count as not
    given.

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
    if name == "code":
        from brorl.verify.code import CodeVerifier

        return CodeVerifier()
    if name in VERIFIERS:
        return VERIFIERS[name]
    if ":" in name or "." in name:
        return load_verifier(name)
    raise ConfigError(unknown_name("verifier", name, [*VERIFIERS, "code"]))


def task_names() -> list[str]:
    """Every name that `task.name` may have."""
    return sorted([*registered_names(), *_BUILDERS])


def _named_task(settings: Mapping[str, Any]) -> Task:
    name = settings.get("name")
    if not isinstance(name, str):
        raise ConfigError(f"need task.name, got {name!r}")
    rest = {k: v for k, v in settings.items() if k != "name"}
    if name in _BUILDERS:
        return _BUILDERS[name](rest)
    if name not in registered_names():
        raise ConfigError(unknown_name("task.name", name, task_names()))
    values = checked(rest, REASONING_GYM, "task")
    values["prompt"] = values["prompt"] or (TAGGED_PROMPT if values["tagged"] else "{question}")
    return ReasoningGymTask(name, **values)


def _composition(settings: Mapping[str, Any]) -> Task:
    values = checked(settings, COMPOSITION, "task")
    values["prompt"] = values["prompt"] or "{definitions}\n\n{question}" + TAGGED * values["tagged"]
    return CompositionTask(**values)


def _programs(settings: Mapping[str, Any]) -> Task:
    values = checked(settings, PROGRAMS, "task")
    values["prompt"] = values["prompt"] or "{question} Answer with the program alone."
    return ProgramsTask(**values)


def _mixture(settings: Mapping[str, Any]) -> Task:
    """task.tasks: a list of task sections, or {data: {...}}, each with weight and floor."""
    parts = []
    for number, each in enumerate(checked(settings, MIXTURE, "task")["tasks"], start=1):
        if not isinstance(each, Mapping):
            raise ConfigError(f"task.tasks must be mappings, got {each!r:.60} as number {number}")
        own = {k: v for k, v in each.items() if k in PART}
        values = checked(own, PART, f"task.tasks[{number}]")
        rest = {k: v for k, v in each.items() if k not in PART}
        if rest.get("name") == "mixture":
            raise ConfigError("a mixture cannot be a part of a mixture")
        data = rest.pop("data", {})
        if not isinstance(data, Mapping):
            raise ConfigError(f"task.tasks[{number}].data must be a mapping, got {data!r:.60}")
        parts.append(Part(build_task(rest, data), float(values["weight"]), float(values["floor"])))
    return MixtureTask(parts)


_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Task]] = {
    "composition": _composition,
    "mixture": _mixture,
    "programs": _programs,
}


def _file_task(settings: Mapping[str, Any]) -> Task:
    values = checked(settings, DATA, "data")
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
