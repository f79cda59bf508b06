"""How far a study is, and how long it will take."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from brorl.errors import DataError
from brorl.record.metrics import read_metrics

_A_PACE = 0.005  # share of all samples


class Piece(Protocol):
    """What progress needs to know of a job."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path: ...

    @property
    def samples(self) -> int: ...


class Voice(Protocol):
    """Says things: the terminal of the command line, and silence."""

    def note(self, text: str) -> None: ...

    def share(self, done: float, left_s: float | None, doing: str) -> None:
        """Done in [0, 1], seconds left where that can be told, names of what runs."""
        ...


class Quiet:
    """Says nothing."""

    def note(self, text: str) -> None: ...

    def share(self, done: float, left_s: float | None, doing: str) -> None: ...


class Watch:
    """Adds up the samples of all runs; time left is at the pace of this session.

    Args:
        pieces: name to samples, of all that the study has to make, done or not.
        done: names of what was done before this session.
        voice: who says it.
    """

    def __init__(self, pieces: Mapping[str, int], done: set[str], voice: Voice) -> None:
        self._pieces = dict(pieces)
        self._part = {name: 1.0 if name in done else 0.0 for name in pieces}
        self._voice = voice
        self._began, self._before = time.monotonic(), self.done
        self._running: list[str] = []

    @property
    def done(self) -> float:
        """Share of all samples, in [0, 1]."""
        whole = sum(self._pieces.values())
        return sum(self._part[n] * w for n, w in self._pieces.items()) / whole if whole else 1.0

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None before there is one.

        Runs that arms begin from may be a sample of a million and minutes of warm start: they
        say nothing of the pace.
        """
        gained = self.done - self._before
        if gained < _A_PACE:
            return None
        return (time.monotonic() - self._began) * (1 - self.done) / gained

    def note(self, text: str) -> None:
        """One line."""
        self._voice.note(text)

    def begins(self, job: Piece) -> None:
        """A run starts, or goes on."""
        self._running.append(job.name)
        self.look(job)

    def ends(self, job: Piece) -> None:
        """A run is done."""
        self._running.remove(job.name)
        self._part[job.name] = 1.0
        number = sum(part == 1.0 for part in self._part.values())
        self.note(
            f"{number:>4}/{len(self._part)} {job.name:<24} {_score(job.folder)}{self._tail()}"
        )
        self._say()

    def look(self, job: Piece) -> None:
        """Read how far a run is from what it has recorded."""
        try:
            rows = read_metrics(job.folder)
        except (OSError, DataError):  # it is being cut back by a resume
            return
        self.made(job, sum(row.get("samples/generated") or 0 for row in rows))

    def made(self, job: Piece, generated: float) -> None:
        """A run has generated so many samples."""
        self._part[job.name] = min(generated / job.samples, 0.999)
        self._say()

    def of(self, job: Piece) -> "_Inside":
        """Progress for a run in this process."""
        return _Inside(self, job)

    def _say(self) -> None:
        self._voice.share(self.done, self.left_s, ", ".join(self._running))

    def _tail(self) -> str:
        return f", {clock(self.left_s)} left" if self.left_s and self.done < 1 else ""


class _Inside:
    """brorl.train's progress of one run, passed on as samples."""

    def __init__(self, watch: Watch, job: Piece) -> None:
        self._watch, self._job, self._generated = watch, job, 0.0

    def note(self, text: str) -> None: ...

    def warmstart(self, step: int, total: int, loss: float, pass_rate: float | None) -> None: ...

    def begin(self, done: int, total: int) -> None:
        rows = read_metrics(self._job.folder)
        self._generated = sum(row.get("samples/generated") or 0 for row in rows)

    def step(self, metrics: Mapping[str, Any]) -> None:
        self._generated += metrics.get("samples/generated") or 0
        self._watch.made(self._job, self._generated)

    def evaluated(self, step: int, result: Any) -> None: ...


def clock(seconds: float) -> str:
    """E.g. 42s, 4m05s, 2h03m."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest}s"
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def _score(run: Path) -> str:
    evaluated = [r["eval/pass@1"] for r in read_metrics(run) if "eval/pass@1" in r]
    return f"held-out pass@1 {evaluated[0]:.3f} → {evaluated[-1]:.3f}" if evaluated else ""
