"""What a run tells whoever watches it."""

from collections.abc import Mapping
from typing import Any, Protocol

from brorl.evaluate.heldout import Heldout


class Progress(Protocol):
    """Implementations: the console of the command line, and silence."""

    def note(self, text: str) -> None:
        """One line about something out of the ordinary, or a new phase."""
        ...

    def warmstart(self, step: int, total: int, loss: float, pass_rate: float | None) -> None: ...

    def begin(self, done: int, total: int) -> None:
        """The steps begin: `done` of `total` are finished already."""
        ...

    def step(self, metrics: Mapping[str, Any]) -> None: ...

    def evaluated(self, step: int, result: Heldout) -> None: ...


class Silence:
    """Says nothing."""

    def note(self, text: str) -> None: ...

    def warmstart(self, step: int, total: int, loss: float, pass_rate: float | None) -> None: ...

    def begin(self, done: int, total: int) -> None: ...

    def step(self, metrics: Mapping[str, Any]) -> None: ...

    def evaluated(self, step: int, result: Heldout) -> None: ...
