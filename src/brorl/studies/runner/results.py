"""What the runs of a study recorded, and arms compared at equal budgets with seeds as a level.

Between two held-out evaluations a problem's score is taken as linear in the budget; beyond the last
one nothing is said. Every comparison is of vectors: seed s of both arms began from the same start
and was judged on the same problems, so differences are taken per seed and per problem.

Axes:  E evaluations of a run · K held-out problems · S seeds
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.evaluate.results import read_evaluation
from brorl.record.evals import eval_path
from brorl.record.metrics import read_metrics
from brorl.report.budgets import spent
from brorl.report.load import read_counts
from brorl.stats.clustered import crossed_difference
from brorl.stats.intervals import Interval
from brorl.stats.paired import PairedT, paired_t
from brorl.stats.pass_at_k import pass_at_k
from brorl.studies.runner.contract import BUDGETS, Arm, Budget, K

Vector = NDArray[np.float64]


class Comparison(NamedTuple):
    """Arm b minus arm a where both had spent the same."""

    a: str
    b: str
    budget: Budget
    amount: float  # of the budget
    k: int  # of pass@k
    difference: Interval
    p_two_sided: float
    per_seed: tuple[float, ...]
    seeds_standard_error: float  # other seeds, these problems; nan with one seed
    problems_standard_error: float  # other problems, these seeds


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


@dataclass(frozen=True)
class Results(Generic[K]):
    """All runs of a study, and comparisons of its arms.

    Arms of several blocks have no held-out problems in common: take `part` first.

    Attributes:
        knobs: of the study.
        arms: names, the control first.
        factors: of each arm.
        blocks: of each arm.
        runs: by arm and seed.
    """

    knobs: K
    arms: tuple[str, ...]
    factors: Mapping[str, Mapping[str, float | str]]
    blocks: Mapping[str, str]
    runs: Mapping[tuple[str, int], RunResult]

    def parts(self) -> dict[str, "Results[K]"]:
        """Each block's results alone, in the order of the arms."""
        return {block: self.part(block) for block in dict.fromkeys(self.blocks.values())}

    def part(self, block: str) -> "Results[K]":
        """The results of one block."""
        arms = tuple(arm for arm in self.arms if self.blocks[arm] == block)
        runs = {key: run for key, run in self.runs.items() if key[0] in arms}
        return Results(self.knobs, arms, self.factors, self.blocks, runs)

    @cached_property
    def seeds(self) -> list[int]:
        """Ascending."""
        return sorted({seed for _, seed in self.runs})

    def of(self, arm: str) -> list[RunResult]:
        """The runs of an arm, a seed each."""
        return [self.runs[arm, seed] for seed in self.seeds]

    def budgets(self) -> list[Budget]:
        """Those that every run has on record."""
        return [b for b in BUDGETS if all(b in run.spent for run in self.runs.values())]

    def common(self, budget: Budget, arms: Sequence[str] | None = None) -> float:
        """The largest amount that every run of these arms spent; all arms where None."""
        return min(float(r.spent[budget][-1]) for arm in arms or self.arms for r in self.of(arm))

    def scores_SK(
        self,
        arm: str,
        *,
        budget: Budget | None = None,
        amount: float | None = None,
        k: int = 1,
        only: Sequence[str] | None = None,
    ) -> Vector:
        """pass@k of each seed on each problem that all runs judged; see `level`."""
        at = budget or self.knobs.match
        x = self.common(at) if amount is None else amount
        rows = []
        for run in self.of(arm):
            place = {name: i for i, name in enumerate(run.problems)}
            rows.append(run.scores_at(at, x, k)[[place[name] for name in only or self.problems]])
        return np.stack(rows)

    @cached_property
    def problems(self) -> list[str]:
        """Held-out problems that every run judged. Raises DataError below 2."""
        shared = set.intersection(*(set(run.problems) for run in self.runs.values()))
        if len(shared) < 2:
            raise DataError(f"a study needs 2 held-out problems that all runs judged: {shared}")
        return [p for p in next(iter(self.runs.values())).problems if p in shared]

    @cached_property
    def by_task(self) -> dict[str, list[str]]:
        """The problems of each task, for `only`."""
        run = next(iter(self.runs.values()))
        task_of = dict(zip(run.problems, run.tasks, strict=True))
        found: dict[str, list[str]] = {}
        for problem in self.problems:
            found.setdefault(task_of[problem], []).append(problem)
        return found

    def level(
        self,
        arm: str,
        *,
        budget: Budget | None = None,
        amount: float | None = None,
        k: int = 1,
        only: Sequence[str] | None = None,
    ) -> Interval:
        """Mean pass@k of an arm over seeds and problems.

        Args:
            arm: its name.
            budget: by default the one that the study matches on.
            amount: spent; by default the largest that every run of every arm reached.
            k: of pass@k.
            only: ids of problems, at least 2 (`by_task`); None: all that every run judged.
        """
        scores = self.scores_SK(arm, budget=budget, amount=amount, k=k, only=only)
        test, _, _ = over_seeds(scores, level=self.knobs.level)
        value, low, high = test.difference
        return Interval(value, max(0.0, low), min(1.0, high))

    def change(
        self,
        arm: str,
        *,
        budget: Budget | None = None,
        amount: float | None = None,
        k: int = 1,
        only: Sequence[str] | None = None,
    ) -> Interval:
        """An arm's gain since before its training; arguments as `level`."""
        after = self.scores_SK(arm, budget=budget, amount=amount, k=k, only=only)
        before = self.scores_SK(arm, budget=budget, amount=0.0, k=k, only=only)
        return over_seeds(after - before, level=self.knobs.level)[0].difference

    def compare(
        self,
        a: str,
        b: str,
        *,
        budget: Budget | None = None,
        amount: float | None = None,
        k: int = 1,
        only: Sequence[str] | None = None,
    ) -> Comparison:
        """b minus a at the same amount of a budget; arguments as `level`.

        `amount` is by default the largest that every run of these two arms reached.
        """
        at = budget or self.knobs.match
        x = self.common(at, (a, b)) if amount is None else amount
        a_SK, b_SK = (self.scores_SK(arm, budget=at, amount=x, k=k, only=only) for arm in (a, b))
        difference_SK = b_SK - a_SK
        test, seeds, problems = over_seeds(difference_SK, level=self.knobs.level)
        per_seed = tuple(float(d) for d in difference_SK.mean(axis=1))
        return Comparison(
            a, b, at, x, k, test.difference, test.p_two_sided, per_seed, seeds, problems
        )


def over_seeds(value_SK: Vector, *, level: float) -> tuple[PairedT, float, float]:
    """Mean over seeds and problems, both of them draws; and its two standard errors.

        V = var over S of the seed means / S + var over K of the problem means / K

    `crossed_difference` of the differences against nothing: seeds of the two arms are matched, so
    what they share (start, order of prompts) is gone from the differences already. With one seed
    the problems alone are the draws, and the other standard error is nan.
    """
    if value_SK.shape[0] == 1:
        test = paired_t(value_SK[0], level=level)
        return test, float("nan"), float(value_SK[0].std(ddof=1) / np.sqrt(value_SK.shape[1]))
    found = crossed_difference(np.zeros_like(value_SK), value_SK, level=level)
    return found.test, found.run_standard_error, found.problem_standard_error


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


def gather(knobs: K, arms: Sequence[Arm], runs: Mapping[tuple[str, int], RunResult]) -> Results[K]:
    """The results of a study's arms."""
    return Results(
        knobs,
        tuple(arm.name for arm in arms),
        {arm.name: dict(arm.factors) for arm in arms},
        {arm.name: arm.block for arm in arms},
        runs,
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
