"""An evaluation as numbers: per benchmark, category and task, and overall.

Nothing is pooled over samples: every figure is a mean over problems, with the problems as what
was drawn. Groups whose problems differ in n are summarised up to the smallest n.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from brorl.errors import DataError
from brorl.evaluate.render import Page, Table, cell, number
from brorl.evaluate.results import Evaluation, ProblemResult
from brorl.stats.intervals import Interval, mean_interval, strata_interval, wilson
from brorl.stats.majority import majority_at_k
from brorl.stats.pass_at_k import doubling_ks, pass_at_k, pass_hat_k
from brorl.verify.verdict import Kind


class Summary(NamedTuple):
    """One group of problems."""

    name: str
    problems: int
    samples: int
    fewest: int  # the smallest n of a problem; k goes up to it
    score: Interval  # avg@n: mean over problems of the mean score
    pass_at_k: Mapping[int, Interval]
    majority: Mapping[int, float]  # maj@k
    pass_hat_k: Mapping[int, float]  # pass^k
    solved: float  # share of problems with at least one success
    truncated: float  # share of samples, mean over problems
    no_answer: float  # share of samples, mean over problems
    tokens: float  # answer length, mean over problems
    grader_errors: int  # samples left out because our own grading failed


def summarise(name: str, problems: Sequence[ProblemResult], *, level: float) -> Summary:
    """Everything about one group.

    pass@k is the closed form for k = 1, 2, 4, ..., n. With one sample a problem each problem is
    a right-or-wrong trial and pass@1 has Wilson's interval.

    Raises:
        DataError: no problem.
    """
    if not problems:
        raise DataError(f"{name}: an empty suite, there is no problem to summarise")
    c, n = np.array([p.c for p in problems]), np.array([p.n for p in problems])
    ks = doubling_ks(int(n.min()))
    passes = {k: mean_interval(pass_at_k(c, n, k), level=level) for k in ks}
    if (n == 1).all():
        passes[1] = wilson(int(c.sum()), len(problems), level=level)
    return Summary(
        name=name,
        problems=len(problems),
        samples=int(n.sum()),
        fewest=int(n.min()),
        score=mean_interval([p.score for p in problems], level=level),
        pass_at_k=passes,
        majority={k: float(np.mean([_majority(p, k) for p in problems])) for k in ks},
        pass_hat_k={k: float(pass_hat_k(c, n, k).mean()) for k in ks},
        solved=float((c > 0).mean()),
        truncated=float(np.mean([p.truncated / p.n for p in problems])),
        no_answer=float(np.mean([p.verdicts.get(Kind.NO_ANSWER, 0) / p.n for p in problems])),
        tokens=float(np.mean([np.mean(p.tokens) for p in problems])),
        grader_errors=sum(p.grader_errors for p in problems),
    )


def _majority(problem: ProblemResult, k: int) -> float:
    votes = tuple(sorted(problem.answers))
    return _cached_majority(votes, problem.n - sum(v for v, _ in votes), k)


@lru_cache(maxsize=65_536)
def _cached_majority(votes: tuple[tuple[int, bool], ...], abstained: int, k: int) -> float:
    return majority_at_k([m for m, _ in votes], [r for _, r in votes], abstained=abstained, k=k)


def by_suite(evaluation: Evaluation, *, level: float) -> list[Summary]:
    """One summary a benchmark, in the order of the file."""
    return [
        summarise(name, suite.problems, level=level) for name, suite in evaluation.suites.items()
    ]


def by_key(
    evaluation: Evaluation, key: Callable[[ProblemResult], str], *, level: float
) -> list[Summary]:
    """One summary for each task or category, named SUITE/KEY where a suite has several."""
    found = []
    for suite, result in evaluation.suites.items():
        groups: dict[str, list[ProblemResult]] = {}
        for problem in result.problems:
            groups.setdefault(key(problem), []).append(problem)
        if len(groups) > 1:
            found += [
                summarise(f"{suite}/{group}", problems, level=level)
                for group, problems in groups.items()
            ]
    return found


def overall(evaluation: Evaluation, *, level: float) -> dict[str, Interval]:
    """The mean score of all suites together, in its four senses; see `senses`."""
    return senses(
        [(s, p) for s, suite in evaluation.suites.items() for p in suite.problems], level=level
    )


def senses(problems: Sequence[tuple[str, ProblemResult]], *, level: float) -> dict[str, Interval]:
    """The mean score over problems, tasks, categories and benchmarks, groups weighing equally.

    They differ: BroRL's own Reasoning Gym figure is a mean over tasks and not the mean of its
    category columns. A sense is left out where there is one group, or a group of one problem.

    Args:
        problems: each with the name of its suite; a task or category is one of its suite.
        level: of the intervals.
    """
    found = {"mean over problems": mean_interval([p.score for _, p in problems], level=level)}
    for name, key in (
        ("mean over tasks", lambda s, p: (s, p.task)),
        ("mean over categories", lambda s, p: (s, p.category)),
        ("mean over benchmarks", lambda s, p: s),
    ):
        groups: dict[Any, list[float]] = {}
        for suite, problem in problems:
            groups.setdefault(key(suite, problem), []).append(problem.score)
        if len(groups) > 1 and min(len(scores) for scores in groups.values()) > 1:
            found[name] = strata_interval(list(groups.values()), level=level)
    return found


def means_table(evaluation: Evaluation, *, level: float) -> Table | None:
    """Each suite with several tasks, and all suites together, in every sense that they have."""
    rows = []
    for name, suite in evaluation.suites.items():
        found = senses([(name, p) for p in suite.problems], level=level)
        if len(found) > 1:
            rows += [(f"{name}, {sense}", cell(x)) for sense, x in found.items()]
    if len(evaluation.suites) > 1:
        rows += [
            (f"all, {sense}", cell(x)) for sense, x in overall(evaluation, level=level).items()
        ]
    return Table("Means", ("", "avg@n"), tuple(rows)) if rows else None


def as_json(evaluation: Evaluation, *, level: float) -> dict[str, Any]:
    """The object that `brorl eval --json` prints."""
    return {
        "model": evaluation.model.source,
        "protocol": evaluation.protocol.model_dump(),
        "level": level,
        "suites": {
            s.name: _json(s)
            | {
                "means": {
                    sense: x._asdict()
                    for sense, x in senses(
                        [(s.name, p) for p in evaluation.suites[s.name].problems], level=level
                    ).items()
                }
            }
            for s in by_suite(evaluation, level=level)
        },
        "tasks": {s.name: _json(s) for s in by_key(evaluation, lambda p: p.task, level=level)},
        "categories": {
            s.name: _json(s) for s in by_key(evaluation, lambda p: p.category, level=level)
        },
        "overall": {name: x._asdict() for name, x in overall(evaluation, level=level).items()},
    }


def _json(s: Summary) -> dict[str, Any]:
    return {
        "avg@n": s.score._asdict(),
        "pass@k": {str(k): x._asdict() for k, x in s.pass_at_k.items()},
        "maj@k": {str(k): x for k, x in s.majority.items()},
        "pass^k": {str(k): x for k, x in s.pass_hat_k.items()},
        "problems": s.problems,
        "samples": s.samples,
        "fewest_samples": s.fewest,
        "solved": s.solved,
        "truncated": s.truncated,
        "no_answer": s.no_answer,
        "tokens": s.tokens,
        "grader_errors": s.grader_errors,
    }


def summary_table(title: str, summaries: Sequence[Summary], *, level: float) -> Table:
    """Score, success at both ends of k, voting, and what went wrong."""
    rows = []
    for s in summaries:
        k = s.fewest
        rows.append(
            (
                s.name,
                f"{s.problems}",
                f"{k}" if s.samples == k * s.problems else f"{k}+",
                cell(s.score),
                cell(s.pass_at_k[1]),
                cell(s.pass_at_k[k]),
                number(s.majority[k]),
                number(s.pass_hat_k[k]),
                number(s.truncated, 3),
                number(s.no_answer, 3),
                number(s.tokens, 1),
            )
        )
    columns = ("", "problems", "n", "avg@n", "pass@1", "pass@n", "maj@n", "pass^n")
    errors = sum(s.grader_errors for s in summaries)
    lost = f" {errors} samples were left out because grading failed on our side." if errors else ""
    return Table(
        title,
        (*columns, "truncated", "no answer", "tokens"),
        tuple(rows),
        f"Brackets: {100 * level:g} % intervals over problems; n+: some problems have more.{lost}",
    )


def curve_table(summaries: Sequence[Summary]) -> Table:
    """pass@k for every k that all groups have."""
    ks = sorted(set.intersection(*(set(s.pass_at_k) for s in summaries)))
    rows = tuple((s.name, *(cell(s.pass_at_k[k]) for k in ks)) for s in summaries)
    return Table("pass@k", ("", *(f"k = {k}" for k in ks)), rows)


def protocol_sentence(evaluation: Evaluation) -> str:
    """The sampling settings, to stand beside every score."""
    p = evaluation.protocol
    template = "with its chat template" if p.chat_template else "without a chat template"
    return (
        f"{evaluation.model.source}: {p.samples} samples a problem, temperature "
        f"{p.temperature:g}, top-p {p.top_p:g}, top-k {p.top_k or 'off'}, at most "
        f"{p.max_new_tokens:,} new tokens, {template}, {p.engine} engine, seed {p.seed}."
    )


def report(evaluation: Evaluation, *, level: float, figures: Iterable[str] = ()) -> Page:
    """The whole evaluation: benchmarks, overall, curves, categories and tasks."""
    suites = by_suite(evaluation, level=level)
    tables = [summary_table("Benchmarks", suites, level=level)]
    if means := means_table(evaluation, level=level):
        tables.append(means)
    tables.append(curve_table(suites))
    for title, key in (("Categories", lambda p: p.category), ("Tasks", lambda p: p.task)):
        if groups := by_key(evaluation, key, level=level):
            tables.append(summary_table(title, groups, level=level))
    title = f"Evaluation of {evaluation.model.source}"
    return Page(title, (protocol_sentence(evaluation),), tuple(tables), tuple(figures))
