"""From completions to samples: decode, judge with the pool while sampling goes on, score."""

import time
from collections.abc import Callable, Sequence

from brorl.policy.model import Policy
from brorl.rollout.engine import Completion
from brorl.tasks.problem import Problem
from brorl.train.groups import Group, Sample
from brorl.verify.pool import GraderPool
from brorl.verify.pool_ledger import Ticket
from brorl.verify.protocol import Verifier
from brorl.verify.verdict import Verdict

Score = Callable[[Problem, str, int, str, Verdict], float]
"""(problem, group id, sample index, text, true verdict) to the rewarded score in [0, 1]."""


def true_score(problem: Problem, group_id: str, index: int, text: str, verdict: Verdict) -> float:
    """The reward source `ground_truth`."""
    return verdict.score


class GradingDesk:
    """Takes completions as they finish and turns them into samples of their groups.

    Args:
        policy: decodes tokens; equal token sequences are decoded once.
        pool: grader processes.
        verifier: of the task.
        score: the reward source.
    """

    def __init__(self, policy: Policy, pool: GraderPool, verifier: Verifier, score: Score) -> None:
        self._policy = policy
        self._pool = pool
        self._verifier = verifier
        self._score = score
        self.waited_s = 0.0  # waiting for verdicts since `collect` began: not hidden by sampling
        self._waiting: list[tuple[Group, int, list[Completion], list[str], list[Ticket]]] = []

    def take(self, group: Group, first: int, completions: Sequence[Completion]) -> None:
        """Hand over samples first, first + 1, ... of a group; returns before they are judged."""
        start = time.perf_counter()
        texts = self._policy.decode_all([c.tokens for c in completions])
        problem = group.problem
        tickets = self._pool.submit_many(
            self._verifier,
            problem_id=problem.id,
            texts=texts,
            gold=problem.gold,
            row=problem.row,
        )
        self._waiting.append((group, first, list(completions), texts, tickets))
        self.waited_s += time.perf_counter() - start

    def finish(self) -> None:
        """Wait for every verdict and append the samples to their groups, in sample order."""
        start = time.perf_counter()
        for group, first, completions, texts, tickets in self._waiting:
            verdicts = self._pool.gather(tickets)
            if not len(verdicts) == len(texts) == len(completions):
                raise AssertionError("as many verdicts as answers")  # would shift rewards
            for i, (completion, text, verdict) in enumerate(
                zip(completions, texts, verdicts, strict=True), start=first
            ):
                raw = self._score(group.problem, group.id, i, text, verdict)
                group.samples.append(Sample(i, completion, text, verdict, raw))
        for group, *_ in self._waiting:
            group.samples.sort(key=lambda s: s.index)
        self._waiting.clear()
        self.waited_s += time.perf_counter() - start
