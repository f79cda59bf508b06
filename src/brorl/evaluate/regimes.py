"""Which tasks gain in which arm, from the checkpoint that both arms started from."""

from typing import NamedTuple

from brorl.evaluate.compare import Knobs
from brorl.evaluate.pairing import Arm, metric, pair_arms
from brorl.stats.intervals import Interval
from brorl.stats.paired import paired_t


class TaskRegime(NamedTuple):
    """How two arms moved on one task from the checkpoint that both started from."""

    task: str
    problems: int
    change_a: Interval
    change_b: Interval
    b_over_a: Interval
    regime: str


def regimes(start: Arm, a: Arm, b: Arm, knobs: Knobs) -> tuple[TaskRegime, ...]:
    """Each task's regime, as the rows of BroRL's Figure 4: both rise, A falls and B rises, …

    A change counts where its interval excludes 0; else it reads "no change seen". Tasks with one
    problem have no interval and are left out.

    Source:
        Hu et al. 2025 (BroRL), arXiv:2510.01180v1, Figure 4.
    """
    first = pair_arms(start, a, value=metric(knobs.metric), common=knobs.common)
    second = pair_arms(start, b, value=metric(knobs.metric), common=knobs.common)
    at_b = {(r.suite, r.id): i for i, r in enumerate(second.rows)}
    rows = [(i, at_b[r.suite, r.id]) for i, r in enumerate(first.rows) if (r.suite, r.id) in at_b]
    change_a_K, change_b_K = first.difference_K, second.difference_K
    found = []
    for task in dict.fromkeys(first.rows[i].task for i, _ in rows):
        at = [(i, j) for i, j in rows if first.rows[i].task == task]
        if len(at) < 2:
            continue
        x, y = change_a_K[[i for i, _ in at]], change_b_K[[j for _, j in at]]
        u, v, w = (paired_t(d, level=knobs.level).difference for d in (x, y, y - x))
        found.append(TaskRegime(task, len(at), u, v, w, f"A {_moved(u)}, B {_moved(v)}"))
    return tuple(found)


def _moved(change: Interval) -> str:
    if change.low > 0:
        return "rises"
    return "falls" if change.high < 0 else "shows no change"
