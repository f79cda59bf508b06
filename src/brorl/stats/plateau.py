"""Has progress stopped? A slope with its interval, and a price for looking more than once.

A rule that looks after every evaluation and calls the first flat window a plateau is wrong more
often than its level says. Here look i spends (1 - level) / (i·(i+1)) of the error; over all
looks, however many, that adds up to 1 - level (Bonferroni, so dependence does not matter).

Axes:  S evaluations in the window
"""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from brorl.errors import ShapeError
from brorl.stats.intervals import Interval


class Trend(StrEnum):
    """What a window of evaluations shows."""

    RISING = "rising"  # the whole interval is above 0
    FALLING = "falling"  # the whole interval is below 0
    FLAT = "flat"  # no gain worth having fits into the interval, and none is proven
    UNDECIDED = "undecided"  # neither: more evaluations, or more samples in each, are needed


class Slope(NamedTuple):
    """A fitted slope, score units per step."""

    slope: Interval
    standard_error: float
    df: float


class Plateau(NamedTuple):
    """The trend at one look and the numbers that decided it."""

    trend: Trend
    slope: Slope
    level: float  # of the interval at this look, after the price for looking again
    gain_per_window: Interval  # slope · (last step - first step)


def slope_interval(
    steps_S: ArrayLike, values_S: ArrayLike, *, level: float, least_error: float
) -> Slope:
    """Least-squares slope of values on steps, with Student's interval on S - 2 degrees.

    The residual spread of few points is itself uncertain and may be small by luck, so it is not
    taken below `least_error`, the standard error that one evaluation is known to have.

    Args:
        steps_S: float [S], not all equal. S >= 3.
        values_S: float [S], e.g. held-out pass@1.
        level: of the interval, in (0, 1).
        least_error: >= 0, value units; 0 takes the residuals at their word.

    Raises:
        ShapeError: other shapes, fewer than 3 points, equal steps, a value that is not finite,
            or a number outside its range.
    """
    x, y = np.asarray(steps_S, dtype=np.float64), np.asarray(values_S, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size < 3:
        raise ShapeError(f"a slope needs 3 points [S], got {list(x.shape)} and {list(y.shape)}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0:
        raise ShapeError("a slope needs finite values at steps that are not all equal")
    if not 0 < level < 1 or not least_error >= 0:
        raise ShapeError(
            f"need level in (0, 1) and least_error >= 0, got {level} and {least_error}"
        )
    centred = x - x.mean()
    width = float(np.square(centred).sum())
    slope = float(centred @ y) / width
    residual = y - y.mean() - slope * centred
    df = x.size - 2
    spread = max(float(np.square(residual).sum()) / df, least_error**2)
    se = float(np.sqrt(spread / width))
    half = float(stats.t.ppf(0.5 + level / 2, df)) * se
    return Slope(Interval(slope, slope - half, slope + half), se, df)


def level_at_look(level: float, look: int) -> float:
    """Level of the interval at look 1, 2, 3, …: 1 - (1 - level) / (look·(look + 1)).

    The errors add up to 1 - level over endless looks, since 1/(i(i+1)) sums to 1.
    """
    if not 0 < level < 1 or look < 1:
        raise ShapeError(f"need level in (0, 1) and look >= 1, got {level} and {look}")
    return 1 - (1 - level) / (look * (look + 1))


def plateau(
    steps_S: ArrayLike,
    values_S: ArrayLike,
    *,
    level: float,
    look: int,
    smallest_gain: float,
    least_error: float,
) -> Plateau:
    """The trend of one window, judged so that many windows may be judged.

    Flat needs evidence too: the upper end of the interval, carried over the window, stays below
    `smallest_gain`. Few or noisy evaluations are undecided, never flat.

    Args:
        steps_S, values_S: the window, oldest first; see slope_interval.
        level: that no look of the whole run errs, in (0, 1).
        look: number of this look in the run, from 1.
        smallest_gain: value units over the window, > 0: a smaller gain is not worth having.
        least_error: see slope_interval.

    Raises:
        ShapeError: as slope_interval and level_at_look, or smallest_gain <= 0.
    """
    if not smallest_gain > 0:
        raise ShapeError(f"need smallest_gain > 0, got {smallest_gain}")
    at_look = level_at_look(level, look)
    fitted = slope_interval(steps_S, values_S, level=at_look, least_error=least_error)
    span = float(np.ptp(np.asarray(steps_S, dtype=np.float64)))
    gain = Interval(*(span * part for part in fitted.slope))
    if gain.low > 0:
        trend = Trend.RISING
    elif gain.high < 0:
        trend = Trend.FALLING
    else:
        trend = Trend.FLAT if gain.high < smallest_gain else Trend.UNDECIDED
    return Plateau(trend, fitted, at_look, gain)
