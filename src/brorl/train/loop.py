"""The loop: step, record, evaluate, save; stop cleanly when asked, and never lose what is done."""

import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import brorl
from brorl.errors import DataError, Interrupted, RunError
from brorl.evaluate.heldout import Heldout, evaluate_heldout
from brorl.evaluate.results import (
    Evaluation,
    ModelSource,
    Protocol,
    SuiteResult,
    write_evaluation,
)
from brorl.record.evals import eval_path
from brorl.record.files import write_json
from brorl.record.metrics import append_metrics, mark_metrics, read_metrics
from brorl.record.rollouts import write_rollouts
from brorl.report.outlook import describe as describe_outlook
from brorl.report.outlook import outlook, window_of
from brorl.rollout.engine import Sampling
from brorl.seeds import derive_seed
from brorl.train.batch import Row
from brorl.train.checkpoint import checkpoint_path, save_checkpoint, sweep
from brorl.train.environment import data_hash
from brorl.train.limits import evaluation_due, limit_reached
from brorl.train.loggers import Logger
from brorl.train.progress import Progress
from brorl.train.recording import rollout_rows
from brorl.train.setup import Workbench, state_of
from brorl.train.step import StepResult, train_step
from brorl.train.telemetry import clock_metrics, engine_metrics, step_metrics
from brorl.train.update import NonFiniteLoss
from brorl.train.widening import Switch, describe, sampling_error


class StopFlag:
    """Set by SIGINT or SIGTERM; read at the end of a step. A second signal stops at once."""

    def __init__(self) -> None:
        self.set_by: str | None = None

    @contextmanager
    def listening(self, note: Callable[[str], None]) -> Iterator[None]:
        """Handle signals within it; only the main thread can, elsewhere nothing is handled."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            if self.set_by is not None:
                raise KeyboardInterrupt
            self.set_by = signal.Signals(number).name
            note(f"{self.set_by}: finishing the step, then saving (again to stop at once)")

        old = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


class Loop:
    """Runs a workbench to its last step.

    Args:
        run: the run folder.
        bench: as built or restored; `bench.step` steps are done.
        loggers: TensorBoard and the like.
        progress: the console.
        stop: read at the end of each step.
        identity: of the run, kept in each checkpoint: see `brorl.train.environment.identity`.
    """

    def __init__(
        self,
        run: Path,
        bench: Workbench,
        loggers: list[Logger],
        progress: Progress,
        stop: StopFlag,
        identity: str,
    ) -> None:
        self._run = run
        self._bench = bench
        self._loggers = loggers
        self._progress = progress
        self._stop = stop
        self._identity = identity
        self._saved = -1

    def run(self) -> None:
        """Steps until `steps` are done, or max_samples or max_seconds reached.

        Raises:
            Interrupted: asked to stop; everything up to the last finished step is saved.
            RunError, OSError: cannot go on; the last checkpoint is intact.
        """
        bench, s = self._bench, self._bench.settings
        if bench.restored:
            self._saved = bench.step
            self._write_best()
            upcoming = ", ".join(d.group_id for d in bench.collector.source.upcoming(3))
            self._progress.note(f"goes on with step {bench.step + 1}; prompts {upcoming} come next")
        else:
            self._first()
        self._progress.begin(bench.step, s.steps)
        while bench.step < s.steps and limit_reached(s, bench.totals) is None:
            self._stop_if_asked()
            self._one(bench.step + 1)
        self._stop_if_asked()
        if bench.step < s.steps:
            self._progress.note(f"{limit_reached(s, bench.totals)} reached after step {bench.step}")

    def _first(self) -> None:
        """Evaluate what training starts from, and save it."""
        start = time.perf_counter()
        metrics: dict[str, Any] = {"step": 0, "updates": 0} | self._evaluate(0)
        metrics["time/eval"] = round(time.perf_counter() - start, 4)
        metrics |= engine_metrics(self._bench.learner.engine.report())
        self._tally({"eval": metrics["time/eval"]}, 0, 0)
        self._emit(metrics)
        self._save()

    def _one(self, step: int) -> None:
        bench, s = self._bench, self._bench.settings
        began, began_cpu = time.perf_counter(), time.process_time()
        try:
            result = train_step(step, bench.collector, bench.learner, s, bench.lr)
        except NonFiniteLoss as error:
            self._save_rows(step, error.rows)
            raise RunError(
                f"step {step}: {error}; the rows are in {self._run}/nonfinite/, the last "
                f"checkpoint is intact"
            ) from error
        metrics: dict[str, Any] = dict(step_metrics(step, result, s, bench.learner.updates))
        bench.step = step
        self._count_empty(step, result)
        metrics |= self._reset_reference(step, metrics.get("policy/kl_ref"))
        metrics |= self._widen(step, result)
        write_rollouts(
            self._run,
            step,
            rollout_rows(self._run.name, step, result.collected, s.record.tokens),
        )
        before_eval, cpu_s = time.perf_counter(), time.process_time() - began_cpu
        other_s = before_eval - began - sum(result.seconds.values())
        generated, kept = int(metrics["samples/generated"]), int(metrics["samples/kept"])
        before = bench.totals.get("generated", 0.0)
        self._tally(result.seconds | {"other": other_s}, generated, kept)
        last = step == s.steps or limit_reached(s, bench.totals) is not None
        due = evaluation_due(s, step, before, before + generated)
        metrics["prompts/seen"] = len(bench.collector.source.last_rate)
        if due or last:
            metrics |= self._evaluate(step, counts=due)
            metrics |= self._look_ahead(metrics)
        eval_s = time.perf_counter() - before_eval
        self._tally({"eval": eval_s}, 0, 0)
        metrics |= clock_metrics(result, eval_s, other_s)
        metrics |= engine_metrics(bench.learner.engine.report())
        metrics["time/cpu"] = round(cpu_s, 4)  # of this process; grader processes have their own
        self._emit(metrics)
        is_best = bench.best is not None and bench.best[0] == step
        if step % s.save_every == 0 or last or is_best:
            self._save()

    def _evaluate(self, step: int, counts: bool = True) -> dict[str, Any]:
        """Held-out metrics; empty where there are no held-out problems."""
        bench, s = self._bench, self._bench.settings
        if not bench.data.heldout:
            return {}
        e = s.eval
        sampling = Sampling(
            e.temperature, e.top_p, e.top_k, e.max_new_tokens or s.rollout.max_new_tokens
        )
        result = evaluate_heldout(
            bench.policy,
            bench.learner.engine,
            bench.data.heldout,
            bench.data.task.verifier,
            bench.pool,
            samples=e.samples,
            sampling=sampling,
            seed=derive_seed(s.seed, "heldout"),
        )
        write_evaluation(self._evaluation(step, result), eval_path(self._run, step))
        self._progress.evaluated(step, result)
        one = result.pass_at_1
        if bench.best is None or one.value > bench.best[1]:
            bench.best = (step, one.value)
            self._write_best()
        metrics = _eval_metrics(result) | {"eval/scheduled": int(counts)}
        if counts:
            bench.reset_rule.saw_eval(one.value)
            widening = bench.collector.widening
            if widening is not None:
                error = sampling_error(result)
                metrics |= self._switched(widening.after_eval(step, one.value, error))
        return metrics

    def _look_ahead(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Whether held-out progress has stopped, after a scheduled evaluation; said if it has."""
        if not metrics.get("eval/scheduled"):
            return {}
        window = window_of({"plateau": self._bench.settings.plateau.model_dump()})
        try:
            rows = read_metrics(self._run)
        except DataError:  # somebody has spoilt a line: going on matters more
            return {}
        found = outlook([*rows, metrics], window=window)
        if found is None:
            return {}
        if found.stopped:
            self._progress.note(describe_outlook(found))
        return found.metrics()

    def _widen(self, step: int, result: StepResult) -> dict[str, Any]:
        """Tell `waves: auto` what the step sampled; a replayed switch comes here."""
        widening = self._bench.collector.widening
        if widening is None:
            return {}
        counts = result.collected.counts
        widening.saw_groups(counts.groups, counts.solved_none)
        return self._switched(widening.after_step(step))

    def _switched(self, switch: Switch | None) -> dict[str, Any]:
        """Say and record a wave added, with the numbers that caused it."""
        widening = self._bench.collector.widening
        if switch is None or widening is None:
            return {}
        self._progress.note(describe(switch, widening.totals))
        return {f"width/switch_{name}": value for name, value in switch._asdict().items()}

    def _write_best(self) -> None:
        """best.json: the best evaluation so far; on resume one that came later is gone."""
        path, best = self._run / "best.json", self._bench.best
        if best is not None:
            write_json(path, {"step": best[0], "pass@1": best[1]})
        else:
            path.unlink(missing_ok=True)

    def _evaluation(self, step: int, result: Heldout) -> Evaluation:
        """The held-out evaluation as a file that `brorl compare` reads."""
        bench, s = self._bench, self._bench.settings
        template = getattr(bench.policy.tokenizer, "chat_template", None)
        return Evaluation(
            model=ModelSource(source=str(self._run), step=step, dtype=s.model.dtype),
            protocol=Protocol(
                samples=s.eval.samples,
                temperature=s.eval.temperature,
                top_p=s.eval.top_p,
                top_k=s.eval.top_k,
                max_new_tokens=s.eval.max_new_tokens or s.rollout.max_new_tokens,
                chat_template=hashlib.sha256(template.encode()).hexdigest() if template else None,
                engine=s.rollout.engine,
                seed=s.seed,
            ),
            versions={"brorl": brorl.__version__, "torch": torch.__version__},
            suites={
                bench.data.task.name: SuiteResult(
                    source="held-out problems of the run's task",
                    source_sha256=data_hash(bench.data.heldout),
                    verifier=type(bench.data.task.verifier).__name__,
                    prompt="{prompt}",
                    set_aside=result.ungraded,
                    problems=tuple(result.problems),
                )
            },
        )

    def _reset_reference(self, step: int, kl: float | None) -> dict[str, Any]:
        bench = self._bench
        reference = bench.learner.reference
        if reference is None:
            return {}
        reason = bench.reset_rule.reason(step, kl)
        if reason is None:
            return {"ref/reset": 0}
        reference.reset(bench.policy, step)
        bench.reset_rule.did(step)
        if bench.settings.ref.reset_optimizer:
            bench.learner.optimizer.state.clear()
        self._progress.note(f"step {step}: reference policy reset ({reason})")
        return {"ref/reset": 1, "ref/reset_reason": reason}

    def _count_empty(self, step: int, result: StepResult) -> None:
        bench, limit = self._bench, self._bench.settings.dynamic_sampling.max_empty_steps
        bench.empty_steps = 0 if result.report.updates else bench.empty_steps + 1
        if bench.empty_steps >= limit:
            counts = result.collected.counts
            raise RunError(
                f"{limit} steps in a row found no group with answers that disagree; the last had "
                f"{counts.groups} groups, {counts.dropped_wrong} all wrong, "
                f"{counts.dropped_right} all right, {counts.dropped_flat} equal in part credit"
            )
        if not result.report.updates:
            counts = result.collected.counts
            hint = ""
            if counts.groups == counts.solved_none:
                hint = (
                    "; no answer was right: look at some with `brorl rollouts`, at the prompt's "
                    "format, the verifier and rollout.max_new_tokens"
                )
            self._progress.note(f"step {step}: no group with spread, no update{hint}")

    def _emit(self, metrics: dict[str, Any]) -> None:
        append_metrics(self._run, metrics)
        for logger in self._loggers:
            logger.log(metrics)
        self._progress.step(metrics)

    def _save(self) -> None:
        bench = self._bench
        if self._saved == bench.step:
            return
        save_checkpoint(
            self._run,
            bench.step,
            bench.policy,
            bench.learner.optimizer,
            bench.learner.reference.policy if bench.learner.reference else None,
            bench.collector.carried,
            state_of(bench) | {"run": self._identity, "metrics": self._metrics_mark()},
        )
        self._saved = bench.step
        best = bench.best[0] if bench.best else None
        sweep(self._run, bench.step, bench.settings.keep_checkpoints, best)

    def _metrics_mark(self) -> dict[str, Any] | None:
        """Of the lines so far; None where somebody has spoilt one: saving matters more."""
        try:
            return mark_metrics(self._run, self._bench.step)._asdict()
        except DataError:
            return None

    def _stop_if_asked(self) -> None:
        if self._stop.set_by is None:
            return
        self._save()
        raise Interrupted(
            f"stopped by {self._stop.set_by} after step {self._bench.step}; saved "
            f"{checkpoint_path(self._run, self._bench.step)}; go on with: brorl resume {self._run}"
        )

    def _save_rows(self, step: int, rows: list[Row]) -> None:
        """The rows of a non-finite loss, for whoever looks into it."""
        folder = self._run / "nonfinite"
        folder.mkdir(exist_ok=True)
        write_json(
            folder / f"step-{step:06d}.json",
            [
                {
                    "group_id": row.group_id,
                    "sample_index": row.sample.index,
                    "text": row.sample.text,
                    "prompt_ids": list(row.prompt),
                    "response_ids": row.sample.completion.tokens.tolist(),
                    "old_logp": [repr(float(x)) for x in row.old_logp],
                    "advantage": repr(row.sample.advantage),
                    "weight": repr(row.sample.weight),
                    "policy_version": row.sample.completion.policy_version,
                }
                for row in rows
            ],
        )

    def _tally(self, seconds: dict[str, float], generated: int, kept: int) -> None:
        totals = self._bench.totals
        for phase, value in seconds.items():
            totals[f"seconds/{phase}"] = totals.get(f"seconds/{phase}", 0.0) + value
        totals["generated"] = totals.get("generated", 0.0) + generated
        totals["kept"] = totals.get("kept", 0.0) + kept


def _eval_metrics(result: Heldout) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for k, interval in result.pass_at_k.items():
        metrics[f"eval/pass@{k}"] = interval.value
        metrics[f"eval/pass@{k}_low"] = interval.low
        metrics[f"eval/pass@{k}_high"] = interval.high
    tokens = [t for p in result.problems for t in p.tokens]
    metrics["eval/problems"] = len(result.problems)
    metrics["eval/length_mean"] = sum(tokens) / len(tokens)
    metrics["eval/truncated_frac"] = sum(p.truncated for p in result.problems) / len(tokens)
    metrics["eval/ungraded_problems"] = result.ungraded
    metrics["eval/sampling_error"] = sampling_error(result)
    return metrics
