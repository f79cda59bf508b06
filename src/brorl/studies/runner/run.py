"""Run a study from its plan to its report; stopped anywhere, it goes on where it was.

OUT/study.json         what was asked for, and the seconds spent so far
OUT/runs/ARM-sSEED/    an ordinary run each: brorl resume, brorl report, brorl compare work on it
OUT/done/NAME.json     that a run is finished, and what was measured on it
OUT/result.json        all results; report.html, report.md and PNG files are made from it alone
"""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import brorl
from brorl.errors import (
    BrorlError,
    ConfigError,
    DataError,
    Interrupted,
    PolicyError,
    ShapeError,
)
from brorl.record.files import remove_tree, write_json
from brorl.record.rundir import RunLock
from brorl.studies.runner.jobs import Job, read_done, run_jobs
from brorl.studies.runner.outcome import RESULT, make_result, read_outcome
from brorl.studies.runner.progress import Quiet, Voice, Watch, clock
from brorl.studies.runner.recorded import read_result
from brorl.studies.runner.report import REPORT, write_study_report
from brorl.studies.runner.results import Results, gather
from brorl.studies.runner.spec import RunPlan, Spec, load_study, pairs_of, plan_runs
from brorl.studies.runner.starts import start_folder

FILE = "study.json"
_SAME = ("study", "overrides", "knobs", "seeds", "smoke", "budget_minutes")


def default_folder(spec: Spec) -> Path:
    """runs/studies/NAME, or NAME-smoke: the same call goes on in the same folder."""
    return Path("runs") / "studies" / (f"{spec.study}-smoke" if spec.smoke else spec.study)


def run_study(spec: Spec, out: Path | None = None, voice: Voice | None = None) -> dict[str, Any]:
    """Make the runs that are not there yet, then result and report.

    Args:
        spec: see make_spec.
        out: folder of the study; default_folder where None.
        voice: told of progress.

    Returns:
        {"study", "holds", "because", "result", "report"}, paths as text.

    Raises:
        ConfigError: settings, memory, or a folder that holds another study.
        Interrupted: asked to stop; the same call goes on.
        RunError and others of a run: it is resumable, and so is the study.
    """
    says = voice or Quiet()
    folder = out or default_folder(spec)
    plans = plan_runs(spec)  # refuses bad settings before there is a folder
    new = _begin(spec, folder)
    with RunLock(folder):
        if (folder / RESULT).is_file():
            says.note(f"{folder} is finished")
        else:
            try:
                _make(spec, plans, folder, says)
            except (ConfigError, DataError, PolicyError, ShapeError):
                if new and not (folder / "done").exists():  # bad input that only a run could find
                    remove_tree(folder)
                raise
        if not (folder / REPORT).is_file():
            write_study_report(folder)
    return answer(folder)


def report_study(folder: Path) -> Path:
    """Render the report of a finished study again. Raises DataError where there is no result."""
    return write_study_report(folder)


def answer(folder: Path) -> dict[str, Any]:
    """What a finished study found, as `--json` prints it; see run_study."""
    found = read_outcome(folder)
    return {
        "study": found["study"],
        "holds": found["holds"],
        "because": found["because"],
        "result": str(folder / RESULT),
        "report": str(folder / REPORT),
    }


def _begin(spec: Spec, folder: Path) -> bool:
    """Write study.json (True), or see that the folder's own asks for the same (False)."""
    asked = json.loads(json.dumps(spec.to_json()))
    path = folder / FILE
    if path.is_file():
        was = _read(path)["spec"]
        for name in _SAME:
            if was.get(name) != asked[name]:
                raise ConfigError(
                    f"{folder} holds a study with {name}={was.get(name)!r:.120}, asked for "
                    f"{asked[name]!r:.120}; ask for the same, or take another folder with --out"
                )
        return False
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"--out {folder} holds something that is no study; take another one")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format": "brorl-study-plan", "spec": asked, "seconds": 0.0})
    except OSError as error:
        raise ConfigError(f"--out {folder} cannot be written: {error.strerror}") from error
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        float(found["seconds"]), dict(found["spec"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not what a study writes: {error!r:.200}") from error
    return found


def _make(spec: Spec, plans: list[RunPlan], folder: Path, voice: Voice) -> None:
    """The starts, the runs, the judgement."""
    own = folder / "starts" if spec.budget_minutes is not None else None
    starts = {plan.name: start_folder(plan, own) for plan in plans}
    first = _start_jobs(spec, plans, starts, folder)
    jobs = [_job(spec, plan, starts[plan.name], folder) for plan in plans]
    everything = [*first, *jobs]
    done = {job.name for job in everything if read_done(job) is not None}
    watch = Watch({job.name: job.samples for job in everything}, done, voice)
    voice.note(
        f"study {spec.study}: {len(everything)} runs, {len(done)} of them done"
        + (f"; {spec.budget_minutes:g} minutes at most" if spec.budget_minutes else "")
    )
    clocked = _Clock(folder)
    deadline = clocked.deadline(spec.budget_minutes)
    try:
        for some, later in ((first, jobs), (jobs, [])):
            run_jobs(
                some,
                later=later,
                workers=spec.workers,
                deadline=deadline,
                watch=watch,
                after=lambda job: clocked.keep(),
            )
    except Interrupted as error:
        raise Interrupted(f"{error}; the same command goes on with {folder}") from error
    except BrorlError as error:
        raise type(error)(f"study {spec.study}: {error}") from error
    finally:
        clocked.keep()
    results = collect(spec, plans, folder)
    write_json(
        folder / RESULT,
        make_result(spec, results, load_study(spec.study), folder, _environment(clocked.seconds)),
    )
    voice.note(f"study {spec.study}: done in {clock(clocked.seconds)}")


def collect(spec: Spec, plans: list[RunPlan], folder: Path) -> Results[Any]:
    """The results of all runs, from their folders. Raises DataError where one is not finished."""
    arms = load_study(spec.study).arms(spec.knobs)
    found = {}
    for plan in plans:
        job = _job(spec, plan, None, folder)
        done = read_done(job)
        if done is None:
            raise DataError(f"{job.folder}: not finished")
        found[plan.arm, plan.seed] = read_result(plan.arm, plan.seed, job.folder, done)
    return gather(spec.knobs, arms, found)


def _job(spec: Spec, plan: RunPlan, start: Path | None, folder: Path) -> Job:
    return Job(
        plan.name,
        folder / "runs" / plan.name,
        folder / "done" / f"{plan.name}.json",
        plan.recipe,
        tuple(pairs_of(plan, start)),
        plan.samples,
        spec.study,
        spec.knobs,
    )


def _start_jobs(
    spec: Spec, plans: list[RunPlan], starts: dict[str, Path | None], folder: Path
) -> list[Job]:
    """One job for each different start, in the order in which arms ask for them."""
    found: dict[Path, Job] = {}
    for plan in plans:
        at = starts[plan.name]
        if at is None or plan.start is None or at in found:
            continue
        name = f"start-{len(found)}-s{plan.seed}"
        samples = int(dict(plan.start)["max_samples"])
        done = folder / "done" / f"{name}.json"
        found[at] = Job(name, at, done, plan.recipe, plan.start, samples, None, spec.knobs)
    return list(found.values())


def _environment(seconds: float) -> dict[str, Any]:
    import torch
    import transformers

    return {
        "brorl": brorl.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "seconds": round(seconds, 1),  # of all sessions
    }


class _Clock:
    """Seconds that a study has taken, over all its sessions, kept in study.json."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._plan = _read(self._path)
        self._before, self._began = float(self._plan["seconds"]), time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def deadline(self, minutes: float | None) -> float | None:
        """Of time.monotonic()."""
        return None if minutes is None else self._began + minutes * 60 - self._before

    def keep(self) -> None:
        """After every run: a kill loses one run's time."""
        write_json(self._path, self._plan | {"seconds": round(self.seconds, 3)})
