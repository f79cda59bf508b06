"""verl's synchronous trainer with our step in it: trainer.v1.trainer_mode=brorl.

verl keeps the processes, the sharding, the inference servers, weight transfer, checkpoints and
its loop. Ours is what a step computes: which prompts, which groups, which advantages, which rows
in which update, at which rate; the same functions as in `brorl.train`, in the same order.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from brorl.errors import ConfigError, DataError, RunError
from brorl.record.metrics import append_metrics, cut_metrics
from brorl.record.rollouts import cut_rollouts, write_rollouts
from brorl.tasks.problem import Problem
from brorl.tasks.reward_sources import LabelReward
from brorl.train.batch import minibatches, rows_of
from brorl.train.collect import Collected, Collector, PassRate, shortage
from brorl.train.environment import data_hash
from brorl.train.prompts import PromptSource
from brorl.train.rate import update_lr
from brorl.train.recipe import load_settings
from brorl.train.recording import rollout_rows
from brorl.train.reference import ResetRule
from brorl.train.rewards import assign_advantages, shape
from brorl.train.settings import TrainSettings
from brorl.train.step import Clock, StepResult
from brorl.train.telemetry import clock_metrics, step_metrics
from brorl.train.update import UpdateReport
from brorl.verl import update as updating
from brorl.verl.compile import differences
from brorl.verl.data_files import FOLDER, HELDOUT, TRAIN, read_problems
from brorl.verl.engine import TRAIN as PARTITION
from brorl.verl.engine import VerlDesk, VerlEngine
from brorl.verl.flat import flat
from brorl.verl.heldout import evaluate, metrics_of
from brorl.verl.names import TRAINER
from brorl.verl.reader import reader
from brorl.verl.reward import reward_of, verifier_of
from brorl.verl.state import RunState
from brorl.verl.worker import RATE, BrorlWorker


@register_trainer(TRAINER)
class BrorlTrainer(PPOTrainerSync):
    """The embedded trainer's step on verl's workers."""

    def __init__(self, config: Any) -> None:
        self.run = Path(config.brorl.run)
        self.settings: TrainSettings = load_settings(self.run / "config.yaml", {}, may_change=())
        changed = differences(self.settings, flat(OmegaConf.to_container(config, resolve=True)))
        if changed:
            raise ConfigError(f"verl's configuration is not {self.run}'s: {'; '.join(changed)}")
        super().__init__(config)

    # ---- what verl builds, and what stands in its place

    def _build_replay_buffer(self) -> None:
        # verl compares this name to know that each step drains its own rollouts, as ours does.
        self.trainer_mode = "sync"
        # Groups are chosen by train.collect.Collector: verl's buffer has nothing to sample.

    def _init_dataloader(self) -> None:
        """Problems and our state in place of verl's loaders."""
        s = self.settings
        train = read_problems(self.run / FOLDER / TRAIN)
        self.heldout = read_problems(self.run / FOLDER / HELDOUT)
        reward = reward_of(s, verifier_of(s), self.run)
        if isinstance(reward, LabelReward):
            train = [p for p in train if reward.covers(p)]
            if not train:
                raise ConfigError(
                    f"reward.source {s.reward.source}: no training problem has a label"
                )
        self.policy = reader(self.tokenizer, str(self.config.actor_rollout_ref.model.path))
        self._check_prompts([*train, *self.heldout])
        self.problems = {p.id: p for p in [*train, *self.heldout]}
        self.state = RunState(
            PromptSource(
                train, s.seed, s.data.solved_weight, s.data.solved_share, s.data.solved_visits
            ),
            PassRate(),
            ResetRule(s.ref),
            data_hash([*train, *self.heldout]),
        )
        self.train_dataloader = self.state  # what verl saves and restores
        self.total_training_steps = s.steps
        self.steps_per_epoch = s.steps + 1
        OmegaConf.set_struct(self.config, False)
        self.config.actor_rollout_ref.actor.optim.total_training_steps = s.steps * s.num_minibatches
        OmegaConf.set_struct(self.config, True)

    def _check_prompts(self, problems: Sequence[Problem]) -> None:
        limit = int(self.config.data.max_prompt_length)
        for problem in problems:
            tokens = len(self.policy.encode(problem.prompt))
            if tokens > limit:
                raise DataError(
                    f"problem {problem.id}: its prompt has {tokens} tokens, verl was sized for "
                    f"{limit}; raise --max-prompt-tokens"
                )

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(BrorlWorker)

    # ---- before the first step

    def fit(self, agent_loop_manager: Any) -> None:
        """Build what needs verl's workers, then verl's own loop."""
        s = self.settings
        self.agent_loop_manager = agent_loop_manager
        if self.state.reference_step:
            self.ref_policy_wg.load_reference(self._reference_folder(self.global_steps))
        self.engine = VerlEngine(
            agent_loop_manager,
            self.problems,
            self.policy.eos_ids,
            lambda: int(self.global_steps),
            self.state.updates,
        )
        self.collector = Collector(
            s,
            self.state.source,
            self.engine,
            VerlDesk(),
            self.policy,
            pass_rate=self.state.pass_rate,
        )
        cut_metrics(self.run, self.global_steps if self.state.restored else -1)
        cut_rollouts(self.run, self.global_steps)
        super().fit(agent_loop_manager)

    # ---- a step

    def prepare_step(self) -> dict[str, Any]:
        """Nothing: the collector asks for prompts itself, round by round."""
        return {}

    def _step_once(self, metrics: Any, timing_raw: Any, sample_batch_size: int) -> Any:
        s, step = self.settings, int(self.global_steps)
        clock = Clock()
        self.on_sample_begin()
        collected = self.collector.collect(step)
        self.on_sample_end()
        clock.lap("generate")
        clock.seconds["grade"] = 0.0  # verl's reward workers judge while others still sample

        shape(collected.fresh, s, step)
        assign_advantages(collected.kept, s, step)
        rows = rows_of(collected.kept)
        whole = [len(x.completion.tokens) for g in collected.kept for x in g.counting]
        report = self._update_all(rows, step, whole) if rows else UpdateReport()
        clock.lap("update")

        result = StepResult(collected, report, {}, clock.seconds)
        self._own = dict(step_metrics(step, result, s, self.state.updates))
        self._result = result
        self.state.kl = self._own.get("policy/kl_ref")
        self._count_empty(step, collected, report)
        self._own |= self._renew_reference(step)
        rows_written = rollout_rows(self.run.name, step, collected, s.record.tokens)
        write_rollouts(self.run, step, rows_written)
        timing_raw["gen"] = clock.seconds["generate"]
        timing_raw["update_actor"] = clock.seconds["update"]
        return self._everything(collected, step)

    def _update_all(self, rows: list[Any], step: int, whole: list[int]) -> UpdateReport:
        """Score, correct, and one call of verl's update for each mini-batch."""
        s = self.settings
        dealt = minibatches(rows, s.num_minibatches, s.seed, step)
        batches = [self._score(part, step) for part in dealt]
        updating.take_old_logprobs(batches)
        report = UpdateReport()
        found = updating.corrections(batches, s)
        for batch in batches:
            scale = updating.denominator_scale(batch.rows, len(batches), whole, s)
            updating.write_update(batch, s, scale)
            rate = update_lr(s, self.state.updates)
            figures = updating.read_metrics(self._update_one(batch, rate))
            number = self.state.updates + 1
            finite = torch.isfinite(torch.tensor([figures.loss, figures.grad_norm]))
            if not bool(finite.all()):  # verl leaves out such a step and goes on
                raise RunError(
                    f"step {step}: loss {figures.loss}, gradient norm {figures.grad_norm} at "
                    f"update {number}; the last checkpoint is intact"
                )
            updating.add_to(report, figures, sum(r.length for r in batch.rows), rate)
            self.state.updates = number
        self.engine.weights_changed(self.state.updates)
        report.mismatch, report.mismatch_kept, report.masked_share = found
        return report

    def _score(self, rows: list[Any], step: int) -> updating.Batch:
        """A mini-batch as verl takes it: padded to the ranks, balanced, scored."""
        meta = KVBatchMeta(
            keys=updating.keys_of(rows),
            tags=[updating.tag_of(row, step) for row in rows],
            partition_id=PARTITION,
        )
        meta.extra_info["temperature"] = self.settings.rollout.temperature
        meta = self._balance_batch(meta, metrics={})
        meta = self._compute_old_log_prob(meta, metrics={})
        if self.use_reference_policy:
            meta = self._compute_ref_log_prob(meta, metrics={})
        self._padding = [*getattr(self, "_padding", []), *(k for k in meta.keys if _pads(k))]
        return updating.Batch(rows, meta)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Each update is a call of its own, so that rows are padded to the ranks alone."""
        return dp_size

    def _update_one(self, batch: updating.Batch, rate: float) -> dict[str, Any]:
        meta = batch.meta
        meta.extra_info.update(
            {
                "calculate_entropy": True,
                "compute_loss": True,
                "distillation_use_topk": False,
                "distillation_only": False,
                "global_batch_size": len(batch.rows),  # rows that count: verl's padding does not
                "mini_batch_size": len(meta.keys),
                "epochs": 1,
                "seed": self.config.actor_rollout_ref.actor.data_loader_seed,
                "dataloader_kwargs": {"shuffle": False},
                "temperature": self.settings.rollout.temperature,
                RATE: rate,
            }
        )
        found: dict[str, Any] = self.actor_rollout_wg.update_actor(meta)["metrics"]
        return found

    def _count_empty(self, step: int, collected: Collected, report: UpdateReport) -> None:
        limit = self.settings.dynamic_sampling.max_empty_steps
        self.state.empty_steps = 0 if report.updates else self.state.empty_steps + 1
        if self.state.empty_steps >= limit:
            why = shortage(collected, self.settings.prompts_per_step)
            raise RunError(f"{limit} steps in a row without an update; in step {step} {why}")

    def _renew_reference(self, step: int) -> dict[str, Any]:
        """Reset the reference where the rule says so, before the step's checkpoint."""
        if not self.use_reference_policy:
            return {}
        rule = self.state.reset_rule
        reason = rule.reason(step, self.state.kl)
        if reason is None:
            return {"ref/reset": 0}
        self.ref_policy_wg.reset_reference(self.settings.ref.reset_optimizer)
        rule.did(step)
        self.state.reference_step = step
        return {"ref/reset": 1, "ref/reset_reason": reason}

    def _everything(self, collected: Collected, step: int) -> KVBatchMeta:
        """Every key of the step; verl's loop clears them from its queue."""
        keys = [x.completion.key for g in collected.fresh for x in g.samples]  # type: ignore[attr-defined]
        keys += getattr(self, "_padding", [])
        self._padding = []
        return KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id=PARTITION)

    # ---- after a step

    def _compute_metrics(
        self, batch: Any, metrics: Any, timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        """Our names for what the step did, in metrics.jsonl and in verl's loggers."""
        testing = float(timing_raw.get("testing", 0.0))
        whole = sum(self._result.seconds.values())
        other = max(0.0, float(timing_raw.get("step", whole)) - whole)
        own = self._own | clock_metrics(self._result, testing, other)
        own |= {k: v for k, v in metrics.items() if k.startswith("eval/")}
        append_metrics(self.run, own)
        metrics.clear()
        metrics.update({k: v for k, v in own.items() if isinstance(v, int | float)})

    def _validate(self) -> dict[str, Any]:
        """Held-out problems under our protocol; the first is recorded as step 0."""
        began = time.perf_counter()
        found = evaluate(self.policy, self.engine, self.heldout, self.settings)
        due = self.settings.eval_every
        if self.global_steps == 0 or (due is not None and self.global_steps % due == 0):
            self.state.reset_rule.saw_eval(found.pass_at_1.value)
        metrics = metrics_of(found)
        if self.global_steps == 0:
            row = {"step": 0, "updates": 0} | metrics
            append_metrics(self.run, row | {"time/eval": time.perf_counter() - began})
        return metrics

    def _save_checkpoint(self) -> None:
        if self.state.reference_step:
            self.ref_policy_wg.save_reference(self._reference_folder(self.global_steps))
        super()._save_checkpoint()

    def _reference_folder(self, step: int) -> str:
        return str(self.run / "checkpoints" / f"global_step_{step}" / "reference")


def _pads(key: str) -> bool:
    return key.startswith("pad")
