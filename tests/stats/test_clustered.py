"""Clustered and crossed differences: special cases that must agree, and simulated coverage."""

import numpy as np
import pytest

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.clustered import clustered_difference, crossed_difference, runs_to_tell
from brorl.stats.paired import paired_t


def assert_same_test(got, want):
    assert got.difference == pytest.approx(want.difference)
    assert got[1:] == pytest.approx(want[1:])


def test_one_problem_a_cluster_is_the_paired_t_test():
    """Identity."""
    d = generator(0, "d").normal(0.1, 1, 50).round(6)
    got = clustered_difference(d, list(range(50)), level=0.95)
    assert_same_test(got.test, paired_t(d, level=0.95))
    assert (got.clusters, got.design_effect) == (50, pytest.approx(1.0))


def test_copies_of_a_problem_are_no_evidence():
    """Identity: each problem written down five times changes neither interval nor p."""
    d = generator(1, "d").normal(0.1, 1, 30).round(6)
    got = clustered_difference(np.repeat(d, 5), np.repeat(np.arange(30), 5).tolist(), level=0.95)
    assert_same_test(got.test, paired_t(d, level=0.95))
    # 150/149 against 30/29: the naive variance divides by K - 1 = 149.
    assert got.design_effect == pytest.approx(5 * (149 / 150) * (30 / 29))


def test_by_hand():
    """Differences 1, 3 | 0 | 4: mean 2, cluster sums of deviations 0, -2, 2.
    V = 3/2 · 8 / 16 = 0.75; variance of independent ones: (10/3) / 4; ratio 0.9."""
    got = clustered_difference([1, 3, 0, 4], ["a", "a", "b", "c"], level=0.95)
    assert got.standard_error == pytest.approx(np.sqrt(0.75))
    assert got.test.df == 2
    assert got.design_effect == pytest.approx(0.9)


def rejections(clusters, size, shared, rounds=1000):
    """Share of nulls rejected at 5 %: clustered and naive."""
    rng, hits = generator(5, "icc", clusters, size), np.zeros(2)
    labels = np.repeat(np.arange(clusters), size).tolist()
    for _ in range(rounds):
        d = np.repeat(rng.normal(0, shared, clusters), size) + rng.normal(0, 1, clusters * size)
        hits += [
            clustered_difference(d, labels, level=0.95).test.p_two_sided <= 0.05,
            paired_t(d, level=0.95).p_two_sided <= 0.05,
        ]
    return hits / rounds


def test_clustering_restores_the_level_that_the_plain_test_loses():
    """Statistical: 24 tasks of 20 problems, correlation 0.2: the plain test rejects a true null
    in about a third of cases, the clustered one in 5 % within 4 standard errors."""
    clustered, naive = rejections(24, 20, shared=0.5)
    assert abs(clustered - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)
    assert naive > 0.25


def runs(rng, run_spread, problem_spread, s=4, t=5, k=80):
    ability = rng.normal(0, 1, k)
    a, b = (
        ability
        + rng.normal(0, problem_spread, k)
        + rng.normal(0, run_spread, (n, 1))
        + rng.normal(0, 0.5, (n, k))
        for n in (s, t)
    )
    return a, b


@pytest.mark.parametrize(("run_spread", "problem_spread"), [(0.3, 0.0), (0.0, 0.7), (0.1, 0.5)])
def test_crossed_interval_covers(run_spread, problem_spread):
    """Statistical: at least 95 % less 4 standard errors of 800 rounds, whichever level varies;
    the problem-only interval covers well below that when runs differ."""
    rng, hits, naive = generator(6, "crossed", str(run_spread)), 0, 0
    for _ in range(800):
        a, b = runs(rng, run_spread, problem_spread)
        got = crossed_difference(a, b, level=0.95).test.difference
        hits += got.low <= 0 <= got.high
        plain = paired_t(b.mean(0) - a.mean(0), level=0.95).difference
        naive += plain.low <= 0 <= plain.high
    floor = 0.95 - 4 * np.sqrt(0.95 * 0.05 / 800)
    assert hits / 800 >= floor
    if run_spread == 0.3:
        assert naive / 800 < 0.6


def test_crossed_by_hand():
    """a: two runs of zeros. b: three runs on two problems, (1, 3), (3, 5) and (5, 7): run means 2,
    4, 6, problem means 3 and 5. V_problems = var(3, 5)/2 = 1; V_runs = var(2, 4, 6)/3 + 0 = 4/3;
    df = (7/3)**2 / (1/1 + (4/3)**2/2) = (49/9) / (17/9)."""
    got = crossed_difference([[0, 0], [0, 0]], [[1, 3], [3, 5], [5, 7]], level=0.95)
    assert got.test.difference.value == 4
    assert got[1:] == pytest.approx((1.0, np.sqrt(4 / 3), np.sqrt(7 / 3)))
    assert got.test.df == pytest.approx(49 / 17)


def test_nothing_varies_anywhere():
    """A case: equal scores everywhere leave the point and the problems' degrees of freedom."""
    got = crossed_difference([[1, 1, 1]] * 2, [[2, 2, 2]] * 3, level=0.95)
    assert got.test.difference == (1, 1, 1)
    assert got.test.df == 2


def test_runs_that_agree_leave_the_problem_level_alone():
    """Identity: copies of one run on each side give the paired t-test of the two."""
    x, y = generator(2, "xy").random((2, 40)).round(6)
    got = crossed_difference([x, x], [y, y, y], level=0.9)
    assert got.run_standard_error == pytest.approx(0.0, abs=1e-15)
    assert_same_test(got.test, paired_t(y - x, level=0.9))


@pytest.mark.parametrize(("difference", "told"), [(1.0, 18), (2.0, 7), (3.0, 5)])
def test_runs_to_tell_by_tables_of_t(difference, told):
    """By hand: 3 runs gave a standard error of 2/sqrt(3) and problems none, so S runs give
    2/sqrt(S) with S - 1 degrees of freedom. t(17) = 2.110, t(6) = 2.447, t(4) = 2.776: half widths
    0.9946 at 18 (1.028 at 17), 1.850 at 7 (2.099 at 6), 2.483 at 5 (3.182 at 4)."""
    given = {"runs": 3, "run_standard_error": 2 / np.sqrt(3), "problem_standard_error": 0.0}
    got = runs_to_tell(difference, **given, problems=100, level=0.95)
    assert got == told
    assert runs_to_tell(-difference, **given, problems=100, level=0.95) == told


def test_runs_to_tell_is_when_the_interval_leaves_zero():
    """Oracle: `crossed_difference` of as many runs with the spread that was seen."""
    rng = generator(3, "told")
    seen = rng.normal(0.3, 1.0, (4, 1)) + rng.normal(0, 0.5, (1, 30))
    found = crossed_difference(np.zeros_like(seen), seen, level=0.9)
    told = runs_to_tell(
        found.test.difference.value,
        runs=4,
        run_standard_error=found.run_standard_error,
        problem_standard_error=found.problem_standard_error,
        problems=30,
        level=0.9,
    )
    shape = (seen - seen.mean(axis=1, keepdims=True)).mean(axis=0)
    for runs, leaves in ((told - 1, False), (told, True)):
        # Run means of the same mean and variance as seen, problems as they were.
        spread = np.linspace(-1, 1, runs)
        spread *= seen.mean(axis=1).std(ddof=1) / spread.std(ddof=1)
        again = found.test.difference.value + spread[:, None] + shape[None]
        low, high = crossed_difference(np.zeros_like(again), again, level=0.9).test.difference[1:]
        assert (low > 0 or high < 0) is leaves


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_runs_to_tell_knows_no_unit(scale):
    """By hand, in any unit: 8 seeds give a half width of 2.245 · 0.1323 = 0.297, 7 give 0.324."""
    given = {"run_standard_error": 0.2 * scale, "problem_standard_error": 0.05 * scale}
    assert runs_to_tell(0.3 * scale, runs=3, problems=40, level=0.95, **given) == 8


def test_problems_can_be_too_few_for_any_number_of_runs():
    """A case: the problems alone leave more than the difference."""
    given = {"runs": 3, "run_standard_error": 0.1, "problem_standard_error": 1.0}
    assert runs_to_tell(0.5, **given, problems=50, level=0.95) is None
    assert runs_to_tell(0.0, **given, problems=50, level=0.95) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustered_difference([1, 2], ["a"], level=0.9), r"got \[2\] and 1"),
        (lambda: clustered_difference([1, 2], ["a", "a"], level=0.9), "2 clusters, got 1"),
        (lambda: clustered_difference([], [], level=0.9), "2 clusters, got 0"),
        (lambda: clustered_difference([np.inf, 1], ["a", "b"], level=0.9), "finite"),
        (lambda: crossed_difference([[1, 2]], [[1, 2], [1, 2]], level=0.9), r"got \[1, 2\]"),
        (lambda: crossed_difference([[1, 2]] * 2, [[1, 2, 3]] * 2, level=0.9), r"\[2, 3\]"),
        (lambda: crossed_difference([[1, 2]] * 2, [[1, np.nan]] * 2, level=0.9), "finite"),
        (
            lambda: runs_to_tell(
                0.1,
                runs=1,
                run_standard_error=0.1,
                problem_standard_error=0.1,
                problems=9,
                level=0.9,
            ),
            "2 runs",
        ),
        (
            lambda: runs_to_tell(
                0.1,
                runs=2,
                run_standard_error=0.1,
                problem_standard_error=0.1,
                problems=9,
                level=float("nan"),
            ),
            "level",
        ),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
