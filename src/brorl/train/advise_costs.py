"""Seconds a unit of work, from the recorded seconds of a run's steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from brorl.errors import DataError
from brorl.train.advise_records import Timing

_APART = 1.25  # largest over smallest: below, two columns of the clock cannot be told apart

Array = NDArray[np.float64]


class Costs(NamedTuple):
    """Seconds for each unit of work."""

    generate_group: float
    generate_sample: float
    grade_sample: float
    update_step: float
    update_sample: float
    other_step: float
    other_sample: float
    apart: bool  # groups and samples could be told apart


def fit_costs(timings: Sequence[Timing]) -> Costs:
    """Seconds a unit of work, from steps; nothing is negative.

    Raises:
        DataError: no step says what it cost.
    """
    if not timings:
        raise DataError("no step of the window says what it cost: time/* or samples/* are missing")
    t = np.array(timings, dtype=np.float64)
    groups, samples, kept = t[:, 0], t[:, 1], t[:, 2]
    one = np.ones_like(samples)
    apart = bool(_varies(samples / groups))
    generate = _fit([groups, samples] if apart else [samples], t[:, 3])
    update = _fit([one, kept] if _varies(kept) else [kept], t[:, 5])
    other = _fit([one, samples] if _varies(samples) else [samples], t[:, 6])
    return Costs(
        *_two(generate), float(_fit([samples], t[:, 4])[0]), *_two(update), *_two(other), apart
    )


def _varies(values: Array) -> bool:
    return bool(values.min() > 0 and values.max() / values.min() >= _APART)


def _fit(columns: Sequence[Array], seconds: Array) -> Array:
    """Non-negative least squares with every step weighed by its own seconds: relative errors."""
    weight = 1 / np.maximum(seconds, 1e-3 * max(float(seconds.max()), 1e-9))
    scale = np.array([max(float(np.abs(c).max()), 1e-12) for c in columns])
    matrix = np.stack(columns, axis=1) / scale
    found, _ = nnls(matrix * weight[:, None], seconds * weight)
    return np.asarray(found / scale)


def _two(values: Array) -> tuple[float, float]:
    """(of the first kind, of a sample); 0 for the first where it was not fitted."""
    return (float(values[0]), float(values[1])) if len(values) == 2 else (0.0, float(values[0]))
