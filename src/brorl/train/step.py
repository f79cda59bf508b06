"""One step, told in the order it happens."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from brorl.policy.model import Policy
from brorl.rollout.engine import Engine
from brorl.train.batch import minibatches, rows_of
from brorl.train.collect import Collected, Collector
from brorl.train.grading import Backlog
from brorl.train.reference import Reference
from brorl.train.rewards import assign_advantages, shape
from brorl.train.settings import TrainSettings
from brorl.train.update import UpdateReport, rescore, update
from brorl.train.width import width_metrics


@dataclass
class Learner:
    """What a step changes: the policy, its optimizer and the count of updates."""

    policy: Policy
    optimizer: torch.optim.Optimizer
    engine: Engine
    reference: Reference | None
    updates: int = 0

    def updated(self, updates: int) -> None:
        """After every optimizer step: what samples from here on is a new version."""
        self.updates = updates
        self.engine.weights_changed(updates)


class StepResult(NamedTuple):
    """What one step did; the groups carry every answer's record."""

    collected: Collected
    report: UpdateReport
    width: dict[str, float]  # what the width left unsampled, before the update
    seconds: dict[str, float]
    backlog: Backlog | None = None  # of the grader pool; None where none of ours graded


@dataclass
class Clock:
    """Seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str) -> None:
        """Book the time since the last lap under a phase."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now


def train_step(
    step: int,
    collector: Collector,
    learner: Learner,
    settings: TrainSettings,
    lr: Callable[[int], float],
) -> StepResult:
    """Sample wide, grade, filter, centre, and take `num_minibatches` clipped gradient steps.

    Args:
        step: 1-based. With settings.seed it fixes every random draw made here.
        collector: samples and grades groups.
        learner: changed in place.
        settings: of the run.
        lr: learning rate of the update with a given number.

    Returns:
        StepResult. Without a kept group the weights are untouched and `report.updates` is 0.

    Raises:
        RunError: no group with spread where settings say to stop, or a non-finite loss.
        EngineError: the engine failed or broke its contract.
    """
    # 1. Roll out wide, judge, and keep the groups whose answers disagree (on raw scores).
    clock = Clock()
    collected = collector.collect(step)
    clock.seconds["grade"] = collector.desk.waited_s
    clock.lap("generate")
    clock.seconds["generate"] -= collector.desk.waited_s
    width = width_metrics(learner.policy, collected.fresh, settings.rollout.temperature)

    # 2. Shape: what truncation and length add, after the filter.
    shape([*collected.fresh, *(g for g in collected.kept if g.born != step)], settings, step)

    # 3. Centre on each group's mean and scale over the whole batch, before any split.
    assign_advantages(collected.kept, settings, step)

    # 4. Rows: each answer with its own tokens, log-probs and advantage.
    rows = rows_of(collected.kept)
    correction = None
    if rows and not settings.reuses_engine_logprobs:
        correction = rescore(learner.policy, rows, settings)

    # 5. Update: every mini-batch holds a slice of every group.
    whole = [len(x.completion.tokens) for g in collected.kept for x in g.counting]
    report = update(
        learner.policy,
        learner.optimizer,
        minibatches(rows, settings.num_minibatches, settings.seed, step),
        settings,
        whole_lengths=whole,
        reference=learner.reference,
        lr=lr,
        updates_done=learner.updates,
        after_update=learner.updated,
    )
    if correction is not None:
        report.mismatch, report.mismatch_kept, report.masked_share = correction
    clock.lap("update")
    return StepResult(collected, report, width, clock.seconds, collector.desk.backlog)
