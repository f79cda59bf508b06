"""What changed besides the mean: diversity, length, verdicts, behaviours, problems won and lost.

Every figure is a mean over problems of a per-problem quantity, and every change a paired
difference with its interval, so that a shift of noise does not read as one of behaviour.

Axes:  K problems · S, T runs of the two arms
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from brorl.errors import ShapeError
from brorl.evaluate.pairing import Arm, pair_arms
from brorl.evaluate.results import ProblemResult
from brorl.stats.crossing import Crossing, pass_at_k_crossing
from brorl.stats.diversity import answer_entropy, distinct_in_k
from brorl.stats.intervals import Interval, wilson
from brorl.stats.paired import differences, paired_t
from brorl.stats.pass_at_k import doubling_ks, pass_at_k_table, pass_hat_k
from brorl.verify.verdict import Kind


class Shift(NamedTuple):
    """One quantity in both arms."""

    name: str
    problems: int  # that have it in both arms
    mean_a: float
    mean_b: float
    difference: Interval


class Moves(NamedTuple):
    """Problems solved (at least one success) in one arm and not in the other."""

    problems: int
    newly_solved: Interval  # share of problems
    lost: Interval  # share of problems
    newly_by_chance: float  # share expected if A and B were the same policy
    lost_by_chance: float
    p: float  # two-sided exact sign test of newly solved against lost


class Distribution(NamedTuple):
    """Everything beside the mean score."""

    shifts: tuple[Shift, ...]
    moves: Moves
    crossing: Crossing
    ks: tuple[int, ...]


def distribution(
    a: Arm, b: Arm, *, level: float, resamples: int, seed: int, common: bool
) -> Distribution:
    """Compare two arms in everything that their evaluations hold.

    Several runs of an arm are averaged per problem for the shifts, and pooled for problems
    solved and for pass@k.

    Raises:
        DataError: what pair_arms refuses.
    """
    c_a, n_a, c_b, n_b = _counts(a, b, common)
    ks = doubling_ks(int(min(n_a.min(), n_b.min())))
    fewest = int(_each(a, b, common, lambda p: p.n).min())
    found = [
        _shift(name, *_means(a, b, common, value), level=level)
        for name, value in _quantities(fewest, a, b).items()
    ]
    crossing = pass_at_k_crossing(
        pass_at_k_table(c_a, n_a, ks),
        pass_at_k_table(c_b, n_b, ks),
        ks,
        level=level,
        resamples=resamples,
        seed=seed,
    )
    shifts = tuple(s for s in found if s is not None)
    return Distribution(shifts, moves(c_a, n_a, c_b, n_b, level=level), crossing, ks)


def moves(
    c_a_K: ArrayLike, n_a_K: ArrayLike, c_b_K: ArrayLike, n_b_K: ArrayLike, *, level: float
) -> Moves:
    """Problems newly solved by B, and lost, beside what sampling alone would do.

    If both arms were one policy, the s = c_a + c_b successes of a problem would fall anywhere
    among its n_a + n_b samples, so all of them in B's part with chance
    C(n_b, s) / C(n_a + n_b, s). Summed over problems that is what "newly solved" is worth
    nothing below: with few samples a problem at p = 0.05 is won and lost all the time.

    Args:
        c_a_K, n_a_K, c_b_K, n_b_K: int [K], successes and samples of each problem.
        level: of the Wilson intervals of the shares.

    Raises:
        ShapeError: unequal lengths or no problem.
    """
    c_a, n_a, c_b, n_b = (np.asarray(x, dtype=np.int64) for x in (c_a_K, n_a_K, c_b_K, n_b_K))
    if len({x.shape for x in (c_a, n_a, c_b, n_b)}) != 1 or c_a.ndim != 1 or not c_a.size:
        raise ShapeError(f"need four vectors of one length K >= 1, got {c_a.shape}, {c_b.shape}")
    k = c_a.size
    newly = int(((c_a == 0) & (c_b > 0)).sum())
    lost = int(((c_a > 0) & (c_b == 0)).sum())
    p = float(stats.binomtest(newly, newly + lost).pvalue) if newly + lost else 1.0
    return Moves(
        k,
        wilson(newly, k, level=level),
        wilson(lost, k, level=level),
        float(np.mean(_all_on_one_side(c_a + c_b, n_b, n_a + n_b))),
        float(np.mean(_all_on_one_side(c_a + c_b, n_a, n_a + n_b))),
        p,
    )


def _all_on_one_side(
    s_K: NDArray[np.int64], n_K: NDArray[np.int64], total_K: NDArray[np.int64]
) -> list[float]:
    """C(n, s) / C(total, s) per problem, 0 where nobody succeeded: that is no move."""
    return [
        float(pass_hat_k(n, total, s)) if s else 0.0
        for s, n, total in zip(s_K.tolist(), n_K.tolist(), total_K.tolist(), strict=True)
    ]


def _quantities(k: int, a: Arm, b: Arm) -> dict[str, Callable[[ProblemResult], float]]:
    """Name and per-problem value; nan where a problem does not have it."""
    found: dict[str, Callable[[ProblemResult], float]] = {
        "pass@1": lambda p: p.c / p.n,
        f"distinct answers in {k}": lambda p: _distinct(p, k),
        "answer entropy, nats": lambda p: answer_entropy([v.samples for v in p.answers]),
        "tokens, mean": lambda p: float(np.mean(p.tokens)),
        "tokens, median": lambda p: float(np.median(p.tokens)),
        "tokens, 90th percentile": lambda p: float(np.quantile(p.tokens, 0.9)),
        "tokens of right answers": lambda p: _tokens_of(p, right=True),
        "tokens of other answers": lambda p: _tokens_of(p, right=False),
        "truncated, share": lambda p: p.truncated / p.n,
    }
    for kind in Kind:
        if kind is not Kind.GRADER_ERROR:
            found[f"verdict {kind}, share"] = partial(_verdict, kind=kind)
    for field in ("distinct_1", "distinct_2", "self_similarity"):
        found[field.replace("_", "-")] = partial(_text, field=field)
    for name in _behaviours(a, b):
        found[f"{name}, share"] = partial(_behaviour, name=name)
    return found


def _verdict(p: ProblemResult, *, kind: Kind) -> float:
    return p.verdicts.get(kind, 0) / p.n


def _behaviours(a: Arm, b: Arm) -> list[str]:
    names = {
        name: None
        for arm in (a, b)
        for _, run in arm.runs
        for suite in run.suites.values()
        for p in suite.problems
        if p.texts
        for name in p.texts.behaviours
    }
    return list(names)


def _distinct(p: ProblemResult, k: int) -> float:
    counts = [v.samples for v in p.answers]
    return distinct_in_k(counts, silent=p.n - sum(counts), k=k)


def _tokens_of(p: ProblemResult, *, right: bool) -> float:
    lengths = [t for t, s in zip(p.tokens, p.scores, strict=True) if (s == 1.0) is right]
    return float(np.mean(lengths)) if lengths else float("nan")


def _text(p: ProblemResult, *, field: str) -> float:
    value = getattr(p.texts, field) if p.texts else None
    return float("nan") if value is None else float(value)


def _behaviour(p: ProblemResult, *, name: str) -> float:
    return p.texts.behaviours.get(name, 0) / p.n if p.texts else float("nan")


def _shift(
    name: str, a_K: NDArray[np.float64], b_K: NDArray[np.float64], *, level: float
) -> Shift | None:
    """None where fewer than two problems have the quantity, or none ever differs from 0."""
    have = np.isfinite(a_K) & np.isfinite(b_K)
    a, b = a_K[have], b_K[have]
    if a.size < 2 or not (a.any() or b.any()):
        return None
    test = paired_t(differences(a, b), level=level)
    return Shift(name, a.size, float(a.mean()), float(b.mean()), test.difference)


def _means(
    a: Arm, b: Arm, common: bool, value: Callable[[ProblemResult], float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    paired = pair_arms(a, b, value=value, common=common)
    return paired.a_SK.mean(axis=0), paired.b_TK.mean(axis=0)


def _each(
    a: Arm, b: Arm, common: bool, value: Callable[[ProblemResult], float]
) -> NDArray[np.float64]:
    paired = pair_arms(a, b, value=value, common=common)
    return np.concatenate([paired.a_SK, paired.b_TK])


def _counts(a: Arm, b: Arm, common: bool) -> tuple[NDArray[np.int64], ...]:
    """c_a, n_a, c_b, n_b, summed over the runs of each arm."""
    found = []
    for value in (lambda p: p.c, lambda p: p.n):
        paired = pair_arms(a, b, value=value, common=common)
        found.append([x.sum(axis=0).astype(np.int64) for x in (paired.a_SK, paired.b_TK)])
    (c_a, c_b), (n_a, n_b) = found
    return c_a, n_a, c_b, n_b
