"""Where the rollouts went: how many were spent on prompts of which pass rate, step by step.

The pass rate is the group's own, so a group of an adaptive run that stops on its second success
looks easier than its prompt is. It tells where samples were spent, not how hard prompts are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brorl.record.rollouts import read_rollouts, rollout_steps
from brorl.report.groups import database

BINS = (
    "none right",
    *(f"{10 * i}–{10 * (i + 1)} %" for i in range(10)),
    "all right",
)
"""Names of the 12 bins: 0, ten deciles of the open interval (0, 1), and 1."""

_COLUMNS = ("step", "born", "group_id", "verdict", "raw_score", "kept")

# A rate on a border belongs to the bin above it. Carried groups were spent in an earlier step.
_QUERY = """
WITH groups AS (
    SELECT group_id, count(*) AS n, count(*) FILTER (kept) AS kept,
           count(*) FILTER (verdict <> 'grader_error') AS graded,
           count(*) FILTER (verdict <> 'grader_error' AND raw_score = 1) AS n_right
    FROM answers WHERE born = step GROUP BY group_id
)
SELECT CASE WHEN n_right = 0 THEN 0 WHEN n_right = graded THEN 11
            ELSE 1 + n_right * 10 // graded END AS bin, sum(n), sum(kept)
FROM groups WHERE graded > 0 GROUP BY bin
"""


class Spent(NamedTuple):
    """Rollouts by pass rate of their group, [steps][12 bins]."""

    steps: list[int]
    generated: list[list[int]]
    kept: list[list[int]]
    recorded_steps: int  # how many steps have rollouts; more than len(steps) where thinned


def spent_by_rate(run: Path, *, most_steps: int) -> Spent | None:
    """From the recorded rollouts of at most `most_steps` steps, evenly spread, last included.

    Returns:
        None where no rollouts are recorded.

    Raises:
        DataError: a rollout file that cannot be read.
    """
    recorded = rollout_steps(run)
    if not recorded:
        return None
    steps = evenly(recorded, most_steps)
    generated, kept = [], []
    with database() as asked:
        for step in steps:
            of_step = np.zeros((2, len(BINS)), dtype=np.int64)
            asked.register("answers", read_rollouts(run, step, _COLUMNS))
            for number, n, n_kept in asked.execute(_QUERY).fetchall():
                of_step[:, number] = n, n_kept
            generated.append(of_step[0].tolist())
            kept.append(of_step[1].tolist())
    return Spent(steps, generated, kept, len(recorded))


def evenly(steps: Sequence[int], most: int) -> list[int]:
    """At most `most` of `steps`, evenly spread; the first and the last are among them."""
    if len(steps) <= most:
        return list(steps)
    picked = np.unique(np.linspace(0, len(steps) - 1, most).round().astype(int))
    return [steps[i] for i in picked]
