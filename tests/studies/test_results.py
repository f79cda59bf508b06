"""Runs compared at equal budgets: hand-computed interpolation, and identities of the intervals."""

from pathlib import Path

import numpy as np
import pytest

from brorl.errors import DataError
from brorl.stats.paired import paired_t
from brorl.studies.runner.analysis import matched
from brorl.studies.runner.contract import Arm, Knobs
from brorl.studies.runner.results import RunResult, gather, over_seeds


def run(arm, seed, spent, right, problems=("p", "q")):
    """A run of two problems with 10 samples each; `right` is [E][K]."""
    right = np.array(right)
    axis = np.array(spent, dtype=float)
    return RunResult(
        arm, seed, Path(arm), "max_samples", {"generated": axis, "updates": axis / 10},
        {"generated": spent[-1]}, problems, tuple(p[0] for p in problems), right, np.full(right.shape, 10), [], {},
    )  # fmt: skip


def results(*runs, block="all"):
    arms = [Arm(name, name, block=block) for name in dict.fromkeys(r.arm for r in runs)]
    return gather(Knobs(), arms, {(r.arm, r.seed): r for r in runs})


TWO = results(
    run("a", 0, (0, 100, 200), [(1, 3), (3, 5), (5, 9)]),
    run("a", 1, (0, 110, 220), [(1, 3), (3, 5), (7, 7)]),
    run("b", 0, (0, 150, 300), [(1, 3), (5, 5), (7, 9)]),
    run("b", 1, (0, 50, 190), [(1, 3), (4, 4), (9, 9)]),
)


def test_between_evaluations_scores_are_linear_for_each_problem():
    """Hand-computed: 150 lies half way between 100 and 200: (.3 + .5)/2 and (.5 + .9)/2."""
    one = TWO.runs["a", 0]
    assert one.scores_at("generated", 150, 1) == pytest.approx([0.4, 0.7])
    assert one.scores_at("updates", 15, 1) == pytest.approx([0.4, 0.7])
    for amount, want in ((0, [0.1, 0.3]), (100, [0.3, 0.5]), (200, [0.5, 0.9])):
        assert one.scores_at("generated", amount, 1) == pytest.approx(want)
    with pytest.raises(DataError, match="it spent 200 generated samples, not 201"):
        one.scores_at("generated", 201, 1)
    with pytest.raises(DataError, match="do not tell its kept samples"):
        one.scores_at("kept", 1, 1)


def test_pass_at_k_is_interpolated_as_pass_at_k():
    """Hand-computed: with 1 of 10 right pass@2 is 1 - (9·8)/(10·9) = 0.2; 3 of 10: 1 - 42/90."""
    assert TWO.runs["a", 0].scores_at("generated", 0, 2) == pytest.approx([0.2, 1 - 42 / 90])


def test_arms_are_compared_where_the_one_that_spent_least_ended():
    """Hand-computed. All: 190. a: seed 0 (.48, .86), seed 1 at 8/11: (.3+.4·8/11, .5+.2·8/11)."""
    assert TWO.common("generated") == 190
    assert TWO.common("generated", ("a",)) == 200
    found = TWO.compare("a", "b")
    assert found.amount == 190
    weight = 40 / 150
    a = np.array([[0.48, 0.86], [0.3 + 0.4 * 8 / 11, 0.5 + 0.2 * 8 / 11]])
    b = np.array([[0.5 + 0.2 * weight, 0.5 + 0.4 * weight], [0.9, 0.9]])
    assert found.per_seed == pytest.approx((b - a).mean(axis=1))
    assert found.difference.value == pytest.approx((b - a).mean())
    assert TWO.compare("b", "a").difference.value == pytest.approx((a - b).mean())
    assert TWO.level("a").value == pytest.approx(a.mean())


def test_the_variance_is_that_of_seeds_plus_that_of_problems():
    """Hand-computed: seed means 0 and 2 (variance 2, over 2: 1), problem means 1 ± 1 likewise."""
    d = np.array([[-1.0, 1.0], [1.0, 3.0]])
    test, seeds, problems = over_seeds(d, level=0.95)
    assert (seeds, problems) == pytest.approx((1.0, 1.0))
    assert test.difference.value == 1.0
    assert 1.0 / test.t == pytest.approx(np.sqrt(2.0))


def test_with_problems_alike_it_is_the_paired_t_test_over_seeds():
    """Identity, and the other way round with seeds alike."""
    per_seed = np.array([0.1, 0.3, 0.2, 0.5])
    test, _, _ = over_seeds(np.repeat(per_seed[:, None], 50, axis=1), level=0.9)
    want = paired_t(per_seed, level=0.9)
    assert test.difference == pytest.approx(want.difference)
    assert test.p_two_sided == pytest.approx(want.p_two_sided)
    turned, _, _ = over_seeds(np.repeat(per_seed[None], 50, axis=0), level=0.9)
    assert turned.difference == pytest.approx(want.difference)
    alone, seeds, _ = over_seeds(per_seed[None], level=0.9)
    assert alone.difference == pytest.approx(want.difference)
    assert np.isnan(seeds)


def test_only_problems_that_all_runs_judged_count_and_by_their_name():
    one = run("a", 0, (0, 10), [(1, 3, 5), (2, 4, 6)], ("p", "q", "r"))
    other = run("b", 0, (0, 10), [(7, 1, 3), (9, 2, 4)], ("s", "p", "q"))
    both = results(one, other)
    assert both.problems == ["p", "q"]
    assert both.scores_SK("a") == pytest.approx(both.scores_SK("b"))
    assert both.compare("a", "b").difference.value == 0.0
    with pytest.raises(DataError, match="2 held-out problems that all runs judged"):
        _ = results(one, run("b", 0, (0, 10), [(7, 1), (9, 2)], ("s", "p"))).problems


def test_every_budget_is_compared_with_holms_correction():
    three = results(*TWO.runs.values(), *(run("c", s, (0, 200), [(1, 3), (9, 9)]) for s in (0, 1)))
    found = matched(three)
    assert set(found) == {"generated", "updates"}
    at = found["updates"]
    assert at["amount"] == 19
    assert set(at["levels"]) == {"a", "b", "c"}
    assert [(c["a"], c["b"]) for c in at["comparisons"]] == [("a", "b"), ("a", "c")]
    p = sorted(c["p"] for c in at["comparisons"])
    adjusted = sorted(c["p_holm"] for c in at["comparisons"])
    assert adjusted[0] == pytest.approx(min(1.0, 2 * p[0]))


def test_a_change_is_since_before_training_and_may_be_of_some_problems():
    """Hand-computed: arm a from (.1, .3) to (.5, .9) and (.7, .7) at its own end of 200 and 220."""
    ends = results(TWO.runs["a", 0], run("a", 1, (0, 110, 200), [(1, 3), (3, 5), (7, 7)]))
    assert ends.change("a").value == pytest.approx((0.4 + 0.6 + 0.6 + 0.4) / 4)
    three = [run("a", s, (0, 10), [(1, 3, 5), (2, 5, 9)], ("p1", "p2", "q")) for s in (0, 1)]
    found = results(*three)
    assert found.by_task == {"p": ["p1", "p2"], "q": ["q"]}
    assert found.change("a", only=found.by_task["p"]).value == pytest.approx(0.15)
    assert found.level("a", only=["p2", "q"]).value == pytest.approx(0.7)


def test_blocks_are_compared_apart_with_their_own_first_arm():
    """Two tasks with other problems: nothing in common but the seeds."""
    arms = [Arm(f"{arm}-{block}", "", block=block) for block in ("x", "y") for arm in "ab"]
    runs = {}
    for arm in arms:
        problems = tuple(f"{arm.block}{i}" for i in (1, 2))
        for seed in (0, 1):
            end = (9, 9) if arm.name == "b-y" else (2, 4)
            runs[arm.name, seed] = run(arm.name, seed, (0, 100), [(1, 3), end], problems)
    both = gather(Knobs(), arms, runs)
    assert list(both.parts()) == ["x", "y"]
    assert both.part("x").arms == ("a-x", "b-x")
    assert both.part("y").compare("a-y", "b-y").difference.value == pytest.approx(0.6)
    with pytest.raises(DataError, match="held-out problems that all runs judged"):
        both.level("a-x")
