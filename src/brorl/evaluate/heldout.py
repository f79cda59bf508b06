"""Evaluate a policy on problems with streams of its own, and say it with intervals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from brorl.errors import DataError, VerifierError
from brorl.evaluate.results import ProblemResult, problem_result
from brorl.policy.model import Policy
from brorl.rollout.engine import Engine, Request, Sampling, Stop
from brorl.seeds import derive_seed
from brorl.stats.intervals import Interval, mean_interval
from brorl.stats.pass_at_k import pass_at_k
from brorl.tasks.problem import Problem
from brorl.verify.pool import GraderPool
from brorl.verify.protocol import Verifier

LEVEL = 0.95


class Heldout(NamedTuple):
    """One evaluation: every problem apart, and the figures computed from them."""

    problems: list[ProblemResult]
    pass_at_k: dict[int, Interval]  # k = 1, 2, 4 ... n, intervals over problems
    ungraded: int  # problems of which no sample could be graded

    @property
    def pass_at_1(self) -> Interval:
        return self.pass_at_k[1]


def evaluate_heldout(
    policy: Policy,
    engine: Engine,
    problems: Sequence[Problem],
    verifier: Verifier,
    pool: GraderPool,
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
) -> Heldout:
    """Sample, grade and count.

    The stream of a problem depends on (seed, problem id) alone: two evaluations of one run draw
    with common random numbers, so their difference is less noisy than either.

    Args:
        policy: encodes prompts and decodes answers.
        engine: samples; its caches are dropped before and after.
        problems: held out; at least one.
        verifier: judges them.
        pool: grader processes.
        samples: n per problem, >= 1.
        sampling: never the training settings.
        seed: of the evaluation.

    Raises:
        DataError: no problem.
        VerifierError: none of them could be graded.
    """
    if not problems:
        raise DataError("an evaluation needs at least one held-out problem, got none")
    requests = [
        Request(
            f"eval/{p.id}",
            p.id,
            policy.encode(p.prompt),
            0,
            samples,
            derive_seed(seed, "eval", p.id),
        )
        for p in problems
    ]
    engine.forget()
    results: list[ProblemResult] = []
    ungraded = 0
    why = ""
    for problem, group in zip(problems, engine.sample(requests, sampling), strict=True):
        texts = policy.decode_all([c.tokens for c in group])
        tickets = pool.submit_many(
            verifier, problem_id=problem.id, texts=texts, gold=problem.gold, row=problem.row
        )
        verdicts = pool.gather(tickets)
        if not any(v.counts for v in verdicts):
            ungraded += 1
            why = why or verdicts[0].reason
            continue
        results.append(
            problem_result(
                problem.id,
                task=problem.task,
                category=problem.task,
                verdicts=verdicts,
                tokens=[len(c.tokens) for c in group],
                truncated=[c.stop is Stop.LENGTH for c in group],
            )
        )
    engine.forget()
    if not results:
        raise VerifierError(f"none of {len(problems)} held-out problems could be graded: {why}")
    return Heldout(results, passes(results), ungraded)


def passes(problems: Sequence[ProblemResult]) -> dict[int, Interval]:
    """pass@k for k = 1, 2, 4 ... up to the smallest n, with intervals over problems."""
    right = np.array([p.c for p in problems])
    total = np.array([p.n for p in problems])
    table = {}
    k = 1
    while k <= int(total.min()):
        table[k] = mean_interval(pass_at_k(right, total, k), level=LEVEL)
        k *= 2
    return table
