"""The Reasoning Gym suite: many generated tasks, each with its own verifier."""

from collections.abc import Sequence
from importlib.metadata import version

from brorl.errors import ConfigError, DataError
from brorl.evaluate.suites import LoadedSuite, Part
from brorl.tasks.build import TAGGED_PROMPT
from brorl.tasks.names import unknown_name
from brorl.tasks.problem import Problem
from brorl.tasks.reasoning_gym import ReasoningGymTask
from brorl.verify.reasoning_gym import Score, registered_names

LEFT_OUT = {
    "acre": "held out by ProRL as out of distribution",
    "boxnet": "held out by ProRL as out of distribution",
    "game_of_life_halting": "held out by ProRL as out of distribution",
    "codeio": "some of its items cannot be generated (reasoning-gym 0.1.25)",
}


def default_tasks() -> list[str]:
    """All but LEFT_OUT. ProRL's own list of 96 tasks is not public (unverified)."""
    return [name for name in registered_names() if name not in LEFT_OUT]


def load_reasoning_gym(
    *, tasks: Sequence[str], per_task: int, seed: int, score: Score
) -> LoadedSuite:
    """Generate the eval items of each task: the same for the same seed and library version.

    A training run on these tasks with the same seed never sees them: they are the eval block of
    the tasks' streams (brorl.tasks.reasoning_gym).

    Args:
        tasks: data sets by name; the category of a problem is the library's.
        per_task: items of each, >= 1. A task with fewer distinct questions gives as many as half
            of that, or half again, and a note says so.
        seed: of the tasks.
        score: "threshold", right or wrong, or "continuous", part credit above the junk floor.

    Raises:
        ConfigError: an unknown or repeated task, no task, per_task < 1.
    """
    known = registered_names()
    if not tasks or per_task < 1:
        raise ConfigError(
            f"need at least one task and one item a task, got {len(tasks)} and {per_task}"
        )
    if len(set(tasks)) < len(tasks):
        raise ConfigError(f"a task is named twice: {', '.join(tasks)}")
    for name in tasks:
        if name not in known:
            raise ConfigError(unknown_name("Reasoning Gym data set", name, known))
    parts: list[Part] = []
    categories: dict[str, str] = {}
    notes: list[str] = []
    for name in tasks:
        problems = _items(name, per_task, seed, score, notes)
        category = _category(name)
        categories.update(dict.fromkeys((p.id for p in problems), category))
        parts.append(Part("reasoning_gym", {"name": name, "score": score}, problems))
    source = f"reasoning-gym {version('reasoning-gym')}, seed {seed}, {per_task} a task"
    return LoadedSuite(
        "reasoning_gym", source, None, TAGGED_PROMPT, tuple(parts), categories, tuple(notes)
    )


def _items(
    name: str, wanted: int, seed: int, score: Score, notes: list[str]
) -> tuple[Problem, ...]:
    size = wanted
    while True:
        task = ReasoningGymTask(
            name,
            config={},
            seed=seed,
            train_size=0,
            eval_size=size,
            warmstart_size=0,
            prompt=TAGGED_PROMPT,
            tagged=True,
            score=score,
        )
        try:
            problems = tuple(task.problems("eval"))
        except ConfigError as error:
            if size == 1:
                raise DataError(f"suite reasoning_gym: {name} has no item: {error}") from error
            size //= 2
            continue
        if size < wanted:
            notes.append(f"{name}: {size} items, it has fewer than {wanted} distinct questions")
        return problems


def _category(name: str) -> str:
    """The library's own grouping: the package that a data set is defined in."""
    from reasoning_gym.factory import DATASETS

    return str(DATASETS[name][0].__module__.split(".")[1])
