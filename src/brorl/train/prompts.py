"""Which prompts come next: epochs of named shuffles, a position, and how often solved ones come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from brorl.errors import DataError
from brorl.seeds import generator
from brorl.tasks.problem import Problem

SOLVED = 0.9
"""A prompt counts as solved where at least this share of its answers was right, unless set."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One prompt drawn; `number` counts draws over the whole run, so (id, number) is unique."""

    problem: Problem
    number: int

    @property
    def group_id(self) -> str:
        return f"{self.problem.id}#{self.number}"


@dataclass
class PromptSource:
    """Draws problems epoch by epoch, in an order that depends on (seed, epoch) alone.

    A solved prompt (at least `solved_share` right answers in each of its last `solved_visits`
    draws) is passed over with probability 1 - solved_weight; its own named stream decides, so that
    a resumed run decides alike. With a weight of 0 it is passed over for good. Where a whole epoch
    would be passed over one is taken, so that a draw always ends.

    Attributes:
        epoch, position: of the next prompt.
        drawn: draws so far.
        last_rate: problem id to the share of right answers when it was last sampled.
        streak: problem id to the last draws in a row in which it was solved, where there are any.
    """

    problems: Sequence[Problem]
    seed: int
    solved_weight: float
    solved_share: float = SOLVED
    solved_visits: int = 1
    epoch: int = 0
    position: int = 0
    drawn: int = 0
    last_rate: dict[str, float] = field(default_factory=dict)
    streak: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.problems:
            raise DataError("need at least one training problem, got none")
        ids = [p.id for p in self.problems]
        if len(set(ids)) != len(ids):
            repeated = next(i for i in ids if ids.count(i) > 1)
            raise DataError(f"problem ids must be unique, {repeated!r} comes twice")
        self._order = self._shuffled()

    def draw(self, count: int) -> list[Draw]:
        """The next `count` draws; an epoch that ends is followed by the next."""
        draws: list[Draw] = []
        passed = 0  # in a row
        while len(draws) < count:
            if self.position == len(self.problems):
                self.epoch, self.position = self.epoch + 1, 0
                self._order = self._shuffled()
            problem = self.problems[self._order[self.position]]
            self.position += 1
            if passed < 2 * len(self.problems) and self._passes_over(problem):
                passed += 1
                continue
            passed = 0
            draws.append(Draw(problem, self.drawn))
            self.drawn += 1
        return draws

    def upcoming(self, count: int) -> list[Draw]:
        """What `draw` will return next; nothing is drawn."""
        return replace(self).draw(count)

    def saw(self, problem_id: str, right_share: float) -> None:
        """Note how often a prompt was answered right."""
        self.last_rate[problem_id] = right_share
        if right_share >= self.solved_share:
            self.streak[problem_id] = self.streak.get(problem_id, 0) + 1
        else:
            self.streak.pop(problem_id, None)

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn": self.drawn,
            "last_rate": dict(self.last_rate),
            "streak": dict(self.streak),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self.drawn = int(state["drawn"])
        self.last_rate = {str(k): float(v) for k, v in state["last_rate"].items()}
        self.streak = {str(k): int(v) for k, v in state["streak"].items()}
        if not 0 <= self.position <= len(self.problems):
            raise DataError(
                f"the checkpoint stands at prompt {self.position} of {len(self.problems)}: "
                "the training data has changed"
            )
        self._order = self._shuffled()

    def _passes_over(self, problem: Problem) -> bool:
        if self.solved_weight >= 1.0 or self.streak.get(problem.id, 0) < self.solved_visits:
            return False
        stream = generator(self.seed, "solved", self.epoch, problem.id)
        return bool(stream.random() >= self.solved_weight)

    def _shuffled(self) -> list[int]:
        order: list[int] = (
            generator(self.seed, "epoch", self.epoch).permutation(len(self.problems)).tolist()
        )
        return order
