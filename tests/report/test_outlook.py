"""Has progress stopped, and what next: whole runs with known slopes, and the rule case by case."""

import numpy as np
import pytest
from scipy import stats

from brorl.report.outlook import (
    ALL_WRONG,
    FOUND,
    SOLVED,
    VISITS,
    Next,
    Seen,
    Window,
    describe,
    outlook,
    suggest,
    waiting,
    window_of,
)
from brorl.stats.plateau import Trend
from brorl.train.settings import PlateauSettings

from .recorded import metrics

WINDOW = Window(5, 0.01, 0.95)


def line(step, score=None, *, error=0.001, scheduled=1, **fields):
    """A line of metrics with, where a score is given, an evaluation."""
    more = {
        "groups/sampled": 10,
        "groups/solved_none": 0.1,
        "groups/solved_all": 0.2,
        "pass@k/1": 0.3,
        "pass@k/4": 0.7,
        "pass@k/8": 0.75,
        "prompts/seen": 40,
    }
    row = metrics(step, **(more | fields))
    if score is not None:
        row |= {"eval/pass@1": score, "eval/sampling_error": error, "eval/scheduled": scheduled}
    return row


def run(scores, **fields):
    return [line(i, s, **fields) for i, s in enumerate(scores)]


def test_a_line_of_five_points_by_hand():
    """Scores 0.50, 0.52, 0.51, 0.53, 0.54 at steps 0 to 4: slope 0.009, so +0.036 over the window;
    residuals −.002, .009, −.010, .001, .002 have a sum of squares 1.9e-4 on 3 degrees; the sum of
    squared distances of steps is 10. One look of 95 % costs half of the error: level 0.975."""
    found = outlook(run([0.50, 0.52, 0.51, 0.53, 0.54]), window=WINDOW)
    assert (found.first_step, found.last_step, found.look) == (0, 4, 1)
    assert found.found.level == pytest.approx(0.975)
    gain = found.found.gain_per_window
    half = 4 * stats.t.ppf(0.9875, 3) * np.sqrt(1.9e-4 / 3 / 10)
    assert gain == pytest.approx((0.036, 0.036 - half, 0.036 + half), abs=1e-12)
    assert found.found.trend is Trend.UNDECIDED


@pytest.mark.parametrize(
    ("scores", "trend"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], Trend.RISING),
        ([0.5, 0.4, 0.3, 0.2, 0.1], Trend.FALLING),
        ([0.5, 0.5001, 0.4999, 0.5, 0.5001], Trend.FLAT),
        ([0.5, 0.53, 0.47, 0.52, 0.5], Trend.UNDECIDED),
    ],
)
def test_tells_whether_progress_has_stopped(scores, trend):
    found = outlook(run(scores, error=0.0001), window=WINDOW)
    assert found.found.trend is trend
    assert found.stopped == (trend in (Trend.FLAT, Trend.FALLING))
    assert found.metrics()["plateau/stopped"] == int(found.stopped)


def test_no_verdict_before_the_window_is_full():
    assert outlook(run([0.5] * 4), window=WINDOW) is None
    assert outlook([], window=WINDOW) is None
    assert outlook([metrics(1), metrics(2)], window=WINDOW) is None


def test_says_how_many_evaluations_a_verdict_needs():
    assert waiting(run([0.5] * 4), window=WINDOW).endswith(
        "after 5 scheduled evaluations; there are 4"
    )
    assert waiting(run([0.5] * 5), window=WINDOW) is None
    assert waiting([metrics(1)], window=WINDOW) is None


def test_every_look_is_counted_and_paid_for():
    """Seven evaluations: windows end at the fifth, sixth and seventh; 1 − .05 / (3 · 4) = .99583."""
    found = outlook(run([0.5] * 7), window=WINDOW)
    assert (found.first_step, found.last_step, found.look) == (2, 6, 3)
    assert found.found.level == pytest.approx(1 - 0.05 / 12)


def test_evaluations_off_the_schedule_do_not_count():
    """A last step that is evaluated only because it is the last changes no later verdict."""
    rows = run([0.5, 0.51, 0.52, 0.53])
    extra = line(4, 0.9, scheduled=0)
    rest = [line(5, 0.54), line(6, 0.55)]
    assert outlook([*rows, extra], window=WINDOW) is None
    assert outlook([*rows, extra, *rest], window=WINDOW).found == (
        outlook([*rows, line(4), *rest], window=WINDOW).found
    )


def test_an_added_wave_begins_a_new_window_and_looks_go_on():
    """The switch is recorded with the evaluation at step 5: that one still belongs to the old."""
    rows = run([0.5] * 6)
    rows[5] |= {"width/switch_widest": 64}
    assert outlook(rows, window=WINDOW) is None
    more = [line(i, 0.5) for i in range(6, 11)]
    assert outlook([*rows, *more[:4]], window=WINDOW) is None
    found = outlook([*rows, *more], window=WINDOW)
    assert (found.first_step, found.look) == (6, 3)


def test_what_the_window_saw_by_hand():
    """Steps 1 to 4 of the window. Last doubling .75 − .70; 50 groups of 40 prompts: 1.25 each."""
    rows = run([0.5] * 5)
    rows[4] |= {"groups/solved_none": 0.3, "groups/solved_all": 0.4}
    found = outlook([line(0, 0.5), *rows[1:]], window=WINDOW).seen
    assert found.all_wrong == pytest.approx((3 * 0.1 + 0.3) / 4)
    assert found.all_right == pytest.approx((3 * 0.2 + 0.4) / 4)
    assert found.last_doubling == pytest.approx(0.05)
    assert found.widest == 8
    assert found.visits == pytest.approx(40 / 40)  # step 0 sampled nothing for training


def test_groups_that_may_grow_count_at_their_widest():
    rows = run([0.5] * 5, **{"groups/unsolved_at_max": 1})
    assert outlook(rows, window=WINDOW).seen.all_wrong == pytest.approx(0.1)
    rows = run([0.5] * 5, **{"groups/unsolved_at_max": 0})
    assert outlook(rows, window=WINDOW).seen.all_wrong == 0.0


LITTLE = Seen(0.0, 0.0, 0.0, 16, 1.0)


@pytest.mark.parametrize(
    ("trend", "seen", "wanted"),
    [
        (Trend.RISING, Seen(1, 1, 1, 16, 99), Next.STEPS),
        (Trend.UNDECIDED, Seen(1, 1, 1, 16, 99), Next.STEPS),
        (Trend.FLAT, Seen(ALL_WRONG, 0.9, FOUND, 16, 99), Next.WIDTH),
        (Trend.FALLING, Seen(ALL_WRONG, 0, FOUND, 16, 1), Next.WIDTH),
        (Trend.FLAT, Seen(0.9 * ALL_WRONG, 0, FOUND, 16, 1), Next.NOTHING),
        (Trend.FLAT, Seen(0.9, 0, 0.9 * FOUND, 16, 1), Next.NOTHING),
        (Trend.FLAT, Seen(0.9, SOLVED, 0.9 * FOUND, 16, 1), Next.PROMPTS),
        (Trend.FLAT, LITTLE._replace(all_right=SOLVED), Next.PROMPTS),
        (Trend.FLAT, LITTLE._replace(visits=VISITS), Next.PROMPTS),
        (Trend.FLAT, LITTLE, Next.NOTHING),
        (Trend.FLAT, Seen(0.5, None, None, None, None), Next.WIDTH),
        (Trend.FLAT, Seen(None, None, None, None, None), Next.NOTHING),
    ],
)
def test_the_rule_case_by_case(trend, seen, wanted):
    assert suggest(trend, seen) is wanted


def test_the_line_names_the_numbers_that_decided():
    rows = run([0.5, 0.5001, 0.4999, 0.5, 0.5001], error=0.0001)
    text = describe(outlook(rows, window=WINDOW))
    assert text.startswith("held-out progress has stopped: +0.0000 [−0.0005, +0.0006] over steps")
    assert (
        "level 0.975 at look 1; the records suggest more width (10.0% of groups all wrong" in text
    )
    assert "the last doubling to 8 solved 5.0% of prompts" in text


def test_window_comes_from_the_settings():
    defaults = PlateauSettings()
    assert window_of({}) == (defaults.window, defaults.smallest_gain, defaults.level)
    assert window_of({"plateau": {"window": 8, "smallest_gain": 0.1, "level": 0.9}}) == (
        8,
        0.1,
        0.9,
    )
