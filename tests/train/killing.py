"""Kill a run in a phase drawn at random, resume it, and say whether it ended as it should.

The run is a forked process with real grader processes. It tells through shared memory which
phase it is in; when it enters the phase that was drawn, for as many times as was drawn, this process
waits a random part of what the phase usually takes and sends SIGKILL. What it was really doing
when it died is read from the same memory. The seed is fixed, the instants are not: how busy the
machine is decides them too, and that is welcome.
"""

import json
import mmap
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from brorl.record.rollouts import read_rollouts, rollout_steps
from brorl.rollout.embedded import EmbeddedEngine
from brorl.train import api, loop, step
from brorl.train.checkpoint import checkpoint_steps
from brorl.train.grading import GradingDesk

from .runs import RICH, ended, fork, names, newest, same_end
from .toys import recipe

PHASES = ("generate", "grade", "update", "rollouts", "evaluate", "metrics", "checkpoint")
PLACES = {
    "generate": [(EmbeddedEngine, "sample")],
    "grade": [(GradingDesk, "take"), (GradingDesk, "finish")],
    "update": [(step, "update")],
    "rollouts": [(loop, "write_rollouts")],
    "evaluate": [(loop.Loop, "_evaluate")],
    "metrics": [(loop, "append_metrics")],
    "checkpoint": [(loop.Loop, "_save")],
}
SMALL = RICH | {
    "steps": 5, "save_every": 1, "eval_every": 2, "keep_checkpoints": 2,
    "grading": {"workers": 1, "check_golds": 0},
}  # fmt: skip
MARK = "BRORL_TEST_KILL"


class Kill(NamedTuple):
    """One process ended; fields are written to the result file."""

    aimed: str  # phase that was drawn
    entry: int  # how often it had been entered
    hit: str  # phase at death; "between" where it was in none
    delay_s: float
    again: bool  # whether the resumed process was killed too


class Watched:
    """Shared memory of a run: the phase it is in, and seconds and entries of each."""

    def __init__(self) -> None:
        self._now = mmap.mmap(-1, mmap.PAGESIZE)
        self._now[0] = len(PHASES)
        self._stack = [len(PHASES)]
        self.entries: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.said, self._say = os.pipe()
        self._target: tuple[str, int] | None = None

    @property
    def phase(self) -> str:
        return [*PHASES, "between"][self._now[0]]

    def install(self, target: tuple[str, int] | None) -> None:
        """In the child: watch every phase; write to the pipe on the k-th entry into one."""
        self._target = target
        for phase, places in PLACES.items():
            for owner, name in places:
                setattr(owner, name, self._wrapped(getattr(owner, name), phase))

    def _wrapped(self, real: Any, phase: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._in(phase):
                return real(*args, **kwargs)

        return call

    @contextmanager
    def _in(self, phase: str) -> Iterator[None]:
        self._stack.append(PHASES.index(phase))
        self._now[0] = self._stack[-1]
        self.entries[phase] += 1
        if self._target == (phase, self.entries[phase]):
            os.write(self._say, b"x")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start
            self._stack.pop()
            self._now[0] = self._stack[-1]


class Killer:
    """Makes the unbroken run, then kills others and compares."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = recipe(folder, **SMALL)
        self.unbroken = folder / "unbroken" / "run"
        log, watched = folder / "log", Watched()

        def call() -> None:
            watched.install(None)
            self._train(self.unbroken)
            usual = {p: (watched.entries[p], watched.seconds[p]) for p in PHASES}
            (folder / "usual.json").write_text(json.dumps(usual))

        assert ended(fork(call, log), log) == 0, log.read_text()
        self.usual = json.loads((folder / "usual.json").read_text())

    def kill(self, number: int) -> Kill:
        """The number-th kill; raises AssertionError where the end is not the unbroken one's."""
        rng = np.random.default_rng([20261130, number])
        phase = PHASES[number % len(PHASES)]
        run, log = self.folder / f"kill-{number}" / "run", self.folder / "log"
        entries, seconds = self.usual[phase]
        entry, delay = int(rng.integers(1, entries + 1)), float(rng.random() * seconds / entries)
        hit = self._until_killed(lambda: self._train(run), log, (phase, entry), delay)
        again = bool(rng.random() < 0.3)
        if again:  # while it goes on: whichever phase comes first, early or late
            phase2 = PHASES[int(rng.integers(len(PHASES)))]
            self._until_killed(
                lambda: self._resume(run), log, (phase2, 1), float(rng.random()) / 50
            )
        assert ended(fork(lambda: self._resume(run), log), log) == 0, log.read_text()
        same_everything(self.unbroken, run)
        assert left_behind(str(run)) == []
        return Kill(phase, entry, hit, round(delay, 6), again)

    def _train(self, run: Path) -> None:
        os.environ[MARK] = str(run)
        run.parent.mkdir(exist_ok=True)
        api.train(str(self.recipe), {"run_dir": run})

    def _resume(self, run: Path) -> None:
        os.environ[MARK] = str(run)
        api.resume(run)

    def _until_killed(self, call: Any, log: Path, target: tuple[str, int], delay: float) -> str:
        """Start a run and kill it `delay` seconds into the phase; the phase at death."""
        watched = Watched()

        def watching() -> None:
            watched.install(target)
            call()

        pid = fork(watching, log)
        deadline = time.monotonic() + 120
        while not select.select([watched.said], [], [], 0.05)[0]:
            done, _ = os.waitpid(pid, os.WNOHANG)
            if done:  # a resumed run need not come to that phase any more
                return "finished"
            assert time.monotonic() < deadline, log.read_text()
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return watched.phase


def same_everything(a: Path, b: Path) -> None:
    """Assert equal ends: numbers, weights, optimizer, answers, evaluations, names of files."""
    same_end(a, b)
    assert checkpoint_steps(a) == checkpoint_steps(b)
    for folder in ("rollouts", "eval", "checkpoints"):
        assert names(a / folder) == names(b / folder)
    for number in rollout_steps(a):
        assert read_rollouts(a, number).equals(read_rollouts(b, number)), f"answers of {number}"
    for name in names(a / "eval"):
        ours, theirs = (json.loads((run / "eval" / name).read_text())["suites"] for run in (a, b))
        assert ours == theirs, name
    assert (a / "best.json").read_text() == (b / "best.json").read_text()
    ours, theirs = (
        torch.load(newest(run) / "trainer" / "optimizer.pt", weights_only=True)["state"]
        for run in (a, b)
    )
    assert ours.keys() == theirs.keys() != set()
    assert all(torch.equal(ours[i][k], theirs[i][k]) for i in ours for k in ours[i])


def left_behind(mark: str, patience_s: float = 20.0) -> list[int]:
    """Processes that a killed run started and that outlive it; they may take a moment to end."""
    deadline = time.monotonic() + patience_s
    while True:
        found = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, mark)
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _has(pid: int, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment
