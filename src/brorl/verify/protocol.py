"""What every verifier promises."""

from collections.abc import Mapping
from typing import Any, Protocol

from brorl.verify.verdict import Verdict


class Verifier(Protocol):
    """Judges texts. Implementations are picklable, so that a grader process can hold one.

    Two steps, because wide rollouts repeat themselves: `extract` runs on every text, `grade`
    once per distinct (problem, extracted answer).
    """

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        """The answer in `text`, None if there is none. Cheap and total: never raises on a text."""
        ...

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        """Judge one extracted answer against the gold of its row.

        Total on any answer. Raises VerifierError only where the verifier itself is broken.
        """
        ...
