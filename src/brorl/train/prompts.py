"""Which prompts come next: epochs of named shuffles, a position, and how often solved ones come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brorl.errors import DataError
from brorl.seeds import generator
from brorl.tasks.problem import Problem

SOLVED = 0.9
"""A prompt counts as solved where at least this share of its answers was right last time."""


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

    A solved prompt is passed over with probability 1 - solved_weight; its own named stream
    decides, so that a resumed run decides alike. Every prompt stays in play: an epoch passes
    over a prompt, it never removes it, and where a whole epoch would be passed over one is taken.

    Attributes:
        epoch, position: of the next prompt.
        drawn: draws so far.
        last_rate: problem id to the share of right answers when it was last sampled.
    """

    problems: Sequence[Problem]
    seed: int
    solved_weight: float
    epoch: int = 0
    position: int = 0
    drawn: int = 0
    last_rate: dict[str, float] = field(default_factory=dict)

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

    def saw(self, problem_id: str, right_share: float) -> None:
        """Note how often a prompt was answered right."""
        self.last_rate[problem_id] = right_share

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn": self.drawn,
            "last_rate": dict(self.last_rate),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self.drawn = int(state["drawn"])
        self.last_rate = {str(k): float(v) for k, v in state["last_rate"].items()}
        if not 0 <= self.position <= len(self.problems):
            raise DataError(
                f"the checkpoint stands at prompt {self.position} of {len(self.problems)}: "
                "the training data has changed"
            )
        self._order = self._shuffled()

    def _passes_over(self, problem: Problem) -> bool:
        if self.solved_weight >= 1.0 or self.last_rate.get(problem.id, 0.0) < SOLVED:
            return False
        stream = generator(self.seed, "solved", self.epoch, problem.id)
        return bool(stream.random() >= self.solved_weight)

    def _shuffled(self) -> list[int]:
        order: list[int] = (
            generator(self.seed, "epoch", self.epoch).permutation(len(self.problems)).tolist()
        )
        return order
