"""An evaluation on the terminal: samples, samples a second and the time left, on stderr."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console as RichConsole
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

_LINE_EVERY_S = 30.0  # where there is no terminal to draw a bar on


class EvalProgress:
    """Implements brorl.evaluate.sample.Watcher."""

    def __init__(self) -> None:
        self._rich = RichConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        self._bar = Progress(
            TextColumn("sampling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._rich,
            disable=not sys.stderr.isatty(),
        )
        self._task: TaskID | None = None
        self._started, self._first, self._said = 0.0, 0, 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        self._rich.print(text, markup=False)

    def sampled(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._task is None:
            self._task = self._bar.add_task("sampling", total=total, rate="")
            self._started = self._said = now
            self._first = done
        rate = (done - self._first) / max(now - self._started, 1e-9)
        shown = f"{rate:.1f} samples/s" if done > self._first else ""
        self._bar.update(self._task, completed=done, rate=shown)
        if not sys.stderr.isatty() and shown and now - self._said >= _LINE_EVERY_S:
            self._said = now
            left = (total - done) / rate
            self.note(f"sampled {done} of {total}, {shown}, about {left:.0f} s left")
