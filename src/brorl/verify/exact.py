"""The simplest verifier: the whole trimmed text is the answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brorl.verify.extract import tagged_answer
from brorl.verify.verdict import Verdict, correct, grader_error, no_answer, wrong


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """Correct if the text equals the gold, character by character, after trimming both ends.

    Case, inner spaces and punctuation count. Two empties are never a match: an empty text is
    "no answer", and an empty or missing gold is a fault of the data, not of the answer.

    Attributes:
        tagged: the answer is what stands in the last complete <answer> tag; else the whole text.
    """

    tagged: bool = False

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        return tagged_answer(text) if self.tagged else text.strip() or None

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        if gold is None or not gold.strip():
            return grader_error("exact: the gold is empty")
        answer = extracted.strip()
        if not answer:
            return no_answer("exact: empty text")
        if answer == gold.strip():
            return correct(answer, "exact: equal text")
        return wrong(answer, "exact: not the gold's text")

    def write(self, gold: str, row: Mapping[str, Any]) -> str:
        """The gold as a policy should write it."""
        return f"<answer>{gold.strip()}</answer>" if self.tagged else gold.strip()
