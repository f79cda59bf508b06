"""Mean differences whose parts are not independent: problems in benchmarks, seeds of an arm.

Axes:  K problems · S, T runs (seeds) of the two arms
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from brorl.errors import ShapeError
from brorl.stats.intervals import check_level
from brorl.stats.paired import PairedT, t_test


class Clustered(NamedTuple):
    """A mean difference with the standard error that its clusters leave it."""

    test: PairedT
    standard_error: float
    clusters: int
    design_effect: float  # variance over that of independent problems; nan where that is 0


def clustered_difference(
    difference_K: ArrayLike, clusters_K: Sequence[Hashable], *, level: float
) -> Clustered:
    """The mean of K differences, with clusters as the units that were drawn.

        V = G/(G-1) · sum over clusters (sum in it of (d - mean d))**2 / K**2,   df = G - 1

    One problem a cluster gives the paired t-test exactly. The mean is over problems, so a large
    cluster weighs more. With few clusters (under about 10) even this is optimistic.

    Args:
        difference_K: float [K], score of B minus score of A.
        clusters_K: K labels: a problem's id where rows are runs of problems, its task, or its
            benchmark. At least 2 different ones.
        level: of the interval.

    Raises:
        ShapeError: lengths differ, fewer than 2 clusters, or a value that is not finite.

    Source:
        Liang and Zeger 1986, Biometrika 73:13; for evaluations Miller 2024, arXiv:2411.00640.
    """
    d = np.asarray(difference_K, dtype=np.float64)
    if d.shape != (len(clusters_K),) or not np.isfinite(d).all():
        raise ShapeError(
            f"need one cluster a finite difference, got {list(d.shape)} and {len(clusters_K)}"
        )
    numbers = {label: i for i, label in enumerate(dict.fromkeys(clusters_K))}
    groups = len(numbers)
    if groups < 2:
        raise ShapeError(f"need at least 2 clusters, got {groups}")
    mean = float(d.mean())
    index_K = np.array([numbers[label] for label in clusters_K])
    sums_G = np.bincount(index_K, weights=d - mean, minlength=groups)
    variance = groups / (groups - 1) * float(np.square(sums_G).sum()) / d.size**2
    alone = float(d.var(ddof=1)) / d.size
    se = float(np.sqrt(variance))
    return Clustered(
        t_test(mean, se, groups - 1, level=level),
        se,
        groups,
        variance / alone if alone > 0 else float("nan"),
    )


class Crossed(NamedTuple):
    """A mean difference of two arms with several runs each on the same problems."""

    test: PairedT
    problem_standard_error: float  # other problems, these runs
    run_standard_error: float  # other runs, these problems
    standard_error: float  # both


def crossed_difference(a_SK: ArrayLike, b_TK: ArrayLike, *, level: float) -> Crossed:
    """Mean difference of two arms whose runs are draws too: what a claim about recipes needs.

        V = V_problems + V_runs,   V_problems = var over K of (mean_T b - mean_S a) / K
                                   V_runs     = var over T of b's means / T + the same of a / S

    A run's mean already holds the noise of its samples, which V_problems counts as well: V is
    too large rather than too small. Degrees of freedom by Satterthwaite over the three parts.
    The runs of the two arms are not matched: equal seeds do not make equal runs.

    Args:
        a_SK, b_TK: float [S, K] and [T, K], scores of each run on the same K problems in the
            same order. S, T, K >= 2.
        level: of the interval.

    Raises:
        ShapeError: other shapes, fewer than 2 runs an arm or 2 problems, values not finite.

    Source:
        crossed random effects: Cornfield and Tukey 1956, Ann. Math. Stat. 27:907; the degrees
        of freedom: Satterthwaite 1946, Biometrics Bulletin 2:110.
    """
    a, b = np.asarray(a_SK, dtype=np.float64), np.asarray(b_TK, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or min(*a.shape, *b.shape) < 2:
        raise ShapeError(
            f"need [S, K] and [T, K] with S, T, K >= 2, got {list(a.shape)} and {list(b.shape)}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ShapeError("scores of runs must be finite")
    problems = a.shape[1]
    difference_K = b.mean(axis=0) - a.mean(axis=0)
    parts = [(float(difference_K.var(ddof=1)) / problems, problems - 1)]
    for arm in (a, b):
        parts.append((float(arm.mean(axis=1).var(ddof=1)) / arm.shape[0], arm.shape[0] - 1))
    total = sum(v for v, _ in parts)
    weight = sum(v * v / df for v, df in parts)
    df = total * total / weight if weight > 0 else problems - 1
    runs = parts[1][0] + parts[2][0]
    return Crossed(
        t_test(float(difference_K.mean()), float(np.sqrt(total)), df, level=level),
        float(np.sqrt(parts[0][0])),
        float(np.sqrt(runs)),
        float(np.sqrt(total)),
    )


def runs_to_tell(
    difference: float,
    *,
    runs: int,
    run_standard_error: float,
    problem_standard_error: float,
    problems: int,
    level: float,
    most: int = 1000,
) -> int | None:
    """Matched runs an arm at which the interval would leave 0, were all as it was seen.

        smallest S with  t_df(S) sqrt(R^2 S0 / S + P^2) < |difference|

    S0 runs gave the standard errors R of runs and P of problems; the problems stay as many, so
    that P does not shrink. df(S) by Satterthwaite, as in `crossed_difference`.

    Args:
        difference: as seen; it is taken for the true one, which flatters a large chance finding.
        runs: S0 >= 2, matched runs of each arm.
        run_standard_error: R >= 0, of the mean difference over S0 runs.
        problem_standard_error: P >= 0.
        problems: K >= 2.
        level: of the interval.
        most: the largest S tried.

    Returns:
        S in [2, most]; None where no such number of runs would do.

    Raises:
        ShapeError: a number out of its range, or not finite.
    """
    seen = (difference, run_standard_error, problem_standard_error)
    if not np.isfinite(seen).all() or min(seen[1:]) < 0 or runs < 2 or problems < 2:
        raise ShapeError(
            f"need finite numbers, standard errors >= 0, 2 runs and 2 problems, got {seen}, "
            f"{runs} and {problems}"
        )
    check_level(level)
    scale = max(seen[1:])
    if scale == 0.0:
        return 2 if difference != 0.0 else None
    s_S = np.arange(2, most + 1, dtype=np.float64)
    of_problems = (problem_standard_error / scale) ** 2  # scaled: squares of tiny numbers are 0
    of_runs_S = (run_standard_error / scale) ** 2 * (float(runs) / s_S)
    total_S = of_problems + of_runs_S
    df_S = total_S**2 / (of_problems**2 / (problems - 1) + of_runs_S**2 / (s_S - 1))
    half_S = stats.t.ppf(0.5 + level / 2, df_S) * np.sqrt(total_S)
    tells = np.flatnonzero(half_S < abs(difference) / scale)
    return int(s_S[tells[0]]) if len(tells) else None
