"""Compare two arms on the same problems: every number that a claim about them rests on."""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import DataError
from brorl.evaluate.pairing import Arm, Paired, Row, metric, pair_arms
from brorl.stats.clustered import Clustered, Crossed, clustered_difference, crossed_difference
from brorl.stats.intervals import Interval, mean_interval
from brorl.stats.multiplicity import holm
from brorl.stats.paired import (
    PairedT,
    SignFlip,
    WinsTiesLosses,
    differences,
    effect_size,
    paired_t,
    sign_flip,
    wilcoxon,
    wins_ties_losses,
)
from brorl.stats.power import smallest_detectable


class Knobs(NamedTuple):
    """How to compare; the command line holds the defaults."""

    metric: str  # "score" or "pass@K"
    level: float  # of every interval; tests are at 1 - level
    power: float  # for the smallest detectable difference
    exact_up_to: int  # nonzero differences for exact permutation tests
    draws: int  # Monte Carlo sign vectors above that
    seed: int  # of their stream
    common: bool  # compare only the problems that all runs share


class Part(NamedTuple):
    """One benchmark or one task of a comparison."""

    name: str
    problems: int
    mean_a: float
    mean_b: float
    difference: Interval | None  # None for a single problem
    p: float | None  # paired t-test, two-sided
    p_holm: float | None  # over all parts of this list that have a p


class Comparison(NamedTuple):
    """B minus A, in score units."""

    a: str
    b: str
    metric: str
    level: float
    problems: int
    runs_a: int
    runs_b: int
    mean_a: Interval
    mean_b: Interval
    headline: PairedT  # over problems, and over runs where both arms have several
    standard_error: float
    permutation: SignFlip
    wilcoxon: float
    effect_size: float
    counts: WinsTiesLosses
    smallest_detectable: float
    power: float
    by_runs: Crossed | None  # None with one run in an arm
    by_benchmark: Clustered | None  # None with one benchmark
    by_task: Clustered | None  # None with one task, or one problem a task
    benchmarks: tuple[Part, ...]
    tasks: tuple[Part, ...]
    notes: tuple[str, ...]


def compare_arms(a: Arm, b: Arm, knobs: Knobs) -> Comparison:
    """Pair the problems of two arms and test their difference.

    The headline interval treats problems as drawn. With two or more runs an arm it treats runs
    as drawn too; otherwise it is about these very checkpoints and the notes say so.

    Raises:
        DataError: what pair_arms refuses, or a single problem.
    """
    paired = pair_arms(a, b, value=metric(knobs.metric), common=knobs.common)
    k = len(paired.rows)
    if k < 2:
        raise DataError(f"a comparison needs at least 2 problems, {a.name} and {b.name} share {k}")
    mean_a_K, mean_b_K = paired.a_SK.mean(axis=0), paired.b_TK.mean(axis=0)
    d_K = differences(mean_a_K, mean_b_K)
    by_runs = _by_runs(paired, knobs.level)
    headline = by_runs.test if by_runs else paired_t(d_K, level=knobs.level)
    se = by_runs.standard_error if by_runs else float(d_K.std(ddof=1) / np.sqrt(k))
    labels = [(row.suite, row.task) for row in paired.rows]
    return Comparison(
        a=a.name,
        b=b.name,
        metric=knobs.metric,
        level=knobs.level,
        problems=k,
        runs_a=len(a.runs),
        runs_b=len(b.runs),
        mean_a=mean_interval(mean_a_K, level=knobs.level),
        mean_b=mean_interval(mean_b_K, level=knobs.level),
        headline=headline,
        standard_error=se,
        permutation=sign_flip(
            d_K, exact_up_to=knobs.exact_up_to, draws=knobs.draws, seed=knobs.seed
        ),
        wilcoxon=wilcoxon(d_K, exact_up_to=knobs.exact_up_to),
        effect_size=effect_size(d_K),
        counts=wins_ties_losses(d_K),
        smallest_detectable=smallest_detectable(
            se, headline.df, alpha=1 - knobs.level, power=knobs.power
        ),
        power=knobs.power,
        by_runs=by_runs,
        by_benchmark=_by_cluster(d_K, [row.suite for row in paired.rows], knobs.level),
        by_task=_by_cluster(d_K, labels, knobs.level) if len(set(labels)) < k else None,
        benchmarks=_parts(paired, lambda row: row.suite, knobs.level),
        tasks=_parts(paired, lambda row: row.task, knobs.level),
        notes=(*paired.notes, *_run_notes(a, b)),
    )


def _by_runs(paired: Paired, level: float) -> Crossed | None:
    if min(paired.a_SK.shape[0], paired.b_TK.shape[0]) < 2:
        return None
    return crossed_difference(paired.a_SK, paired.b_TK, level=level)


def _by_cluster(
    d_K: NDArray[np.float64], labels: Sequence[Hashable], level: float
) -> Clustered | None:
    return clustered_difference(d_K, labels, level=level) if len(set(labels)) > 1 else None


def _parts(paired: Paired, key: Callable[[Row], str], level: float) -> tuple[Part, ...]:
    """Each benchmark or task by itself, Holm's correction over all of them."""
    mean_a_K, mean_b_K = paired.a_SK.mean(axis=0), paired.b_TK.mean(axis=0)
    names = [key(row) for row in paired.rows]
    parts = []
    for name in dict.fromkeys(names):
        at = np.array([n == name for n in names])
        size = int(at.sum())
        a, b = mean_a_K[at], mean_b_K[at]
        test = paired_t(differences(a, b), level=level) if size > 1 else None
        parts.append(
            Part(
                name,
                size,
                float(a.mean()),
                float(b.mean()),
                test.difference if test else None,
                test.p_two_sided if test else None,
                None,
            )
        )
    adjusted = iter(holm([p.p for p in parts if p.p is not None]))
    return tuple(p if p.p is None else p._replace(p_holm=float(next(adjusted))) for p in parts)


def _run_notes(a: Arm, b: Arm) -> list[str]:
    single = [arm.name for arm in (a, b) if len(arm.runs) < 2]
    if not single:
        return []
    return [
        f"one run of {' and of '.join(single)}: the interval does not hold what another training "
        "run would change"
    ]


def correct_for_arms(comparisons: Sequence[Comparison]) -> list[float]:
    """Holm-adjusted p-values of the headline tests when several arms meet one reference."""
    return [float(p) for p in holm([c.headline.p_two_sided for c in comparisons])]


def claim(c: Comparison) -> str:
    """One sentence: what may be said about B against A, and how far it reaches."""
    d, percent = c.headline.difference, f"{100 * c.level:g} %"
    span = f"{d.value:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"
    if d.low <= 0 <= d.high:
        return (
            f"No difference may be claimed: {c.b} minus {c.a} is {span} on {c.problems} problems "
            f"({percent} interval), and a true difference below {c.smallest_detectable:.4f} would "
            f"have been missed more than {100 * (1 - c.power):.0f} % of the time."
        )
    better, worse = (c.b, c.a) if d.value > 0 else (c.a, c.b)
    reach = (
        f"over {c.runs_a} and {c.runs_b} runs"
        if c.by_runs
        else "for these checkpoints, not for their recipes"
    )
    doubts = [
        f"with {name}s as what was drawn the interval holds 0"
        for name, clustered in (("benchmark", c.by_benchmark), ("task", c.by_task))
        if clustered and clustered.test.difference.low <= 0 <= clustered.test.difference.high
    ]
    if c.permutation.p_two_sided > 1 - c.level:
        doubts.append(f"the sign-flip test does not agree (p = {c.permutation.p_two_sided:.3g})")
    tail = f"; but {', and '.join(doubts)}" if doubts else ""
    return (
        f"{better} scores higher than {worse} on these {c.problems} problems: {span} "
        f"({percent} interval), {reach}{tail}."
    )
