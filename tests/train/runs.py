"""Runs of a second for the tests of runs: a rich recipe, ways to stop it, ways to compare."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from brorl.cli import main as cli
from brorl.train import api
from brorl.train.progress import Silence
from brorl.train.telemetry import without_clock

RICH = {
    "dynamic_sampling": {"surplus": "carry", "oversample": 2.0},
    "data": {"solved_weight": 0.5},
    "kl_coef": 0.05,
    "ref": {"reset_every": 2, "reset_optimizer": True},
    "lr_warmup_updates": 3,
    "rollout": {"keep_per_group": 6},
}
"""Everything that has a state: carried groups, solved prompts, a reference, resets, warm-up."""


class Killed(BaseException):
    """What a test raises where a process would die."""


class Stopper(Silence):
    """Does something at the given call of the progress, and keeps the notes."""

    def __init__(self, place: str = "", number: int = 0, action: str = "kill") -> None:
        self.place, self.number, self.action = place, number, action
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, done: int, total: int) -> None:
        self._at("begin", done)

    def step(self, metrics: Any) -> None:
        self._at("step", int(metrics["step"]))

    def evaluated(self, step: int, result: Any) -> None:
        self._at("evaluated", step)

    def _at(self, place: str, number: int) -> None:
        if (place, number) != (self.place, self.number):
            return
        if self.action == "kill":
            raise Killed
        os.kill(os.getpid(), getattr(signal, self.action))


def lines(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the wall clock."""
    text = (run / "metrics.jsonl").read_text().splitlines()
    return [without_clock(json.loads(line)) for line in text]


def same_end(a: Path, b: Path) -> None:
    """Assert that two runs recorded the same numbers and ended with the same weights."""
    assert lines(a) == lines(b)
    x, y = (newest(run) for run in (a, b))
    assert x.name == y.name
    ours, theirs = (load_file(p / "model.safetensors") for p in (x, y))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def no_report(monkeypatch):
    """The page is another package's; these tests are about what lies under it."""
    monkeypatch.setattr(api, "write_report", lambda run: run / "report.html")


def fork(call: Callable[[], object], log: Path) -> int:
    """Run a call in a forked process; its pid.

    The child shares the imports, so it costs a fraction of a second; torch runs on one thread in
    it, since threads do not survive a fork. What it prints goes to `log`.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        torch.set_num_threads(1)
        call()
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(pid: int, log: Path, timeout_s: float = 120.0) -> int:
    """Wait for a forked process: its exit status, or minus the signal that ended it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"the child did not end in {timeout_s} s: {log.read_text()[-500:]}")


def forked(call: Callable[[], object], log: Path, timeout_s: float = 120.0) -> int:
    """`fork`, then `ended`."""
    return ended(fork(call, log), log, timeout_s)


def command(*arguments: Any) -> Callable[[], None]:
    """`brorl` with arguments, to be run in a forked process."""

    def call() -> None:
        sys.argv = ["brorl", *map(str, arguments)]
        cli.main()

    return call


class DyingAt:
    """Counts the calls that make a write last (fsync, rename) and dies at the k-th, before or after.

    Used in a forked process only: it replaces functions of `os` for good.
    """

    def __init__(self, k: int, *, after: bool) -> None:
        self.k, self.after, self.calls = k, after, 0
        for name in ("fsync", "rename", "replace"):
            setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.k and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*args, **kwargs)
            if self.calls == self.k:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call
