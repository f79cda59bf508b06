"""An evaluation on the terminal: samples, samples a second and the time left, on stderr."""

import sys
import time

from rich.progress import TaskID, TextColumn

from brorl.cli.bar import Terminal

_LINE_EVERY_S = 30.0  # where there is no terminal to draw a bar on


class EvalProgress(Terminal):
    """Implements brorl.evaluate.sample.Watcher."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.fields[rate]}"))
        self._task: TaskID | None = None
        self._started, self._first, self._said = 0.0, 0, 0.0

    def sampled(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._task is None:
            self._task = self.bar.add_task("sampling", total=total, rate="")
            self._started = self._said = now
            self._first = done
        rate = (done - self._first) / max(now - self._started, 1e-9)
        shown = f"{rate:.1f} samples/s" if done > self._first else ""
        self.bar.update(self._task, completed=done, rate=shown)
        if not sys.stderr.isatty() and shown and now - self._said >= _LINE_EVERY_S:
            self._said = now
            left = (total - done) / rate
            self.note(f"sampled {done} of {total}, {shown}, about {left:.0f} s left")
