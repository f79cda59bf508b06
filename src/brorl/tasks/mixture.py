"""Several tasks as one, with weights and floors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from brorl.errors import ConfigError
from brorl.tasks.problem import Problem, Split, Task
from brorl.tasks.text import leak_key
from brorl.verify.protocol import Verifier
from brorl.verify.verdict import Verdict, grader_error

KEY = "mixture_part"  # field of a row that says which verifier judges it
MAX_EPOCH = 1_000_000  # problems


class Part(NamedTuple):
    """One task of a mixture: > 0 weight, and the least share of the draws it gets, in [0, 1)."""

    task: Task
    weight: float
    floor: float


@dataclass(frozen=True, slots=True)
class MixtureVerifier:
    """Hands every row to the verifier of its task."""

    verifiers: tuple[tuple[str, Verifier], ...]

    def prepare(self) -> None:
        """Prepare those that need it."""
        for _, verifier in self.verifiers:
            ready = getattr(verifier, "prepare", None)
            if ready is not None:
                ready()

    @property
    def deadline_s(self) -> float | None:
        """The longest that one of them asks for, None if none does."""
        own = [getattr(verifier, "deadline_s", None) for _, verifier in self.verifiers]
        return max((d for d in own if isinstance(d, int | float)), default=None)

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        verifier = dict(self.verifiers).get(row.get(KEY, ""))
        return text if verifier is None else verifier.extract(text, row)

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        verifier = dict(self.verifiers).get(row.get(KEY, ""))
        if verifier is None:
            return grader_error(f"mixture: no verifier for {row.get(KEY)!r}")
        return verifier.grade(extracted, gold=gold, row=row)

    def write(self, gold: str, row: Mapping[str, Any]) -> str:
        """The gold as a policy should write it, by the verifier of its task."""
        write = getattr(dict(self.verifiers).get(row.get(KEY, "")), "write", None)
        return write(gold, row) if write is not None else gold


class MixtureTask:
    """Tasks drawn in given shares.

    The training problems are one epoch: every problem of every task at least once, and those of
    the tasks whose share asks for more again, as "id@2", "id@3", ... A uniform shuffle of them
    draws every task in its share. Held-out and warm-start problems are joined as they are.
    """

    name = "mixture"

    def __init__(self, parts: Sequence[Part]) -> None:
        """Fix the shares.

        Raises:
            ConfigError: fewer than two tasks, equal names, weights or floors out of range.
        """
        if len(parts) < 2:
            raise ConfigError(f"a mixture needs at least two tasks, got {len(parts)}")
        names = [part.task.name for part in parts]
        if len(set(names)) != len(names):
            raise ConfigError(f"the tasks of a mixture need different names, got {names}")
        self._parts = tuple(parts)
        self.shares = dict(
            zip(names, shares([p.weight for p in parts], [p.floor for p in parts]), strict=True)
        )
        self._verifier = MixtureVerifier(tuple((p.task.name, p.task.verifier) for p in parts))
        self.equal_to_eval = 0  # training problems dropped for another task's held-out questions

    @property
    def verifier(self) -> MixtureVerifier:
        return self._verifier

    def problems(self, split: Split) -> Sequence[Problem]:
        """See the class. Raises ConfigError where an epoch would pass MAX_EPOCH problems."""
        joined = {part.task.name: self._own(part.task, split) for part in self._parts}
        if split == "eval":
            return [p for problems in joined.values() for p in problems]
        held = {leak_key(p.prompt) for part in self._parts for p in part.task.problems("eval")}
        kept = {
            name: [p for p in problems if leak_key(p.prompt) not in held]
            for name, problems in joined.items()
        }
        if split == "warmstart":
            return [p for problems in kept.values() for p in problems]
        self.equal_to_eval = sum(map(len, joined.values())) - sum(map(len, kept.values()))
        return epoch(kept, self.shares)

    def _own(self, task: Task, split: Split) -> list[Problem]:
        """Problems of one task, each told whose it is."""
        return [
            replace(
                p, id=f"{task.name}:{p.id}", row={**p.row, KEY: task.name}, task=p.task or task.name
            )
            for p in task.problems(split)
        ]


def shares(weights: Sequence[float], floors: Sequence[float]) -> list[float]:
    """Weights as shares that sum to 1, none below its floor.

    What the floors take is taken from the others in proportion to their weights.

    Args:
        weights: > 0, any scale.
        floors: in [0, 1), summing to at most 1.

    Raises:
        ConfigError: out of range.
    """
    if any(not (math.isfinite(w) and w > 0) for w in weights):
        raise ConfigError(f"task weights must be > 0, got {list(weights)}")
    if any(not 0 <= f < 1 for f in floors) or sum(floors) > 1:
        raise ConfigError(f"task floors must be in [0, 1) and sum to at most 1, got {list(floors)}")
    held: set[int] = set()
    while True:
        free = 1.0 - sum(floors[i] for i in held)
        rest = sum(w for i, w in enumerate(weights) if i not in held)
        result = [floors[i] if i in held else free * w / rest for i, w in enumerate(weights)]
        below = {i for i, share in enumerate(result) if i not in held and share < floors[i]}
        if not below:
            return result
        held |= below


def epoch(problems: Mapping[str, Sequence[Problem]], share: Mapping[str, float]) -> list[Problem]:
    """Every problem at least once, repeated until the tasks stand in their shares.

    Raises:
        ConfigError: a task without problems, or more than MAX_EPOCH problems.
    """
    if empty := [name for name, own in problems.items() if not own]:
        raise ConfigError(f"mixture: task {empty[0]} has no training problems")
    size = max(len(own) / share[name] for name, own in problems.items())
    if size > MAX_EPOCH:
        raise ConfigError(
            f"mixture: an epoch in these shares has {size:.0f} problems, at most {MAX_EPOCH} are "
            "possible: raise the smallest weight, or take fewer problems of that task"
        )
    joined: list[Problem] = []
    for name, own in problems.items():
        for number in range(round(size * share[name])):
            turn, index = divmod(number, len(own))
            problem = own[index]
            joined.append(problem if turn == 0 else replace(problem, id=f"{problem.id}@{turn + 1}"))
    return joined
