"""A verdict is data: what a verifier could say about one answer, and enough to audit it later."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What became of one answer. The first five are the answer's doing, the last is ours."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # nothing to grade, truncation before an answer included
    UNGRADABLE = "ungradable"  # an answer that cannot be read
    TIMEOUT = "timeout"  # an answer that made grading run out of its time
    GRADER_ERROR = "grader_error"  # a lost worker or a broken verifier: left out of the group


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer judged.

    Attributes:
        kind: see Kind.
        score: in [0, 1]; 1 is success. Only "correct" has 1, and "wrong" may have part credit
            in [0, 1) where a verifier gives it; every other kind has 0.
        extracted: exactly what was compared, None where nothing was found.
        reason: the rule that decided, in a few words.
    """

    kind: Kind
    score: float
    extracted: str | None
    reason: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.score) and 0.0 <= self.score <= 1.0):
            raise ValueError(f"a score lies in [0, 1], got {self.score!r}")
        if (self.kind is Kind.CORRECT) != (self.score == 1.0):
            raise ValueError(f"score 1 means correct and only that, got {self.kind} {self.score}")
        if self.kind not in (Kind.CORRECT, Kind.WRONG) and self.score != 0.0:
            raise ValueError(f"{self.kind} scores 0, got {self.score}")

    @property
    def counts(self) -> bool:
        """Whether the answer stays in its group; a grader error does not."""
        return self.kind is not Kind.GRADER_ERROR


def correct(extracted: str | None, reason: str) -> Verdict:
    """A right answer."""
    return Verdict(Kind.CORRECT, 1.0, extracted, reason)


def wrong(extracted: str | None, reason: str, score: float = 0.0) -> Verdict:
    """A wrong answer, with part credit in [0, 1) where the verifier gives it."""
    return Verdict(Kind.WRONG, score, extracted, reason)


def no_answer(reason: str) -> Verdict:
    """Nothing in the text that could be graded."""
    return Verdict(Kind.NO_ANSWER, 0.0, None, reason)


def ungradable(extracted: str | None, reason: str) -> Verdict:
    """An answer that cannot be read."""
    return Verdict(Kind.UNGRADABLE, 0.0, extracted, reason)


def timed_out(extracted: str | None, reason: str) -> Verdict:
    """An answer that made grading run out of its time."""
    return Verdict(Kind.TIMEOUT, 0.0, extracted, reason)


def grader_error(reason: str) -> Verdict:
    """Our own failure: tried again, then left out of the group and counted."""
    return Verdict(Kind.GRADER_ERROR, 0.0, None, reason)
