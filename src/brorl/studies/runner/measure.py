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

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError, VerifierError
from brorl.evaluate.heldout import Heldout, evaluate_heldout
from brorl.policy.model import Policy
from brorl.record.rundir import CONFIG
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Engine, Request, Sampling
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


class GradedGroup(NamedTuple):
    """All answers to one prompt; `scores` has one for each, in their order."""

    prompt: tuple[int, ...]
    tokens: list[NDArray[np.int32]]
    logprobs: list[NDArray[np.float32]]
    scores: list[float]


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


def graded_groups(
    at: Opened, problems: Sequence[Problem], *, samples: int, purpose: str
) -> list[GradedGroup]:
    """As `sampled`, but every answer itself: its tokens, the engine's log-probs and its score.

    Raises:
        VerifierError: an answer could not be graded.
    """
    r = at.settings.rollout
    seed = derive_seed(at.settings.seed, "study", purpose, at.step)
    requests = [
        Request(
            p.id, p.id, at.policy.encode(p.prompt), 0, samples, derive_seed(seed, "group", p.id)
        )
        for p in problems
    ]
    at.engine.forget()
    sampling = Sampling(r.temperature, r.top_p, r.top_k, r.max_new_tokens)
    groups = []
    for problem, request, found in zip(
        problems, requests, at.engine.sample(requests, sampling), strict=True
    ):
        tickets = at.pool.submit_many(
            at.data.task.verifier,
            problem_id=problem.id,
            texts=at.policy.decode_all([c.tokens for c in found]),
            gold=problem.gold,
            row=problem.row,
        )
        verdicts = at.pool.gather(tickets)
        if not all(v.counts for v in verdicts):
            raise VerifierError(f"problem {problem.id}: an answer could not be graded")
        groups.append(
            GradedGroup(
                request.prompt,
                [c.tokens for c in found],
                [c.logprobs for c in found],
                [v.score for v in verdicts],
            )
        )
    at.engine.forget()
    return groups
