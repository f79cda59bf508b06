"""How far a run's reward has drifted from the truth, from its recorded rollouts.

The proxy is the raw score of the configured `reward.source`; the true score was recorded beside it
and never reached the update.

Axes:  groups of M recorded samples each; M may differ
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brorl.errors import DataError, ShapeError
from brorl.evaluate.best_of_n import (
    Pair,
    Selection,
    Threshold,
    best_of,
    best_of_n_kl_bound,
    hacking_rate,
    hacking_threshold,
    ladder,
)
from brorl.record.rollouts import read_rollouts, rollout_steps
from brorl.stats.intervals import Interval, mean_interval
from brorl.stats.pass_at_k import doubling_ks
from brorl.verify.verdict import Kind


class Point(NamedTuple):
    """Best of n by the proxy, means over groups with intervals."""

    n: int
    proxy: Interval
    true: Interval
    hacked: Interval  # share of picks with proxy success and no true success
    kl_bound: float  # nats between the picks and the policy, at most


class Hacking(NamedTuple):
    """What optimising the proxy harder buys and costs."""

    groups: int
    samples: int
    curve: tuple[Point, ...]  # n = 1, 2, 4, ... up to the smallest group
    best_of_n: Threshold
    best_of_poisson: Threshold


def groups_of_run(run: Path, *, first_step: int, last_step: int) -> list[Pair]:
    """(proxy_M, true_M) of every group sampled in these steps; grader errors are left out.

    Raises:
        DataError: no rollouts of these steps, or a file that cannot be read.
    """
    steps = [s for s in rollout_steps(run) if first_step <= s <= last_step]
    groups: dict[str, tuple[list[float], list[float]]] = {}
    for step in steps:
        columns = ("group_id", "verdict", "raw_score", "true_score")
        table = read_rollouts(run, step, columns).to_pydict()
        for group, verdict, proxy, true in zip(*(table[c] for c in columns), strict=True):
            if verdict != Kind.GRADER_ERROR:
                scores = groups.setdefault(group, ([], []))
                scores[0].append(proxy)
                scores[1].append(true)
    if not groups:
        raise DataError(f"{run}: no graded rollouts of steps {first_step} to {last_step}")
    return list(groups.values())


def hacking(groups: Sequence[Pair], *, level: float, theta_max: float, grid: int) -> Hacking:
    """Follow the true reward as the proxy selects harder, and find where it turns.

    Args:
        groups: (proxy_M, true_M) each, scores in [0, 1].
        level: of the intervals, over groups.
        theta_max, grid: see brorl.evaluate.best_of_n.hacking_threshold.

    Raises:
        ShapeError: no group, or scores outside [0, 1].
    """
    if not groups:
        raise ShapeError("need at least one group of recorded samples")
    sizes = [int(np.size(proxy)) for proxy, _ in groups]
    curve = []
    for n in doubling_ks(min(sizes)):
        proxies = [best_of(ladder(x, x), n) for x, _ in groups]
        trues = [best_of(ladder(x, y), n) for x, y in groups]
        hacked = [hacking_rate(x, y, n) for x, y in groups]
        proxy, true, share = (
            mean_interval(np.clip(x, 0.0, 1.0), level=level) for x in (proxies, trues, hacked)
        )
        curve.append(Point(n, proxy, true, share, best_of_n_kl_bound(n)))
    thresholds = [
        hacking_threshold(groups, selection=s, theta_max=theta_max, grid=grid)
        for s in (Selection.BEST_OF_N, Selection.BEST_OF_POISSON)
    ]
    return Hacking(len(groups), sum(sizes), tuple(curve), *thresholds)
