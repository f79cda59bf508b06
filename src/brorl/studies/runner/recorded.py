"""What one run of a study recorded, read from its folder.

Between two held-out evaluations a problem's score is taken as linear in the budget; beyond the last
one nothing is said.

Axes:  E evaluations of a run · K held-out problems
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.evaluate.results import read_evaluation
from brorl.record.evals import eval_path
from brorl.record.metrics import read_metrics
from brorl.report.budgets import spent
from brorl.report.load import read_counts
from brorl.stats.pass_at_k import pass_at_k
from brorl.studies.runner.contract import BUDGETS, Budget

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    Attributes:
        arm, seed, path: which.
        ended: max_samples, max_seconds or steps.
        spent: budget to what was spent by each evaluation, [E], growing.
        totals: budget to what was spent in all.
        problems, tasks: ids of the held-out problems that every evaluation judged, in order, and
            the task of each.
        right_EK, count_EK: right samples, and samples, of each of them.
        metrics: the rows of metrics.jsonl.
        measured: what the study's `measure` returned.
    """

    arm: str
    seed: int
    path: Path
    ended: str
    spent: Mapping[Budget, Vector]
    totals: Mapping[Budget, float]
    problems: tuple[str, ...]
    tasks: tuple[str, ...]
    right_EK: NDArray[np.int64]
    count_EK: NDArray[np.int64]
    metrics: Sequence[Mapping[str, Any]]
    measured: Mapping[str, Any]

    def scores_EK(self, k: int) -> Vector:
        """pass@k of every problem at every evaluation."""
        rows = zip(self.right_EK, self.count_EK, strict=True)
        return np.stack([pass_at_k(right, count, k) for right, count in rows])

    def scores_at(self, budget: Budget, amount: float, k: int) -> Vector:
        """pass@k of every problem when `amount` was spent: linear between evaluations, [K].

        Raises:
            DataError: the budget is not on record, or the run did not spend so much.
        """
        if budget not in self.spent:
            raise DataError(f"{self.path}: its records do not tell its {BUDGETS[budget]}")
        x = self.spent[budget]
        if not 0 <= amount <= x[-1]:
            raise DataError(f"{self.path}: it spent {x[-1]:g} {BUDGETS[budget]}, not {amount:g}")
        table = self.scores_EK(k)
        right = int(np.searchsorted(x, amount, side="left"))
        if right == 0 or x[right] == amount:
            return np.asarray(table[right], dtype=np.float64)
        weight = (amount - x[right - 1]) / (x[right] - x[right - 1])
        return np.asarray((1 - weight) * table[right - 1] + weight * table[right])

    def mean(self, metric: str) -> float | None:
        """Of a step's metric over the steps that have it; None where none has."""
        found = [float(m[metric]) for m in self.metrics if isinstance(m.get(metric), int | float)]
        return float(np.mean(found)) if found else None

    def largest(self, metric: str) -> float | None:
        """The largest value of a metric; None where no row has it."""
        found = [float(m[metric]) for m in self.metrics if isinstance(m.get(metric), int | float)]
        return max(found) if found else None

    def per_thousand(self, metric: str) -> float | None:
        """Sum of a metric for each 1,000 generated samples; None where there is no sample."""
        generated = self.totals["generated"]
        return 1000 * self.total(metric) / generated if generated else None

    def total(self, metric: str) -> float:
        """Sum of a metric over all rows."""
        return float(sum(m.get(metric) or 0.0 for m in self.metrics))


def read_result(arm: str, seed: int, path: Path, done: Mapping[str, Any]) -> RunResult:
    """A finished run from its folder.

    Raises:
        DataError: a recorded file that cannot be read, or no held-out evaluation in it.
    """
    rows = read_metrics(path)
    axes: dict[Budget, Vector] = {b: v for b, v in _axes(path, rows).items() if v.size}
    at = [i for i, row in enumerate(rows) if "eval/pass@1" in row]
    counts = [read_counts(path, rows[i]["step"]) for i in at]
    if not at or any(c is None for c in counts):
        raise DataError(
            f"{path}: a study needs held-out evaluations, set eval problems of the task"
        )
    whole = [c for c in counts if c is not None]
    problems = tuple(p for p in whole[0] if all(p in c for c in whole))
    return RunResult(
        arm,
        seed,
        path,
        str(done["ended"]),
        {b: axis[at] for b, axis in axes.items()},
        {b: float(axis[-1]) for b, axis in axes.items()},
        problems,
        _tasks(path, rows[at[-1]]["step"], problems),
        np.array([[c[p].c for p in problems] for c in whole]),
        np.array([[c[p].n for p in problems] for c in whole]),
        rows,
        done["measured"],
    )


def _tasks(run: Path, step: int, problems: Sequence[str]) -> tuple[str, ...]:
    """The task of each problem, from the evaluation after `step`."""
    suites = read_evaluation(eval_path(run, step)).suites.values()
    found = {p.id: p.task for suite in suites for p in suite.problems}
    return tuple(found[p] for p in problems)


def _axes(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[Budget, Vector]:
    found = spent(path, rows)
    axes: dict[Budget, Vector] = {b: found[b] for b in BUDGETS if b in found}
    clocks: dict[Budget, str] = {"update_seconds": "time/update", "cpu_seconds": "time/cpu"}
    for budget, name in clocks.items():
        each = [0.0 if row["step"] == 0 else row.get(name) for row in rows]
        if all(x is not None for x in each):
            axes[budget] = np.cumsum(np.array(each, dtype=np.float64))
    return {b: axes[b] for b in BUDGETS if b in axes}
