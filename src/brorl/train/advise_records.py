"""What a run's own records say about prompts and clocks: counts by prompt, seconds by step.

Nothing is estimated here; see `advise`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.record.rollouts import FOLDER, read_rollouts, rollout_steps
from brorl.report.groups import database
from brorl.report.load import RunRecord, read_run

Counts = NDArray[np.int64]

_COLUMNS = ("step", "born", "problem_id", "group_id", "verdict", "raw_score")
_QUERY = """
SELECT problem_id, count(*) FILTER (raw_score = 1), count(*) FILTER (raw_score = 0), count(*)
FROM answers WHERE born = step AND verdict <> 'grader_error'
GROUP BY problem_id, group_id ORDER BY min("row")
"""


class Timing(NamedTuple):
    """One step: what it handled, and its seconds by phase."""

    groups: float
    samples: float
    kept: float
    generate: float
    grade: float
    update: float
    other: float


class Records(NamedTuple):
    """A run's window. A group is one draw of a prompt; grader errors are left out.

    Axes: G groups · P distinct prompts · S steps
    """

    record: RunRecord
    steps: tuple[int, int]  # first and last of the window
    right_G: Counts
    zero_G: Counts  # score 0: differs from total - right where scores give part credit
    total_G: Counts
    prompt_G: Counts  # index into the P prompts
    timings_S: list[Timing]
    overhead: float  # groups sampled, over prompts_per_step / pass rate

    @property
    def prompts(self) -> int:
        """P."""
        return int(self.prompt_G.max()) + 1

    @property
    def part_credit(self) -> bool:
        """Whether some score is neither 0 nor 1."""
        return bool((self.right_G + self.zero_G < self.total_G).any())

    def draws_of(self, prompts: Counts) -> Counts:
        """Indices of the groups of these prompts, a prompt that comes twice counted twice."""
        order = np.argsort(self.prompt_G, kind="stable")
        ends = np.cumsum(np.bincount(self.prompt_G))
        return np.concatenate([order[ends[p - 1] if p else 0 : ends[p]] for p in prompts])


def read_records(run: Path, *, window: int) -> Records:
    """The last `window` steps that have both metrics and rollouts.

    Raises:
        DataError: not a run, no such step, a file that cannot be read, or nothing graded.
    """
    record = read_run(run)
    rows = {int(r["step"]): r for r in record.metrics}
    steps = [step for step in rollout_steps(run) if step in rows][-window:]
    if not steps:
        raise DataError(f"{run / FOLDER}: no step has rollouts and metrics to learn from")
    groups = _groups(run, steps)
    if len({name for name, *_ in groups}) < 2:
        raise DataError(
            f"{run / FOLDER}: needs graded groups of at least 2 prompts in steps {steps[0]} to "
            f"{steps[-1]}, got {len({name for name, *_ in groups})}"
        )
    names = {name: i for i, name in enumerate(dict.fromkeys(name for name, *_ in groups))}
    right, zero, total = (np.array([g[i] for g in groups], dtype=np.int64) for i in (1, 2, 3))
    inside = [rows[step] for step in steps]
    return Records(
        record,
        (steps[0], steps[-1]),
        right,
        zero,
        total,
        np.array([names[g[0]] for g in groups], dtype=np.int64),
        [t for t in map(_timing, inside) if t is not None],
        _overhead(record.config, inside),
    )


def _groups(run: Path, steps: Sequence[int]) -> list[tuple[str, int, int, int]]:
    """(problem id, right, zero, graded) of every group that these steps sampled."""
    found: list[tuple[str, int, int, int]] = []
    with database() as asked:
        for step in steps:
            table = read_rollouts(run, step, _COLUMNS)
            rows = np.arange(table.num_rows, dtype=np.int64)
            asked.register("answers", table.append_column("row", [rows]))
            found += asked.execute(_QUERY).fetchall()
    return found


def _timing(row: Mapping[str, Any]) -> Timing | None:
    """None where the step does not tell."""
    names = ("groups/sampled", "samples/generated", "samples/kept")
    clocks = ("time/generate", "time/grade", "time/update", "time/other")
    values = [row.get(name) for name in names + clocks]
    known = [float(v) for v in values if v is not None]
    return Timing(*known) if len(known) == len(values) and known[1] > 0 else None


def _overhead(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> float:
    """How many more groups were sampled than P / pass rate: rounds that found more than enough.

    1 without dynamic sampling.
    """
    if not (config.get("dynamic_sampling") or {}).get("enable", True):
        return 1.0
    sampled = [r.get("groups/sampled") or 0 for r in rows]
    rates = [r.get("dynamic_sampling/pass_rate") or 0 for r in rows]
    passed = sum(n * p for n, p in zip(sampled, rates, strict=True))
    kept = sum(r.get("groups/kept") or 0 for r in rows)
    return max(1.0, passed / kept) if kept else 1.0
