"""Many tests at once."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.errors import ShapeError


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values: those at most alpha reject with family-wise error at most alpha.

        sorted ascending, p~(i) = max over j <= i of min(1, (m - j + 1)·p(j))

    Holds under any dependence between the tests.

    Args:
        p_values: float [m], each in [0, 1]. m = 0 gives an empty array.

    Returns:
        float64 [m], in the order given.

    Raises:
        ShapeError: not a vector, or a value outside [0, 1].

    Source:
        Holm 1979, Scandinavian Journal of Statistics 6:65.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ShapeError(f"p-values must be [m] in [0, 1], got {p.tolist()}")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(p.size, 0, -1)))
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return adjusted
