"""Rollouts by pass rate against loops, and the borders of the bins by hand."""

import numpy as np
import pytest

from brorl.record.rollouts import write_rollouts
from brorl.report.spent import BINS, evenly, spent_by_rate

from .recorded import group, new_run


def answers(right, n):
    return ["cba"] * right + ["abc"] * (n - right)


def test_borders_of_the_bins_by_hand(tmp_path):
    """Of 20: 0 is its own bin, 1 is in (0, 10 %), 2 = 10 % begins the next, 18 = 90 % and 19 are
    in the tenth, 20 is its own bin."""
    run = new_run(tmp_path / "run")
    rows = []
    for right in (0, 1, 2, 3, 18, 19, 20):
        rows += group(f"p{right}", answers(right, 20), kept=0 < right < 20)
    write_rollouts(run, 1, rows)
    found = spent_by_rate(run, most_steps=10)
    assert dict(zip(BINS, found.generated[0], strict=True)) == {
        "none right": 20,
        "0–10 %": 20,
        "10–20 %": 40,
        **{f"{10 * i}–{10 * (i + 1)} %": 0 for i in range(2, 9)},
        "90–100 %": 40,
        "all right": 20,
    }
    assert sum(found.kept[0]) == 100
    assert found.kept[0][0] == found.kept[0][11] == 0


@pytest.mark.parametrize("seed", range(3))
def test_matches_a_loop_over_groups(tmp_path, seed):
    """Oracle: float comparison with the edges i/10, on group sizes without rounding at them."""
    rng = np.random.default_rng(seed)
    run = new_run(tmp_path / "run")
    rows, want = [], [0] * len(BINS)
    for i in range(60):
        n = int(rng.choice([7, 13, 17, 64]))
        right = int(rng.integers(0, n + 1))
        rows += group(f"p{i}", answers(right, n))
        rate = right / n
        place = (
            0 if right == 0 else 11 if right == n else 1 + sum(rate >= e / 10 for e in range(1, 10))
        )
        want[place] += n
    write_rollouts(run, 1, rows)
    assert spent_by_rate(run, most_steps=1).generated == [want]


def test_carried_groups_were_spent_in_the_step_that_sampled_them(tmp_path):
    run = new_run(tmp_path / "run")
    write_rollouts(
        run, 5, group("old", answers(1, 4), step=5, born=4) + group("new", answers(4, 4), step=5)
    )
    found = spent_by_rate(run, most_steps=1)
    assert found.generated == [[0] * 11 + [4]]


def test_steps_are_thinned_evenly_and_the_ends_stay(tmp_path):
    run = new_run(tmp_path / "run")
    for step in range(1, 8):
        write_rollouts(run, step, group("p", answers(1, 2), step=step))
    found = spent_by_rate(run, most_steps=3)
    assert found.steps == [1, 4, 7]
    assert found.recorded_steps == 7
    assert evenly([3, 9], 5) == [3, 9]
    assert evenly(range(1000), 2) == [0, 999]


def test_none_where_nothing_is_recorded(tmp_path):
    assert spent_by_rate(new_run(tmp_path / "run"), most_steps=3) is None
