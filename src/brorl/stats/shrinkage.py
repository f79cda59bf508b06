"""Success rates of prompts, shrunk towards what the other prompts say: 0 of 16 is not 0.

Empirical Bayes: rates are draws of a Beta(a, b) that the prompts' own counts decide, by maximum
marginal likelihood, and a prompt's rate given its counts is Beta(a + c, b + n - c). The counts
may come from groups that stopped because of what they had drawn: how a group ended has a
probability (ways) · p^c (1 - p)^(n - c) in which the ways do not depend on p, so the likelihood,
and with it everything here, is that of a fixed n (the stopping rule is ignorable). The plain
c / n is not so lucky; algo.stopping corrects it.

Axes:  P prompts
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import betaln

from brorl.errors import ShapeError

MADE_UP = (1, 2)
"""Right answers and answers of one made-up prompt that the fit adds: where no answer was right (or
none wrong) the likelihood alone would put every rate at 0 (or 1)."""

_LOGIT, _LOG_SIZE = 14.0, (-6.0, 12.0)  # bounds of logit a/(a+b) and of log(a+b)

Rates = NDArray[np.float64]


class Prior(NamedTuple):
    """The fitted Beta(a, b)."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """a / (a + b)."""
        return self.a / (self.a + self.b)


class Posterior(NamedTuple):
    """Beta(a_P, b_P), one a prompt."""

    a_P: Rates
    b_P: Rates

    @property
    def mean_P(self) -> Rates:
        """(a + c) / (a + b + n)."""
        return np.asarray(self.a_P / (self.a_P + self.b_P))

    def all_right(self, n: int) -> Rates:
        """E[p^n] = B(a + n, b) / B(a, b), [P]: n more answers would all be right."""
        return np.asarray(np.exp(betaln(self.a_P + n, self.b_P) - betaln(self.a_P, self.b_P)))

    def all_wrong(self, n: int) -> Rates:
        """E[(1 - p)^n], [P]: n more answers would all be wrong."""
        return np.asarray(np.exp(betaln(self.a_P, self.b_P + n) - betaln(self.a_P, self.b_P)))

    def fewer_than(self, k: int, n: int) -> Rates:
        """P(fewer than k of n more answers are right), [P]: a beta-binomial tail."""
        base = betaln(self.a_P, self.b_P)
        total = np.zeros_like(self.a_P)
        for c in range(min(k, n + 1)):
            ways = -betaln(c + 1, n - c + 1) - np.log(n + 1)
            total += np.exp(ways + betaln(self.a_P + c, self.b_P + n - c) - base)
        return total

    def variance(self) -> Rates:
        """E[p (1 - p)] = a b / ((a + b)(a + b + 1)), [P]: of one reward of 0 or 1."""
        size = self.a_P + self.b_P
        return np.asarray(self.a_P * self.b_P / (size * (size + 1)))


def fit_prior(right_P: ArrayLike, total_P: ArrayLike, *, start: Prior | None = None) -> Prior:
    """Beta(a, b) that maximises sum over prompts of log B(a + c, b + n - c) / B(a, b).

    Args:
        right_P: int [P], right answers of each prompt.
        total_P: int [P], >= 1, answers of each prompt.
        start: where the search begins; by default at the pooled mean and a + b = 1.

    Raises:
        ShapeError: no prompt, other shapes, or counts outside 0 <= right <= total.

    Source:
        Robbins 1956 (empirical Bayes); the beta-binomial of Skellam 1948.
    """
    right, total = _checked(right_P, total_P)
    pairs, times = np.unique(
        np.vstack([np.column_stack([right, total]), [MADE_UP]]), axis=0, return_counts=True
    )
    c, n = pairs[:, 0], pairs[:, 1]

    def loss(x: NDArray[np.float64]) -> float:
        a, b = _beta(x)
        return -float(times @ (betaln(a + c, b + n - c) - betaln(a, b)))

    mean = (right.sum() + MADE_UP[0]) / (total.sum() + MADE_UP[1])
    begin = (
        np.array([np.log(mean / (1 - mean)), 0.0])
        if start is None
        else np.array([np.log(start.a / start.b), np.log(start.a + start.b)])
    )
    found = minimize(
        loss, begin, method="L-BFGS-B", bounds=[(-_LOGIT, _LOGIT), _LOG_SIZE], tol=1e-9
    )
    return Prior(*map(float, _beta(found.x)))


def shrink(right_P: ArrayLike, total_P: ArrayLike, prior: Prior) -> Posterior:
    """Each prompt's rate given its own counts and what the others say.

    Raises:
        ShapeError: as fit_prior.
    """
    right, total = _checked(right_P, total_P)
    return Posterior(prior.a + right, prior.b + (total - right))


def _beta(x: NDArray[np.float64]) -> tuple[float, float]:
    size = float(np.exp(x[1]))
    return size / (1 + float(np.exp(-x[0]))), size / (1 + float(np.exp(x[0])))


def _checked(right_P: ArrayLike, total_P: ArrayLike) -> tuple[Rates, Rates]:
    right = np.asarray(right_P, dtype=np.float64)
    total = np.asarray(total_P, dtype=np.float64)
    if right.ndim != 1 or right.shape != total.shape or not right.size:
        raise ShapeError(f"need counts [P], got {list(right.shape)} and {list(total.shape)}")
    if not ((right >= 0) & (right <= total) & (total >= 1)).all():
        raise ShapeError("need 0 <= right <= total >= 1 for every prompt")
    return right, total
