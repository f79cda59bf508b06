"""Runs one by one, or several at once, each in a process of its own; any of them may be resumed.

A process of its own, so that peak memory and threads are the run's. They come from a fork server
that has loaded torch once. With no workers everything happens in this process, which is what tests
and debuggers want; peak memory is then of all runs so far.
"""

import json
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from brorl import errors
from brorl.errors import BrorlError, Interrupted, RunError
from brorl.record.files import write_json
from brorl.record.rundir import CONFIG
from brorl.studies.runner.contract import Knobs
from brorl.studies.runner.progress import Watch
from brorl.studies.runner.spec import load_study

SHARE = 0.9
"""Of the time left that runs are given: the rest is for starting them, and for the report."""


@dataclass(frozen=True)
class Job:
    """A run to be made or gone on with, and the measurement that follows it.

    Attributes:
        name: unique in the study.
        folder: of the run.
        done: JSON file that says it is finished; written last, by the job.
        recipe, pairs: for `brorl.train`.
        samples: how many it is to generate: its weight in progress and time.
        study: whose `measure` is called at the end; None for a start.
        knobs: handed to `measure`.
    """

    name: str
    folder: Path
    done: Path
    recipe: str
    pairs: tuple[tuple[str, Any], ...]
    samples: int
    study: str | None
    knobs: Knobs


def read_done(job: Job) -> dict[str, Any] | None:
    """What a finished job wrote; None where it is not finished."""
    if not job.done.is_file():
        return None
    found: dict[str, Any] = json.loads(job.done.read_text())
    return found


def run_job(job: Job, max_seconds: float | None, progress: Any = None) -> None:
    """Train or resume, measure, and say so in `job.done`.

    Args:
        job: which.
        max_seconds: of the whole run, earlier sessions included; None: no limit.
        progress: see brorl.train.progress.

    Raises:
        As brorl.train and brorl.resume.
    """
    from brorl.train.api import resume, train

    began, began_cpu = time.monotonic(), _cpu_s()
    limit = {} if max_seconds is None else {"max_seconds": max_seconds}
    if (job.folder / CONFIG).is_file():
        result = resume(job.folder, limit, progress=progress)
    else:
        pairs = [*job.pairs, *limit.items(), ("run_dir", str(job.folder))]
        result = train(job.recipe, pairs, progress=progress)
    study = load_study(job.study) if job.study is not None else None
    measured = study.measure(job.folder, job.knobs) if study and study.measure else {}
    job.done.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        job.done,
        {
            "ended": _ended(job, result, max_seconds),
            "seconds": round(time.monotonic() - began, 3),  # of this session
            "cpu_seconds": round(_cpu_s() - began_cpu, 3),
            "measured": measured,
        },
    )


def run_jobs(
    jobs: Sequence[Job],
    *,
    later: Sequence[Job],
    workers: int,
    deadline: float | None,
    watch: Watch,
    after: Callable[[Job], None],
) -> None:
    """Do what is not done yet.

    Args:
        jobs: in the order in which they start.
        later: what has to be done after them by the same deadline.
        workers: processes at once; 0: in this one.
        deadline: of time.monotonic(); each job gets its share of what is left.
        watch: told of progress.
        after: called when a job is done.

    Raises:
        Interrupted: by a signal; runs are saved.
        BrorlError: what a job raised; the others that were running are stopped and saved.
    """
    left = [job for job in jobs if read_done(job) is None]
    if workers == 0:
        for i, job in enumerate(left):
            watch.begins(job)
            run_job(job, _share(job, [*left[i:], *later], deadline, 1), watch.of(job))
            watch.ends(job)
            after(job)
        return
    _Crew(left, later, workers, deadline, watch, after).run()


def _share(job: Job, left: Sequence[Job], deadline: float | None, workers: int) -> float | None:
    """Seconds for a job: what earlier sessions took, and its part of what is left for `left`."""
    if deadline is None:
        return None
    part = job.samples / sum(x.samples for x in left)
    now = max(0.0, deadline - time.monotonic()) * workers * SHARE * part
    return max(1e-3, _spent_before(job.folder) + min(now, max(0.0, deadline - time.monotonic())))


def _spent_before(run: Path) -> float:
    """Seconds that a run has on record."""
    from brorl.record.metrics import read_metrics

    phases = ("generate", "grade", "update", "eval", "other")
    return sum(float(r.get(f"time/{p}") or 0.0) for r in read_metrics(run) for p in phases)


def _ended(job: Job, result: Mapping[str, Any], max_seconds: float | None) -> str:
    """Which limit ended the run."""
    asked = dict(job.pairs)
    if result["samples_generated"] >= asked["max_samples"]:
        return "max_samples"
    reached = max_seconds is None or result["steps"] >= asked.get("steps", float("inf"))
    return "steps" if reached else "max_seconds"


def _cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


class _Crew:
    """Several processes, a run each; a signal to this one reaches them once."""

    def __init__(
        self,
        jobs: Sequence[Job],
        later: Sequence[Job],
        workers: int,
        deadline: float | None,
        watch: Watch,
        after: Callable[[Job], None],
    ) -> None:
        self._waiting, self._later = list(jobs), list(later)
        self._running: list[tuple[Job, Any, Connection]] = []
        self._workers, self._deadline = workers, deadline
        self._watch, self._after = watch, after
        self._stopped_by: str | None = None
        self._failed: BaseException | None = None
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["brorl.train.api"])

    def run(self) -> None:
        """Until all are done, or one failed, or a signal came."""
        old = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            while self._running or (self._waiting and not self._stops):
                while self._waiting and len(self._running) < self._workers and not self._stops:
                    self._start(self._waiting[0])
                self._collect()
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
        if self._stopped_by is not None:
            raise Interrupted(f"stopped by {self._stopped_by}; its runs are saved")
        if self._failed is not None:
            raise self._failed

    @property
    def _stops(self) -> bool:
        return self._stopped_by is not None or self._failed is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._stopped_by = signal.Signals(number).name
        self._watch.note(f"{self._stopped_by}: the runs finish their step, then save")
        self._signal_all()

    def _signal_all(self) -> None:
        for _, process, _ in self._running:
            with suppress(ProcessLookupError, TypeError):
                os.kill(process.pid, signal.SIGTERM)

    def _start(self, job: Job) -> None:
        unfinished = [*self._waiting, *(j for j, _, _ in self._running), *self._later]
        limit = _share(job, unfinished, self._deadline, self._workers)
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_child, args=(job, limit, theirs), name=job.name)
        process.start()
        theirs.close()
        self._waiting.remove(job)
        self._running.append((job, process, ours))
        self._watch.begins(job)

    def _collect(self) -> None:
        """Wait a little; take in what has ended."""
        wait([p.sentinel for _, p, _ in self._running], timeout=0.5)
        for job, process, pipe in [x for x in self._running if not x[1].is_alive()]:
            process.join()
            self._running = [x for x in self._running if x[0] is not job]
            self._take(job, process.exitcode, pipe)
        for job, _, _ in self._running:
            self._watch.look(job)

    def _take(self, job: Job, status: int, pipe: Connection) -> None:
        error: tuple[str, str] | None = None
        with suppress(EOFError, OSError):
            error = pipe.recv() if pipe.poll() else None
        pipe.close()
        if status == 0 and error is None:
            self._watch.ends(job)
            self._after(job)
        elif not self._stops:
            self._failed = _as_error(job, status, error)
            self._signal_all()


def _as_error(job: Job, status: int, error: tuple[str, str] | None) -> BaseException:
    if error is None:
        what = f"signal {-status}" if status < 0 else f"exit status {status}"
        return RunError(f"run {job.name} died ({what}); it is resumable: {job.folder}")
    kind = getattr(errors, error[0], RunError)
    return BrorlError(error[1]) if kind is BrorlError else kind(f"run {job.name}: {error[1]}")


def _child(job: Job, max_seconds: float | None, pipe: Connection) -> None:
    """A run's process. Signals of the terminal go to the parent alone, which passes them on."""
    from brorl.train.progress import Silence

    class Orphaned(Silence):
        """Stops the run, saved, when the study's own process is gone."""

        def step(self, metrics: Mapping[str, Any]) -> None:
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                os.kill(os.getpid(), signal.SIGTERM)

    os.setsid()
    try:
        run_job(job, max_seconds, Orphaned())
    except BrorlError as error:
        with suppress(OSError):
            pipe.send((type(error).__name__, str(error)))
    except KeyboardInterrupt:
        with suppress(OSError):
            pipe.send(("Interrupted", "stopped at once"))
