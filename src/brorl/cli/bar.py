"""A progress bar and notes on standard error: what training and evaluation show alike."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class Terminal:
    """A context: within it the bar is drawn where there is a terminal, and notes stand above it."""

    def __init__(self, *between: ProgressColumn) -> None:
        """`between` the count and the time left: columns of one's own."""
        self._rich = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            *between,
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._rich,
            disable=not sys.stderr.isatty(),
        )

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        """A line as it is: nothing in it is read as colours, pictures or line ends."""
        self._rich.print(text, markup=False)
