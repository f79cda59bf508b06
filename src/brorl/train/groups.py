"""A group: one prompt, one draw of it, and its answers. Each answer carries its own record."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from brorl.rollout.engine import Completion
from brorl.tasks.problem import Problem
from brorl.verify.verdict import Verdict


class Fate(StrEnum):
    """What became of an answer, written to its record."""

    KEPT = "kept"
    NO_SPREAD = "group_without_spread"
    SURPLUS = "surplus_group"
    CUT = "cut_from_group"
    GRADER_ERROR = "grader_error"
    PENDING = "pending"


@dataclass(slots=True)
class Sample:
    """One answer, from sampling to update. Nothing about it is kept anywhere else.

    Attributes:
        index: in its group; with the group's seed it fixes the tokens.
        completion: what the engine returned.
        text: the decoded answer, for graders and people.
        verdict: of the true verifier.
        raw: the score of the configured reward source, before shaping; decides the filter.
        shaped: raw and what length and truncation add.
        advantage: what the update saw; None where it saw nothing.
        weight: of its loss, 1 unless the group was cut with unbiased weights.
        fate: kept or not, and why.
        rewarded: False where a grading that the reward source asked for failed on our side.
    """

    index: int
    completion: Completion
    text: str
    verdict: Verdict
    raw: float
    shaped: float = 0.0
    advantage: float | None = None
    weight: float = 1.0
    fate: Fate = Fate.PENDING
    rewarded: bool = True

    @property
    def counts(self) -> bool:
        """Whether it belongs to its group: a grader error does not."""
        return self.verdict.counts and self.rewarded

    @property
    def right(self) -> bool:
        return self.raw == 1.0

    @property
    def answer(self) -> str:
        """What makes two answers the same: the extracted one, or that there is none."""
        if self.verdict.extracted is None:
            return f"<{self.verdict.kind}>"
        return self.verdict.extracted


@dataclass(slots=True)
class Group:
    """All answers to one draw of one prompt. May grow in waves; identified by its id alone."""

    id: str
    problem: Problem
    prompt: tuple[int, ...]
    seed: int
    born: int  # step in which it was sampled
    samples: list[Sample] = field(default_factory=list)

    @property
    def counting(self) -> list[Sample]:
        """The answers that belong to the group."""
        return [s for s in self.samples if s.counts]

    @property
    def n_right(self) -> int:
        return sum(s.right for s in self.counting)

    @property
    def right_share(self) -> float:
        """In [0, 1]; 0 for a group whose every grading failed."""
        counting = self.counting
        return sum(s.right for s in counting) / len(counting) if counting else 0.0

    def before(self, totals: Sequence[int]) -> int:
        """Counting answers before the last wave that has any; 0 where that is the first."""
        drawn = max((s.index + 1 for s in self.counting), default=0)
        earlier = max((t for t in totals if t < drawn), default=0)
        return sum(s.index < earlier for s in self.counting)

    def mark(self, fate: Fate) -> None:
        """Set the fate of every answer that still belongs to the group."""
        for sample in self.samples:
            sample.fate = fate if sample.counts else Fate.GRADER_ERROR
