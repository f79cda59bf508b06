"""Held-out evaluation through verl's servers: the same figures as the embedded trainer's."""

from collections.abc import Sequence
from typing import Any

from brorl.errors import VerifierError
from brorl.evaluate.heldout import Heldout, passes
from brorl.evaluate.results import ProblemResult, problem_result
from brorl.policy.model import Policy
from brorl.rollout.engine import Request, Sampling, Stop
from brorl.tasks.problem import Problem
from brorl.train.settings import TrainSettings
from brorl.verl.engine import Graded, VerlEngine


def sampling_of(settings: TrainSettings) -> Sampling:
    """How held-out problems are answered."""
    e = settings.eval
    return Sampling(
        e.temperature, e.top_p, e.top_k, e.max_new_tokens or settings.rollout.max_new_tokens
    )


def evaluate(
    policy: Policy, engine: VerlEngine, problems: Sequence[Problem], settings: TrainSettings
) -> Heldout:
    """Sample and count; verl's reward workers have judged. Raises VerifierError if none counts."""
    requests = [
        Request(f"eval/{p.id}", p.id, policy.encode(p.prompt), 0, settings.eval.samples, 0)
        for p in problems
    ]
    results: list[ProblemResult] = []
    ungraded = 0
    groups = engine.evaluate(requests, sampling_of(settings))
    for problem, group in zip(problems, groups, strict=True):
        answers = [c for c in group if isinstance(c, Graded)]
        if not any(c.verdict.counts for c in answers):
            ungraded += 1
            continue
        results.append(
            problem_result(
                problem.id,
                task=problem.task,
                category=problem.task,
                verdicts=[c.verdict for c in answers],
                tokens=[len(c.tokens) for c in answers],
                truncated=[c.stop is Stop.LENGTH for c in answers],
            )
        )
    if not results:
        raise VerifierError(f"none of {len(problems)} held-out problems could be graded")
    return Heldout(results, passes(results), ungraded)


def metrics_of(found: Heldout) -> dict[str, Any]:
    """eval/* of the metrics, by the embedded trainer's names."""
    tokens = [t for p in found.problems for t in p.tokens]
    metrics: dict[str, Any] = {}
    for k, interval in found.pass_at_k.items():
        metrics[f"eval/pass@{k}"] = interval.value
        metrics[f"eval/pass@{k}_low"] = interval.low
        metrics[f"eval/pass@{k}_high"] = interval.high
    metrics["eval/problems"] = len(found.problems)
    metrics["eval/length_mean"] = sum(tokens) / len(tokens)
    metrics["eval/truncated_frac"] = sum(p.truncated for p in found.problems) / len(tokens)
    metrics["eval/ungraded_problems"] = found.ungraded
    return metrics
