"""Slopes against scipy, and the error of a rule that looks after every evaluation."""

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.plateau import Trend, level_at_look, plateau, slope_interval


@pytest.mark.parametrize("seed", range(3))
def test_slope_matches_scipy(seed):
    """Oracle."""
    rng = generator(seed, "slope")
    x, y = np.sort(rng.random(9)) * 100, rng.random(9)
    want = stats.linregress(x, y)
    got = slope_interval(x, y, level=0.9, least_error=0.0)
    half = stats.t.ppf(0.95, 7) * want.stderr
    assert got.slope == pytest.approx((want.slope, want.slope - half, want.slope + half))
    assert (got.standard_error, got.df) == pytest.approx((want.stderr, 7))


def test_three_points_in_a_line_by_luck_are_not_certain():
    """By hand: residuals 0; with an error of 0.1 an evaluation, SE = 0.1 / sqrt(2) a step."""
    lucky = slope_interval([0, 1, 2], [0.1, 0.2, 0.3], level=0.95, least_error=0.0)
    assert lucky.standard_error == pytest.approx(0, abs=1e-15)
    honest = slope_interval([0, 1, 2], [0.1, 0.2, 0.3], level=0.95, least_error=0.1)
    assert honest.standard_error == pytest.approx(0.1 / np.sqrt(2))
    assert honest.slope.low < 0 < honest.slope.high


def test_the_price_of_all_looks_adds_up():
    """Identity: the errors spent over 1,000 looks are (1 - level)·(1 - 1/1001)."""
    spent = sum(1 - level_at_look(0.9, i) for i in range(1, 1001))
    assert spent == pytest.approx(0.1 * (1 - 1 / 1001))
    assert level_at_look(0.95, 1) == pytest.approx(0.975)


def looked_at(values, corrected):
    """Look after every evaluation of a run at the last 8; the trends seen."""
    steps = np.arange(len(values)) * 10.0
    for look, end in enumerate(range(8, len(values) + 1), start=1):
        yield plateau(
            steps[end - 8 : end],
            values[end - 8 : end],
            level=0.9,
            look=look if corrected else 1,
            smallest_gain=0.05,
            least_error=0.0,
        ).trend


def test_a_level_run_is_seldom_said_to_move_however_often_one_looks():
    """Statistical: 300 runs without any trend, 33 looks each: at most 10 % + 4 standard errors
    are ever called rising or falling. Without the price for looking it is more than twice that."""
    rng, wrong = generator(1, "looks"), np.zeros(2)
    for _ in range(300):
        values = 0.5 + 0.01 * rng.normal(size=40)
        for i, corrected in enumerate((True, False)):
            wrong[i] += any(
                t in (Trend.RISING, Trend.FALLING) for t in looked_at(values, corrected)
            )
    limit = 0.1 + 4 * np.sqrt(0.09 / 300)
    assert wrong[0] / 300 <= limit
    assert wrong[1] / 300 > 2 * limit


def test_a_run_that_gains_is_never_called_flat_at_that_level():
    """Statistical: the true gain is the smallest worth having; "flat" at any look in at most
    10 % + 4 errors of 300 runs."""
    rng, wrong = generator(2, "looks"), 0
    for _ in range(300):
        values = 0.3 + 0.05 / 70 * np.arange(40) * 10 + 0.01 * rng.normal(size=40)
        wrong += Trend.FLAT in looked_at(values, True)
    assert wrong / 300 <= 0.1 + 4 * np.sqrt(0.09 / 300)


@pytest.mark.parametrize(
    ("slope", "noise", "want"),
    [
        (0.002, 0.003, Trend.RISING),
        (-0.002, 0.003, Trend.FALLING),
        (0.0, 0.003, Trend.FLAT),
        (0.0, 0.2, Trend.UNDECIDED),
    ],
)
def test_clear_cases(slope, noise, want):
    """By construction: signal and noise far apart on both sides."""
    steps = np.arange(20) * 10.0
    values = 0.5 + slope * steps + noise * generator(3, "clear").normal(size=20)
    got = plateau(steps, values, level=0.95, look=3, smallest_gain=0.05, least_error=0.0)
    assert got.trend is want
    assert got.level == pytest.approx(1 - 0.05 / 12)
    assert got.gain_per_window == pytest.approx(tuple(190 * x for x in got.slope.slope))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps_S": [1, 2]}, r"3 points \[S\], got \[2\] and \[3\]"),
        ({"steps_S": [2, 2, 2]}, "not all equal"),
        ({"values_S": [1, np.nan, 2]}, "finite values"),
        ({"level": 95}, "got 95 and 1"),
        ({"look": 0}, "got 0.95 and 0"),
        ({"smallest_gain": 0.0}, "smallest_gain > 0, got 0.0"),
        ({"least_error": -1.0}, "least_error >= 0, got"),
    ],
)
def test_refuses(change, message):
    good = {
        "steps_S": [0, 1, 2],
        "values_S": [0.1, 0.2, 0.1],
        "level": 0.95,
        "look": 1,
        "smallest_gain": 0.01,
        "least_error": 0.0,
    }
    with pytest.raises(ShapeError, match=message):
        plateau(**(good | change))
