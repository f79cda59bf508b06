"""Arms compared at equal budgets, with seeds as a level.

Every comparison is of vectors: seed s of both arms began from the same start and was judged on the
same problems, so differences are taken per seed and per problem. How a run's score between two
evaluations is read is told in `recorded`.

Axes:  K held-out problems · S seeds
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple

import numpy as np

from brorl.errors import DataError
from brorl.stats.clustered import crossed_difference
from brorl.stats.intervals import Interval
from brorl.stats.paired import PairedT, paired_t
from brorl.studies.runner.contract import BUDGETS, Arm, Budget, K
from brorl.studies.runner.recorded import RunResult, Vector

__all__ = ["Comparison", "Results", "RunResult", "gather", "over_seeds"]


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


def gather(knobs: K, arms: Sequence[Arm], runs: Mapping[tuple[str, int], RunResult]) -> Results[K]:
    """The results of a study's arms."""
    return Results(
        knobs,
        tuple(arm.name for arm in arms),
        {arm.name: dict(arm.factors) for arm in arms},
        {arm.name: arm.block for arm in arms},
        runs,
    )
