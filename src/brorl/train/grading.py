"""From completions to samples: decode, judge with the pool while sampling goes on, score."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from brorl.policy.model import Policy
from brorl.rollout.engine import Completion
from brorl.tasks.problem import Problem
from brorl.tasks.reward_sources import RewardSource
from brorl.train.groups import Group, Sample
from brorl.verify.pool import GraderPool
from brorl.verify.pool_ledger import Ticket
from brorl.verify.protocol import Verifier
from brorl.verify.verdict import Verdict


class _Batch(NamedTuple):
    """Answers handed over and not yet judged."""

    group: Group
    first: int
    completions: list[Completion]
    texts: list[str]
    true: list[Ticket]
    extra: list[Ticket] | None  # a second grading that the reward source asked for


class Backlog(NamedTuple):
    """Gradings that waited for a grader process, or were in one, in a step."""

    most: int  # at once, when answers were handed over
    at_end: int  # when sampling had ended: what it did not hide. Growing: more grading.workers


class GradingDesk:
    """Takes completions as they finish and turns them into samples of their groups.

    Args:
        policy: decodes tokens; equal token sequences are decoded once.
        pool: grader processes.
        verifier: of the task.
        reward: what the update is paid with; the true verdict is made and recorded beside it.
    """

    def __init__(
        self, policy: Policy, pool: GraderPool, verifier: Verifier, reward: RewardSource
    ) -> None:
        self._policy = policy
        self._pool = pool
        self._verifier = verifier
        self._reward = reward
        self.waited_s = 0.0  # waiting for verdicts since `collect` began: not hidden by sampling
        self.backlog = Backlog(0, 0)  # since `collect` began
        self._waiting: list[_Batch] = []

    def take(self, group: Group, first: int, completions: Sequence[Completion]) -> None:
        """Hand over samples first, first + 1, ... of a group; returns before they are judged."""
        start = time.perf_counter()
        texts = self._policy.decode_all([c.tokens for c in completions])
        problem = group.problem
        extra = self._reward.extra(problem)
        self._waiting.append(
            _Batch(
                group,
                first,
                list(completions),
                texts,
                self._submit(self._verifier, problem, texts, problem.gold),
                self._submit(extra.verifier, problem, texts, extra.gold) if extra else None,
            )
        )
        queued = self._pool.stats().queued
        self.backlog = self.backlog._replace(most=max(self.backlog.most, queued))
        self.waited_s += time.perf_counter() - start

    def finish(self) -> None:
        """Wait for every verdict and append the samples to their groups, in sample order."""
        start = time.perf_counter()
        queued = self._pool.stats().queued
        self.backlog = self.backlog._replace(at_end=max(self.backlog.at_end, queued))
        for batch in self._waiting:
            true = self._pool.gather(batch.true)
            extra: Sequence[Verdict | None] = (
                self._pool.gather(batch.extra) if batch.extra is not None else [None] * len(true)
            )
            if not len(true) == len(extra) == len(batch.texts) == len(batch.completions):
                raise AssertionError("as many verdicts as answers")  # would shift rewards
            for i, completion in enumerate(batch.completions):
                sample = self._sample(batch, i, completion, true[i], extra[i])
                batch.group.samples.append(sample)
        for batch in self._waiting:
            batch.group.samples.sort(key=lambda s: s.index)
        self._waiting.clear()
        self.waited_s += time.perf_counter() - start

    def _sample(
        self,
        batch: _Batch,
        i: int,
        completion: Completion,
        true: Verdict,
        extra: Verdict | None,
    ) -> Sample:
        """One answer's record; a failed grading of either kind takes it out of its group."""
        index = batch.first + i
        graded = extra is None or extra.counts
        raw = 0.0
        if true.counts and graded:
            raw = self._reward.score(batch.group.problem, batch.group.id, index, true, extra)
        return Sample(index, completion, batch.texts[i], true, raw, rewarded=graded)

    def _submit(
        self, verifier: Verifier, problem: Problem, texts: Sequence[str], gold: str | None
    ) -> list[Ticket]:
        return self._pool.submit_many(
            verifier, problem_id=problem.id, texts=texts, gold=gold, row=problem.row
        )
