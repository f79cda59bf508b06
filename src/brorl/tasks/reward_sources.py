"""What the update is paid with: the true score, or a control.

The true verdict is always made and recorded; a source only decides what is rewarded, so that the
gap between the two comes for free. Sources after Shao et al. 2025 ("Spurious rewards",
github.com/ruixin31/Spurious_Rewards): random, format, incorrect, majority; `proxy` is our own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from brorl.seeds import generator
from brorl.tasks.problem import Problem
from brorl.verify.exact import ExactMatch
from brorl.verify.protocol import Verifier
from brorl.verify.verdict import Kind, Verdict


class Extra(NamedTuple):
    """A second grading that a source needs besides the true one: of the same text and row."""

    verifier: Verifier
    gold: str | None


class RewardSource(Protocol):
    """What the update is paid with. Pure: the same arguments give the same score."""

    @property
    def name(self) -> str:
        """Of the source, for the record."""
        ...

    def extra(self, problem: Problem) -> Extra | None:
        """What else to grade for a problem, None if the true verdict is enough."""
        ...

    def score(
        self, problem: Problem, group_id: str, index: int, true: Verdict, extra: Verdict | None
    ) -> float:
        """The reward in [0, 1] of sample `index` of a group, before any shaping.

        `extra` is the verdict of what `extra` asked for. One that is a grader error counts as
        one: the caller leaves the sample out, as for the true verdict.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Pays the true score."""

    name: str = "ground_truth"

    def extra(self, problem: Problem) -> Extra | None:
        return None

    def score(
        self, problem: Problem, group_id: str, index: int, true: Verdict, extra: Verdict | None
    ) -> float:
        return true.score


@dataclass(frozen=True, slots=True)
class RandomReward:
    """Pays 1 with probability gamma, whatever the answer; its stream is named by run and sample."""

    seed: int
    gamma: float
    name: str = "random"

    def extra(self, problem: Problem) -> Extra | None:
        return None

    def score(
        self, problem: Problem, group_id: str, index: int, true: Verdict, extra: Verdict | None
    ) -> float:
        draw = generator(self.seed, "reward", "random", group_id, index).random()
        return float(draw < self.gamma)


@dataclass(frozen=True, slots=True)
class FormatReward:
    """Pays 1 for any answer that the task's verifier can find, right or wrong."""

    name: str = "format"

    def extra(self, problem: Problem) -> Extra | None:
        return None

    def score(
        self, problem: Problem, group_id: str, index: int, true: Verdict, extra: Verdict | None
    ) -> float:
        return float(true.kind not in (Kind.NO_ANSWER, Kind.GRADER_ERROR))


@dataclass(frozen=True, slots=True)
class LabelReward:
    """Pays agreement with a fixed label instead of the gold (`majority`, `incorrect`).

    Attributes:
        labels: problem id to label. A problem without one is never paid; see `covers`.
        verifier: judges an answer against a label.
    """

    labels: Mapping[str, str] = field(hash=False)
    verifier: Verifier
    name: str

    def covers(self, problem: Problem) -> bool:
        """Whether the problem has a label; training on others is a waste of samples."""
        return problem.id in self.labels

    def extra(self, problem: Problem) -> Extra | None:
        label = self.labels.get(problem.id)
        return None if label is None else Extra(self.verifier, label)

    def score(
        self, problem: Problem, group_id: str, index: int, true: Verdict, extra: Verdict | None
    ) -> float:
        return 0.0 if extra is None else extra.score


@dataclass(frozen=True, slots=True)
class ProxyReward:
    """Pays what a deliberately holed verifier says."""

    verifier: Verifier
    name: str = "proxy"

    def extra(self, problem: Problem) -> Extra | None:
        return Extra(self.verifier, problem.gold)

    def score(
        self, problem: Problem, group_id: str, index: int, true: Verdict, extra: Verdict | None
    ) -> float:
        return 0.0 if extra is None else extra.score


@dataclass(frozen=True, slots=True)
class LabelVerifier:
    """Extracts like a task's verifier and compares the answer's text with a label.

    For verifiers that do not judge by the gold they are given (Reasoning Gym, instructions, code).
    """

    inner: Verifier

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        return self.inner.extract(text, row)

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        return ExactMatch().grade(extracted, gold=gold, row=row)
