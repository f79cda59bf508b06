"""Train, resume and warm-start from Python: what the command line does, returned as an object."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from brorl.errors import ConfigError, DataError, Interrupted, PolicyError, RunError, ShapeError
from brorl.record.evals import cut_evals
from brorl.record.files import remove_tree
from brorl.record.metrics import cut_metrics, read_metrics
from brorl.record.rollouts import cut_rollouts
from brorl.record.rundir import CONFIG, ENVIRONMENT, RunLock, create_run, free_name, require_run
from brorl.report.run import write_report
from brorl.rollout.factory import check_engine, engine_record
from brorl.tasks.check import check_task
from brorl.train.checkpoint import Checkpoint, sweep_leftovers
from brorl.train.continuation import (
    MAY_CHANGE,
    check_data,
    check_settings,
    check_start,
    newest_checkpoint,
    own_code,
    recorded,
    say_changes,
    say_metrics,
)
from brorl.train.environment import environment, identity
from brorl.train.limits import limit_reached
from brorl.train.loggers import open_loggers
from brorl.train.loop import Loop, StopFlag
from brorl.train.phase import unused_beside
from brorl.train.progress import Progress, Silence
from brorl.train.recipe import (
    Overrides,
    dump_settings,
    load_recipe,
    load_settings,
    override_pairs,
    plain_settings,
)
from brorl.train.reward_source import reward_source
from brorl.train.settings import TrainSettings
from brorl.train.setup import (
    Data,
    assemble,
    init_folder,
    open_policy,
    read_data,
    set_threads,
)
from brorl.train.warmstart import cached_warm_start
from brorl.train.yaml_values import shown
from brorl.verify.pool import GraderPool

_FOLDER_NAME = re.compile(r"[^/\\\0-\x1f\x7f]{1,100}")


def train(
    recipe: str,
    overrides: Overrides = (),
    *,
    progress: Progress | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Run a recipe to its end, as `brorl train` does.

        brorl.train("quickstart", steps=20, **{"rollout.n": 128})

    Args:
        recipe: a shipped name or the path of a YAML file.
        overrides: "key.sub=value" texts or a mapping of dotted keys.
        progress: told what happens; silence by default.
        more: further overrides, by dotted key.

    Returns:
        {"run", "eval_before", "eval_after", "steps", "samples_generated", "samples_kept",
        "seconds"}: what `--json` prints (design contract).

    Raises:
        ConfigError, DataError, PolicyError: bad input; no run folder is left.
        RunError, EngineError: the run cannot go on; it is resumable.
        Interrupted: asked to stop; it is resumable.
    """
    settings = load_recipe(recipe, [*override_pairs(overrides), *more.items()])
    return _start(settings, progress or Silence())


def resume(
    run: Path,
    overrides: Overrides = (),
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Go on with a run from its newest complete checkpoint; a finished run is only reported.

    Args:
        run: the run folder.
        overrides: of the settings in MAY_CHANGE only.
        progress: told what happens.

    Raises:
        As `train`; ConfigError also for a setting that may not change, and for a run that another
        process holds; DataError for data that changed.
    """
    with _reading():
        require_run(run)
    settings = load_settings(run / CONFIG, overrides, may_change=MAY_CHANGE)
    return _go_on(run, settings, progress or Silence())


def warm_start_only(
    recipe: str, overrides: Overrides = (), *, progress: Progress | None = None
) -> tuple[Path, float | None]:
    """Run a recipe's warm start alone.

    Returns:
        The checkpoint folder, and the pass rate reached where it was made now (None: cached).

    Raises:
        ConfigError: the recipe has no warm start.
    """
    settings = load_recipe(recipe, overrides)
    if settings.warmstart is None:
        raise ConfigError(f"recipe {recipe} has no warmstart section")
    set_threads(settings, None)
    return _warm(settings, read_data(settings), StopFlag(), progress or Silence())


def _start(settings: TrainSettings, progress: Progress) -> dict[str, Any]:
    with _reading():
        run = run_path(settings)
        set_threads(settings, None)
        check_engine(settings.rollout.engine)
        data = read_data(settings)
        policy = open_policy(settings, data, init_folder(settings))
        check_golds(settings, data)
        record = environment(policy, settings.model.revision, data.fingerprint)
        record |= {"settings": plain_settings(settings), "code": own_code(settings)}
        record["engine"] = engine_record(settings.rollout.engine)
    create_run(
        run, {CONFIG: dump_settings(settings), ENVIRONMENT: json.dumps(record, indent=1) + "\n"}
    )
    progress.note(f"run {run}")
    for name in unused_beside(settings):
        progress.note(f"{name} is not used: the weights are those of {settings.init.from_}")
    with RunLock(run):
        try:
            return _run(run, settings, data, record, None, progress, begins=True)
        except (ConfigError, DataError, PolicyError, ShapeError):
            if not read_metrics(run):  # bad input that only the run could find; nothing is done
                remove_tree(run)
            raise


def _go_on(run: Path, settings: TrainSettings, progress: Progress) -> dict[str, Any]:
    record = recorded(run)
    check_settings(run, settings, record.get("settings"))
    set_threads(settings, int(record["threads"]))
    with _writing(run), RunLock(run):
        checkpoint = newest_checkpoint(run, progress, identity(record, MAY_CHANGE))
        last = checkpoint.step if checkpoint else -1
        totals = checkpoint.state["totals"] if checkpoint else {}
        if last >= settings.steps or limit_reached(settings, totals):
            progress.note(f"{run} is finished: {last} steps are done")
            return _finish(run, last, progress)
        with _reading():
            data = read_data(settings)
        check_data(run, record, data.fingerprint)
        sweep_leftovers(run)
        kept = cut_metrics(run, last)
        say_metrics(run, checkpoint, kept, progress)
        cut_rollouts(run, last)
        cut_evals(run, last)
        return _run(run, settings, data, record, checkpoint, progress, begins=False)


def _run(
    run: Path,
    settings: TrainSettings,
    data: Data,
    record: Mapping[str, Any],
    checkpoint: Checkpoint | None,
    progress: Progress,
    *,
    begins: bool,
) -> dict[str, Any]:
    """Everything after the door: warm start, parts, loop, report. The caller holds the lock."""
    stop = StopFlag()
    with _writing(run), ExitStack() as stack:
        stack.enter_context(stop.listening(progress.note))
        source = checkpoint.folder if checkpoint else init_folder(settings)
        if source is None and settings.warmstart is not None:
            source, _ = _warm(settings, data, stop, progress)
        policy = open_policy(settings, data, source)
        if checkpoint is not None:
            say_changes(record, settings, policy, progress)
        elif not begins and settings.warmstart is None:
            check_start(run, record, policy)
        pool = stack.enter_context(grader_pool(settings, data))
        reward = reward_source(run, settings, data, policy, begins=checkpoint is None)
        bench = assemble(settings, data, policy, pool, reward, checkpoint)
        stack.callback(bench.learner.engine.close)
        loggers = [stack.enter_context(closing(x)) for x in open_loggers(run, settings)]
        Loop(run, bench, loggers, progress, stop, identity(record, MAY_CHANGE)).run()
        return _finish(run, bench.step, progress)


@contextmanager
def _reading() -> Iterator[None]:
    """Where a user's paths are read: what the system says of them is bad input."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise ConfigError(
            "data or model do not fit this machine's memory, see `brorl plan`: "
            + " ".join(str(error).split())[:200]
        ) from error
    except OSError as error:
        raise ConfigError(f"{str(error.filename)[:200]}: {error.strerror}") from error


@contextmanager
def _writing(run: Path) -> Iterator[None]:
    """Where a run writes and computes: what the machine lacks ends it, and it is resumable."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise RunError(
            f"{run}: out of memory ({' '.join(str(error).split())[:120] or 'MemoryError'}); the "
            f"last checkpoint is intact: free some and go on with `brorl resume {run}`, or begin "
            "a run with a smaller rollout.memory_budget, micro_batch_tokens or max_new_tokens"
        ) from error
    except OSError as error:
        raise RunError(
            f"{run}: writing failed: {error.strerror or error}; the last checkpoint is intact, go "
            f"on with `brorl resume {run}`"
        ) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Python, torch on a device, and torch on the CPU each say it in their own way."""
    told = "can't allocate memory" in str(error) or "bad_alloc" in str(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or told


def _finish(run: Path, steps: int, progress: Progress) -> dict[str, Any]:
    try:
        progress.note(f"report {write_report(run)}")
    except (DataError, RunError, OSError) as error:  # the training itself is done and saved
        progress.note(f"the report could not be written ({error}); try: brorl report {run}")
    return result_of(run, steps)


def _warm(
    settings: TrainSettings, data: Data, stop: StopFlag, progress: Progress
) -> tuple[Path, float | None]:
    """The warm start's folder, and the rate it reached where it was made now."""
    assert settings.warmstart is not None
    total = settings.warmstart.steps

    def told(step: int, loss: float, rate: float | None) -> None:
        progress.warmstart(step, total, loss, rate)
        if stop.set_by is not None:
            raise Interrupted("stopped during the warm start; `brorl resume` begins it again")

    policy = open_policy(settings, data, None)
    problems = data.task.problems("warmstart")
    folder, rate = cached_warm_start(policy, problems, data.task.verifier, settings, told)
    if rate is None:
        progress.note(f"warm start taken from {folder}")
    return folder, rate


def check_golds(settings: TrainSettings, data: Data) -> None:
    """Refuse a task whose verifier does not take its own golds, or pays junk.

    Raises:
        DataError: naming the first problem, and how to train nevertheless.
    """
    sample = settings.grading.check_golds
    if sample == 0:
        return
    found = check_task(
        data.task, sample=sample, seed=settings.seed, deadline_s=settings.grading.deadline_s
    )
    if not found.valid:
        what = "does not take its own gold" if found.refused else "pays junk"
        first = (found.refused or found.paid_junk)[0]
        raise DataError(
            f"task {data.task.name} {what}: problem {first.problem_id}, {first.text[:80]!r} is "
            f"{first.verdict.kind} ({first.verdict.reason}); look with `brorl tasks check`, or "
            "train all the same with grading.check_golds=0"
        )


def grader_pool(settings: TrainSettings, data: Data) -> GraderPool:
    """Grader processes; none for a verifier that says it only compares."""
    workers = settings.grading.workers
    if workers is None:
        workers = 0 if getattr(data.task.verifier, "in_process", False) else os.cpu_count() or 1
    return GraderPool(workers, settings.grading.deadline_s)


def run_path(settings: TrainSettings) -> Path:
    """run_dir, or runs/NAME with a number where that exists."""
    if settings.run_dir is not None:
        return Path(settings.run_dir)
    name = settings.name or "run"
    if name in (".", "..") or not _FOLDER_NAME.fullmatch(name):
        raise ConfigError(
            f"name must be that of a folder in runs/, got {shown(name)}; or set run_dir"
        )
    return free_name(Path("runs"), name)


def result_of(run: Path, steps: int) -> dict[str, Any]:
    """The object that `--json` prints, from what the run recorded."""
    rows = read_metrics(run)
    evals = [r for r in rows if "eval/pass@1" in r]

    def passed(row: Mapping[str, Any] | None) -> dict[str, float] | None:
        if row is None:
            return None
        names = {"pass@1": "", "low": "_low", "high": "_high"}
        return {name: row[f"eval/pass@1{suffix}"] for name, suffix in names.items()}

    seconds = {
        phase: round(sum(r.get(f"time/{phase}") or 0.0 for r in rows), 3)
        for phase in ("generate", "grade", "update", "eval", "other")
    }
    return {
        "run": str(run),
        "eval_before": passed(evals[0] if evals and evals[0]["step"] == 0 else None),
        "eval_after": passed(evals[-1] if evals else None),
        "steps": steps,
        "samples_generated": sum(r.get("samples/generated") or 0 for r in rows),
        "samples_kept": sum(r.get("samples/kept") or 0 for r in rows),
        "seconds": seconds | {"total": round(sum(seconds.values()), 3)},
    }
