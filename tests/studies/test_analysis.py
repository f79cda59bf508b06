"""Answers with three values: every case by hand; tables at every budget."""

import itertools

import pytest

from brorl.stats.intervals import Interval
from brorl.studies.runner.analysis import above, all_of, any_of, below, shown


@pytest.mark.parametrize(
    ("low", "high", "is_above", "is_below"),
    [(0.1, 0.2, True, False), (-0.2, -0.1, False, True), (-0.1, 0.1, None, None)],
)
def test_an_interval_decides_only_as_a_whole(low, high, is_above, is_below):
    interval = Interval((low + high) / 2, low, high)
    assert above(interval, 0.0) is is_above
    assert below(interval, 0.0) is is_below
    touching = Interval(0.1, 0.0, 0.2)
    assert above(touching, 0.0) is below(touching, 0.0) is None


def test_three_valued_logic_by_its_table():
    """Oracle: all three-element lists; what holds however the unknown turn out is known."""
    for answers in itertools.product((True, False, None), repeat=3):
        worlds = list(itertools.product(*[(True, False) if a is None else (a,) for a in answers]))
        for rule, truth in ((all_of, all), (any_of, any)):
            outcomes = {truth(world) for world in worlds}
            want = outcomes.pop() if len(outcomes) == 1 else None
            assert rule(answers) is want, (rule, answers)
    assert all_of([]) is any_of([]) is None


def test_shown_is_value_and_ends():
    assert shown(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert shown(Interval(0.1, -0.1, 0.3), signed=True) == "+0.100 [-0.100, +0.300]"
