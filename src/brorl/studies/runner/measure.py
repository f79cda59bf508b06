"""Measure something of your own on a run's checkpoint: the policy, an engine, problems, graders.

    def measure(run: Path, knobs: Knobs) -> dict[str, Any]:
        with opened(run) as at:
            found = sampled(at, at.data.train[:64], samples=1024, purpose="pass rates")
            return {"rates": [p.c / p.n for p in found.problems]}

`Study.measure` is called so after each run, in its process; what it returns must be plain values.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from brorl.errors import DataError
from brorl.evaluate.heldout import Heldout, evaluate_heldout
from brorl.policy.model import Policy
from brorl.record.rundir import CONFIG
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Engine, Sampling
from brorl.seeds import derive_seed
from brorl.tasks.problem import Problem
from brorl.train.api import grader_pool
from brorl.train.checkpoint import checkpoint_path, checkpoint_steps, open_checkpoint
from brorl.train.recipe import load_settings
from brorl.train.settings import TrainSettings
from brorl.train.setup import Data, open_policy, read_data
from brorl.verify.pool import GraderPool


class Opened(NamedTuple):
    """A checkpoint and all that is needed to sample from it and to judge."""

    settings: TrainSettings
    data: Data
    policy: Policy
    engine: Engine
    pool: GraderPool
    step: int


@contextmanager
def opened(run: Path, step: int | None = None) -> Iterator[Opened]:
    """Open a run's checkpoint; the newest where `step` is None. Nothing of the run is changed.

    Raises:
        DataError: no such checkpoint, or a damaged one.
    """
    steps = checkpoint_steps(run)
    if not steps or (step is not None and step not in steps):
        raise DataError(f"{run}: needs a checkpoint of step {step}, has {steps}")
    found = open_checkpoint(checkpoint_path(run, steps[-1] if step is None else step))
    settings = load_settings(run / CONFIG, (), may_change=())
    data = read_data(settings)
    policy = open_policy(settings, data, found.folder)
    engine = EmbeddedEngine(policy, memory_budget=settings.rollout.memory_budget)
    with grader_pool(settings, data) as pool:
        yield Opened(settings, data, policy, engine, pool, found.step)


def sampled(
    at: Opened,
    problems: Sequence[Problem],
    *,
    samples: int,
    purpose: str,
    sampling: Sampling | None = None,
) -> Heldout:
    """Draw and judge `samples` answers to each problem, independent of all that trained the policy.

    Args:
        at: an opened checkpoint.
        problems: training ones, held-out ones, or others of the task.
        samples: a problem.
        purpose: names the random stream, together with the run's seed and the step.
        sampling: by default that of training: temperature, and the limit of new tokens.
    """
    r = at.settings.rollout
    return evaluate_heldout(
        at.policy,
        at.engine,
        problems,
        at.data.task.verifier,
        at.pool,
        samples=samples,
        sampling=sampling or Sampling(r.temperature, r.top_p, r.top_k, r.max_new_tokens),
        seed=derive_seed(at.settings.seed, "study", purpose, at.step),
    )
