"""Build what a run needs, cheapest checks first: settings, data, model, and only then a folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from brorl.errors import BrorlError, ConfigError, DataError
from brorl.policy.masters import MasterAdamW
from brorl.policy.model import Policy
from brorl.rollout.factory import open_engine
from brorl.tasks.build import build_task
from brorl.tasks.problem import Problem, Task
from brorl.tasks.reward_sources import RewardSource
from brorl.train.checkpoint import (
    Checkpoint,
    find_checkpoint,
    load_carried,
    load_optimizer,
    open_checkpoint,
)
from brorl.train.collect import Collector
from brorl.train.environment import data_hash
from brorl.train.grading import GradingDesk
from brorl.train.opening import open_weights
from brorl.train.phase import check_shape
from brorl.train.prompt_check import check_prompts
from brorl.train.prompts import PromptSource
from brorl.train.rate import update_lr
from brorl.train.reference import Reference, ResetRule
from brorl.train.settings import TrainSettings
from brorl.train.step import Learner
from brorl.train.widening import Widening
from brorl.verify.pool import GraderPool


@dataclass
class Data:
    """The task and its problems."""

    task: Task
    train: Sequence[Problem]
    heldout: Sequence[Problem]

    @property
    def fingerprint(self) -> dict[str, object]:
        """For environment.json: a resumed run must find the same data."""
        return {
            "task": self.task.name,
            "train_problems": len(self.train),
            "heldout_problems": len(self.heldout),
            "sha256": data_hash([*self.train, *self.heldout]),
        }


@dataclass
class Workbench:
    """Everything a running run holds.

    Attributes:
        best: (step, pass@1) of the best held-out evaluation so far.
        totals: samples and seconds over the whole run, earlier sessions included.
        empty_steps: steps in a row without an update.
        restored: from a checkpoint of this run, so that its start is on record.
    """

    settings: TrainSettings
    data: Data
    policy: Policy
    learner: Learner
    collector: Collector
    pool: GraderPool
    reset_rule: ResetRule
    step: int = 0
    best: tuple[int, float] | None = None
    empty_steps: int = 0
    restored: bool = False
    totals: dict[str, float] = field(default_factory=dict)

    def lr(self, updates: int) -> float:
        """The learning rate of an update, batch rule, warm-up and decay included."""
        return update_lr(self.settings, updates)


def set_threads(settings: TrainSettings, recorded: int | None) -> None:
    """Threads of torch: as set, else as the run began, else torch's own default.

    That default is OMP_NUM_THREADS where it is set, else the cores.
    """
    if settings.threads or recorded:
        torch.set_num_threads(settings.threads or recorded or 1)


def read_data(settings: TrainSettings) -> Data:
    """The task and its problems. Raises ConfigError or DataError."""
    if settings.task is None and settings.data.train is None:
        raise ConfigError(
            "nothing to train on: set data.train=FILE (JSONL, Parquet or a hub data set) or "
            "task.name=NAME"
        )
    own = settings.data.model_dump() if settings.data.train else {}
    task = build_task(settings.task or {}, own)
    train, heldout = task.problems("train"), task.problems("eval")
    if not train:
        raise DataError(f"task {task.name}: no training problem is left after the checks")
    if settings.eval.problems is not None:
        heldout = heldout[: settings.eval.problems]
    return Data(task, train, heldout)


def open_policy(settings: TrainSettings, data: Data, checkpoint: Path | None) -> Policy:
    """The policy from a checkpoint, from model.path, or a new tiny one; prompts must fit it."""
    policy = open_weights(settings, checkpoint)
    _check_prompts(policy, data, settings.rollout.max_new_tokens, settings)
    return policy


def _check_prompts(policy: Policy, data: Data, limit: int, settings: TrainSettings) -> None:
    """Refuse prompts that leave no room for an answer, naming the setting that would make it."""
    own = settings.eval.max_new_tokens
    for split, problems, new_tokens, key in (
        ("training", data.train, limit, "rollout.max_new_tokens"),
        (
            "held-out",
            data.heldout,
            own or limit,
            "eval.max_new_tokens" if own else "rollout.max_new_tokens",
        ),
    ):
        check_prompts(policy, problems, split=split, new_tokens=new_tokens, key=key)


def _longest(policy: Policy, data: Data, settings: TrainSettings) -> int:
    """Tokens of the longest prompt with its answer, held-out ones included."""
    new = settings.rollout.max_new_tokens
    held_out = settings.eval.max_new_tokens or new
    return max(
        len(policy.encode(problem.prompt)) + limit
        for problems, limit in ((data.train, new), (data.heldout, held_out))
        for problem in problems
    )


def assemble(
    settings: TrainSettings,
    data: Data,
    policy: Policy,
    pool: GraderPool,
    reward: RewardSource,
    checkpoint: Checkpoint | None,
) -> Workbench:
    """Join the parts, and restore their state where there is a checkpoint of this run."""
    updates = int(checkpoint.state["updates"]) if checkpoint else 0
    r = settings.rollout
    engine = open_engine(
        r.engine,
        policy,
        memory_budget=r.memory_budget,
        max_tokens=lambda: _longest(policy, data, settings),
        vllm=r.vllm,
        policy_version=updates,
    )
    o = settings.optimizer
    masters = settings.model.master_dtype == "float32" and policy.model.dtype != torch.float32
    optimizer = (MasterAdamW if masters else torch.optim.AdamW)(
        [p for p in policy.model.parameters() if p.requires_grad],
        lr=settings.lr,
        betas=(o.beta1, o.beta2),
        eps=o.eps,
        weight_decay=o.weight_decay,
    )
    reference = Reference(policy, 0) if settings.kl_coef > 0 else None
    d = settings.data
    source = PromptSource(
        data.train, settings.seed, d.solved_weight, d.solved_share, d.solved_visits
    )
    auto = settings.rollout.waves == "auto"
    widening = Widening(settings.rollout.auto) if auto else None
    desk = GradingDesk(policy, pool, data.task.verifier, reward)
    bench = Workbench(
        settings,
        data,
        policy,
        Learner(policy, optimizer, engine, reference, updates),
        Collector(settings, source, engine, desk, policy, widening=widening),
        pool,
        ResetRule(settings.ref),
    )
    if checkpoint is not None:
        try:
            _restore(bench, checkpoint)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, BrorlError):
                raise
            raise DataError(
                f"{checkpoint.folder}: not the state of this version: {error!r:.200}"
            ) from error
    elif settings.init.from_ is not None:
        _begin_from(bench, settings)
    return bench


def state_of(bench: Workbench) -> dict[str, object]:
    """Plain values of a checkpoint; weights, optimizer and carried groups lie beside them."""
    rule = bench.reset_rule
    return {
        "updates": bench.learner.updates,
        "source": bench.collector.source.state(),
        "pass_rate": bench.collector.state(),
        "reset": {
            "last": rule.last,
            "best": None if rule.best == float("-inf") else rule.best,
            "stale_evals": rule.stale_evals,
        },
        "reference_step": bench.learner.reference.step if bench.learner.reference else None,
        "best": list(bench.best) if bench.best else None,
        "empty_steps": bench.empty_steps,
        "totals": bench.totals,
        "widening": bench.collector.widening.state() if bench.collector.widening else None,
    }


def init_folder(settings: TrainSettings) -> Path | None:
    """The checkpoint that init.from names, verified; None where it names none."""
    if settings.init.from_ is None:
        return None
    found = open_checkpoint(find_checkpoint(Path(settings.init.from_)))
    if "reference" in settings.init.restore and found.reference is None:
        raise ConfigError(f"init.restore names reference, but {found.folder} holds none")
    check_shape(settings, found.folder)
    return found.folder


def _restore(bench: Workbench, checkpoint: Checkpoint) -> None:
    state = checkpoint.state
    load_optimizer(checkpoint, bench.learner.optimizer)
    bench.collector.source.restore(state["source"])
    bench.collector.pass_rate.kept = float(state["pass_rate"]["kept"])
    bench.collector.pass_rate.generated = float(state["pass_rate"]["generated"])
    problems = {p.id: p for p in bench.data.train}
    bench.collector.carried = load_carried(checkpoint, problems)
    if bench.collector.widening is not None:
        bench.collector.widening.restore(state["widening"])
    reset = state["reset"]
    bench.reset_rule.last = int(reset["last"])
    bench.reset_rule.best = float("-inf") if reset["best"] is None else float(reset["best"])
    bench.reset_rule.stale_evals = int(reset["stale_evals"])
    _restore_reference(bench, checkpoint, int(state["reference_step"] or 0))
    bench.step, bench.restored = checkpoint.step, True
    bench.best = (int(state["best"][0]), float(state["best"][1])) if state["best"] else None
    bench.empty_steps = int(state["empty_steps"])
    bench.totals = {str(k): float(v) for k, v in state["totals"].items()}


def _restore_reference(bench: Workbench, checkpoint: Checkpoint, step: int) -> None:
    reference = bench.learner.reference
    if reference is None:
        return
    if checkpoint.reference is None:
        raise DataError(f"{checkpoint.folder}: kl_coef > 0 but it holds no reference policy")
    old = open_weights(bench.settings, checkpoint.reference)
    reference.reset(old, step)


def _begin_from(bench: Workbench, settings: TrainSettings) -> None:
    """A new phase: what init.restore names beyond the weights, counters fresh."""
    checkpoint = open_checkpoint(find_checkpoint(Path(settings.init.from_ or "")))
    if "optimizer" in settings.init.restore:
        load_optimizer(checkpoint, bench.learner.optimizer)
        o = settings.optimizer
        for group in bench.learner.optimizer.param_groups:  # moments are old, settings are new
            group.update(betas=(o.beta1, o.beta2), eps=o.eps, weight_decay=o.weight_decay)
    if "reference" in settings.init.restore:
        _restore_reference(bench, checkpoint, 0)
