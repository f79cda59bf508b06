"""What a task hands to the trainer: problems, and the verifier that judges answers to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from brorl.verify.protocol import Verifier

Split = Literal["train", "eval", "warmstart"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of data.

    Attributes:
        id: unique in its task; a group is (problem id, draw), never the prompt's text.
        prompt: the text given to the policy, before any chat template.
        gold: the reference answer, None where only a scorer knows.
        worked: an answer written out as the policy should write it, for supervised warm starts;
            None where the task has none.
        row: the whole data row, plain types only (str, int, float, bool, None, list, dict), so
            that it can be sent to a grader process.
        task: name of the task it comes from, for tables per task.
    """

    id: str
    prompt: str
    gold: str | None
    worked: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict, hash=False)
    task: str = ""


class Task(Protocol):
    """Where prompts come from and which verifier judges them."""

    name: str

    @property
    def verifier(self) -> Verifier:
        """Judges every problem of this task."""
        ...

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of one split, disjoint from the other splits, always in the same order."""
        ...
