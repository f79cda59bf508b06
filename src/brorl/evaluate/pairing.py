"""Line up the problems of two arms, or say why they cannot be compared.

An arm is one or more runs: evaluations of checkpoints of one recipe with other seeds.

Axes:  K problems · S, T runs of the two arms
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.evaluate.results import Evaluation, ProblemResult, SuiteResult
from brorl.stats.pass_at_k import pass_at_k

Metric = Callable[[ProblemResult], float]
_MAY_DIFFER = ("samples", "engine")  # no bias from either: named, not refused


class Arm(NamedTuple):
    """One side of a comparison. `runs` are named for messages."""

    name: str
    runs: tuple[tuple[str, Evaluation], ...]


class Row(NamedTuple):
    """Where one problem belongs."""

    suite: str
    id: str
    task: str
    category: str


class Paired(NamedTuple):
    """The same K problems under both arms."""

    rows: tuple[Row, ...]
    a_SK: NDArray[np.float64]
    b_TK: NDArray[np.float64]
    notes: tuple[str, ...]  # what differed and was let pass

    @property
    def difference_K(self) -> NDArray[np.float64]:
        """B - A per problem, each averaged over its runs first."""
        difference: NDArray[np.float64] = self.b_TK.mean(axis=0) - self.a_SK.mean(axis=0)
        return difference


def metric(name: str) -> Metric:
    """A per-problem score in [0, 1] by name.

    Args:
        name: "score", the mean score of the n samples (avg@n); or "pass@K", the unbiased chance
            that one of K samples has score 1.

    Raises:
        DataError: another name; when called, a problem with fewer than K samples.
    """
    if name == "score":
        return lambda problem: problem.score
    head, _, tail = name.partition("@")
    if head != "pass" or not tail.isascii() or not tail.isdigit() or int(tail) < 1:
        raise DataError(f"need metric score or pass@K with K >= 1, got {name!r}")
    k = int(tail)

    def value(problem: ProblemResult) -> float:
        if problem.n < k:
            raise DataError(f"pass@{k} needs {k} samples, problem {problem.id} has {problem.n}")
        return float(pass_at_k(problem.c, problem.n, k))

    return value


def pair_arms(a: Arm, b: Arm, *, value: Metric, common: bool) -> Paired:
    """Check that all runs were evaluated alike, then line up their problems by row id.

    Args:
        a, b: one or more runs each.
        value: what is compared, e.g. `metric("score")`.
        common: compare the problems that all runs share, and name how many were left out; else
            any difference in problems is refused.

    Raises:
        DataError: settings, prompts, data or verifiers differ; problems differ and `common` is
            false; no problem is shared; one evaluation counts as two runs.
    """
    runs = [*a.runs, *b.runs]
    for arm in (a, b):
        _distinct_runs(arm)
    notes = list(_protocol_notes(runs))
    suites = _shared_suites(runs, common, notes)
    rows: list[Row] = []
    for suite in suites:
        rows.extend(_shared_rows(suite, runs, common, notes))
    if not rows:
        raise DataError(f"{runs[0][0]} and {runs[-1][0]} share no problem")
    a_SK, b_TK = (
        np.array([_values(e, rows, value) for _, e in arm.runs], dtype=np.float64) for arm in (a, b)
    )
    return Paired(tuple(rows), a_SK, b_TK, tuple(dict.fromkeys(notes)))


def _values(evaluation: Evaluation, rows: Sequence[Row], value: Metric) -> list[float]:
    at = {(s, p.id): p for s, suite in evaluation.suites.items() for p in suite.problems}
    return [value(at[row.suite, row.id]) for row in rows]


def _distinct_runs(arm: Arm) -> None:
    for i, (name, run) in enumerate(arm.runs):
        for other, earlier in arm.runs[:i]:
            if run.suites == earlier.suites:
                raise DataError(
                    f"{other} and {name} are the same evaluation: one run cannot count twice"
                )


def _protocol_notes(runs: Sequence[tuple[str, Evaluation]]) -> list[str]:
    name, first = runs[0]
    notes = []
    for other, run in runs[1:]:
        differences = first.protocol.differences(run.protocol)
        refused = [d for d in differences if not d.startswith(_MAY_DIFFER)]
        if refused:
            raise DataError(f"{name} and {other} were sampled differently: {'; '.join(refused)}")
        notes += differences
        changed = {
            key: (first.versions.get(key), run.versions.get(key))
            for key in sorted(first.versions.keys() | run.versions.keys())
            if first.versions.get(key) != run.versions.get(key)
        }
        notes += [f"version of {key}: {x} and {y}" for key, (x, y) in changed.items()]
    return notes


def _shared_suites(
    runs: Sequence[tuple[str, Evaluation]], common: bool, notes: list[str]
) -> list[str]:
    name, first = runs[0]
    shared = [s for s in first.suites if all(s in run.suites for _, run in runs)]
    for other, run in runs[1:]:
        odd = sorted(first.suites.keys() ^ run.suites.keys())
        if odd and not common:
            raise DataError(f"{name} and {other} have other suites: only one has {', '.join(odd)}")
        notes += [f"suite {s} is not in every evaluation: left out" for s in odd]
    for suite in shared:
        for other, run in runs[1:]:
            _same_suite(suite, (name, first.suites[suite]), (other, run.suites[suite]))
    return shared


def _same_suite(suite: str, one: tuple[str, SuiteResult], two: tuple[str, SuiteResult]) -> None:
    for field in ("verifier", "prompt", "source_sha256"):
        ours, theirs = getattr(one[1], field), getattr(two[1], field)
        if ours != theirs:
            raise DataError(
                f"{one[0]} and {two[0]} differ in {field} of suite {suite}: "
                f"{ours!r:.80} and {theirs!r:.80}"
            )


def _shared_rows(
    suite: str, runs: Sequence[tuple[str, Evaluation]], common: bool, notes: list[str]
) -> list[Row]:
    ids = [{p.id for p in run.suites[suite].problems} for _, run in runs]
    shared = set.intersection(*ids)
    left_out = len(set.union(*ids)) - len(shared)
    if left_out and not common:
        for (other, _), theirs in zip(runs[1:], ids[1:], strict=True):
            if odd := sorted(ids[0] ^ theirs):
                raise DataError(
                    f"{runs[0][0]} and {other} have other problems in suite {suite}: only one has "
                    f"{odd[0]} ({len(odd)} in all); --common compares those that both have"
                )
    if left_out:
        notes.append(f"suite {suite}: {left_out} problems are not in every evaluation: left out")
    return [
        Row(suite, p.id, p.task, p.category)
        for p in runs[0][1].suites[suite].problems
        if p.id in shared
    ]
