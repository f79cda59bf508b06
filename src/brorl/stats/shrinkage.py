"""Success rates of prompts, shrunk towards what the other prompts say: 0 of 16 is not 0.

Empirical Bayes: rates are draws of a Beta(a, b), or of a mixture of two where the counts demand
it (by BIC: many prompts near 0 and many near 1 with few between are no Beta), fitted to the
prompts' own counts by maximum marginal likelihood. A rate given its counts is a mixture of
Beta(a + c, b + n - c).

The counts may come from groups that stopped because of what they had drawn: how a group ended has
a probability (ways) · p^c (1 - p)^(n - c) in which the ways do not depend on p, so the likelihood,
and with it everything here, is that of a fixed n (the stopping rule is ignorable). The plain
c / n is not so lucky; algo.stopping corrects it.

Axes:  P prompts · K components of the mixture
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import betaln, digamma, expit, logsumexp

from brorl.errors import ShapeError

MADE_UP = (1, 2)
"""Right answers and answers of one made-up prompt that the fit adds: where no answer was right (or
none wrong) the likelihood alone would put every rate at 0 (or 1)."""

_LOGIT, _LOG_SIZE = 14.0, (-6.0, 12.0)  # bounds of logit a/(a+b) and of log(a+b)
_SHARE = 6.0  # bound of the logit of the first component's weight
_MORE = 3  # parameters that a second component adds

Rates = NDArray[np.float64]


class Prior(NamedTuple):
    """The fitted mixture; its components in ascending order of their means."""

    weight: tuple[float, ...]  # add up to 1
    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Sum over components of weight · a / (a + b)."""
        return sum(w * a / (a + b) for w, a, b in zip(self.weight, self.a, self.b, strict=True))


class Posterior(NamedTuple):
    """Rates given counts: for each prompt a mixture of Beta(a, b)."""

    weight_KP: Rates
    a_KP: Rates
    b_KP: Rates

    @property
    def mean_P(self) -> Rates:
        """E[p], [P]; for one component (a + c) / (a + b + n)."""
        return self._mix(self.a_KP / (self.a_KP + self.b_KP))

    def all_right(self, n: int) -> Rates:
        """E[p^n], [P]: n more answers would all be right."""
        return self._mix(np.exp(betaln(self.a_KP + n, self.b_KP) - betaln(self.a_KP, self.b_KP)))

    def all_wrong(self, n: int) -> Rates:
        """E[(1 - p)^n], [P]: n more answers would all be wrong."""
        return self._mix(np.exp(betaln(self.a_KP, self.b_KP + n) - betaln(self.a_KP, self.b_KP)))

    def fewer_than(self, k: int, n: int) -> Rates:
        """P(fewer than k of n more answers are right), [P]: beta-binomial tails."""
        base = betaln(self.a_KP, self.b_KP)
        total = np.zeros_like(self.a_KP)
        for c in range(min(k, n + 1)):
            ways = -betaln(c + 1, n - c + 1) - np.log(n + 1)
            total += np.exp(ways + betaln(self.a_KP + c, self.b_KP + n - c) - base)
        return self._mix(total)

    def variance(self) -> Rates:
        """E[p (1 - p)], [P]: of one reward of 0 or 1."""
        size = self.a_KP + self.b_KP
        return self._mix(self.a_KP * self.b_KP / (size * (size + 1)))

    def _mix(self, values_KP: Rates) -> Rates:
        return np.asarray((self.weight_KP * values_KP).sum(axis=0))


def fit_prior(right_P: ArrayLike, total_P: ArrayLike, *, start: Prior | None = None) -> Prior:
    """The mixture that maximises sum over prompts of log sum over k of w_k BB(c | n, a_k, b_k).

    Args:
        right_P: int [P], right answers of each prompt.
        total_P: int [P], >= 1, answers of each prompt.
        start: begin there and keep its number of components; by default one is tried, then two.

    Raises:
        ShapeError: no prompt, other shapes, or counts outside 0 <= right <= total.

    Source:
        Robbins 1956 (empirical Bayes); the beta-binomial of Skellam 1948; Schwarz 1978 (BIC).
    """
    right, total = _checked(right_P, total_P)
    pairs, times = np.unique(
        np.vstack([np.column_stack([right, total]), [MADE_UP]]), axis=0, return_counts=True
    )
    if start is not None:
        return _prior(_climb(pairs, times, _parameters(start))[0])
    mean = float((right.sum() + MADE_UP[0]) / (total.sum() + MADE_UP[1]))
    one, loss = _climb(pairs, times, np.array([_logit(mean), 0.0]))
    low, high = (_logit(float(q)) for q in np.quantile((right + 0.5) / (total + 1), [0.25, 0.75]))
    two, better = _climb(pairs, times, np.array([low, 1.0, high, 1.0, 0.0]))
    demanded = 2 * (loss - better) > _MORE * np.log(times.sum())
    return _prior(two if demanded else one)


def shrink(right_P: ArrayLike, total_P: ArrayLike, prior: Prior) -> Posterior:
    """Each prompt's rate given its own counts and what the others say.

    Raises:
        ShapeError: as fit_prior.
    """
    right, total = _checked(right_P, total_P)
    a_K, b_K = np.array(prior.a)[:, None], np.array(prior.b)[:, None]
    log_KP = np.log(prior.weight)[:, None] + _log_likelihood(a_K, b_K, right, total)
    return Posterior(np.exp(log_KP - logsumexp(log_KP, axis=0)), a_K + right, b_K + (total - right))


def _climb(pairs: Rates, times: NDArray[np.int64], begin: Rates) -> tuple[Rates, float]:
    """The nearest maximum of the marginal likelihood, and its negative logarithm."""
    bounds = [(-_LOGIT, _LOGIT), _LOG_SIZE, (-_LOGIT, _LOGIT), _LOG_SIZE, (-_SHARE, _SHARE)]
    found = minimize(
        _loss,
        begin,
        args=(pairs[:, 0], pairs[:, 1], times),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds[: len(begin)],
        tol=1e-9,
    )
    return np.asarray(found.x), float(found.fun)


def _loss(x: Rates, c: Rates, n: Rates, times: NDArray[np.int64]) -> tuple[float, Rates]:
    """Negative log of the marginal likelihood, and its gradient by the parameters of `_prior`."""
    size_K, odds_K = np.exp(x[1:4:2])[:, None], x[0:4:2][:, None]
    a, b = size_K * expit(odds_K), size_K * expit(-odds_K)
    weight_K = np.array(_weights(x))[:, None]
    log_KP = np.log(weight_K) + _log_likelihood(a, b, c, n)
    whole = logsumexp(log_KP, axis=0)
    share_KP = times * np.exp(log_KP - whole)  # how many prompts each component answers for
    common = digamma(a + b) - digamma(a + b + n)
    by_a = (share_KP * (digamma(a + c) - digamma(a) + common)).sum(axis=1)
    by_b = (share_KP * (digamma(b + n - c) - digamma(b) + common)).sum(axis=1)
    a, b, size = a[:, 0], b[:, 0], size_K[:, 0]
    slopes = np.stack([(by_a - by_b) * a * b / size, by_a * a + by_b * b], axis=1).ravel()
    if len(x) == 5:
        slopes = np.append(slopes, share_KP[0].sum() - weight_K[0, 0] * times.sum())
    return -float(times @ whole), -slopes


def _log_likelihood(a_K: Rates, b_K: Rates, right: Rates, total: Rates) -> Rates:
    """log B(a + c, b + n - c) - log B(a, b), [K, P]: the ways are left out."""
    return np.asarray(betaln(a_K + right, b_K + total - right) - betaln(a_K, b_K))


def _prior(x: Rates) -> Prior:
    """From (logit mean, log size) of each component and, of two, the logit of the weight."""
    parts = sorted(
        (float(logit), float(size), weight)
        for (logit, size), weight in zip(x[:4].reshape(-1, 2), _weights(x), strict=True)
    )
    a = tuple(float(np.exp(s) / (1 + np.exp(-m))) for m, s, _ in parts)
    b = tuple(float(np.exp(s) / (1 + np.exp(m))) for m, s, _ in parts)
    return Prior(tuple(w for *_, w in parts), a, b)


def _weights(x: Rates) -> list[float]:
    return [1.0] if len(x) < 5 else [float(1 / (1 + np.exp(-x[4]))), float(1 / (1 + np.exp(x[4])))]


def _parameters(prior: Prior) -> Rates:
    parts = [[np.log(a / b), np.log(a + b)] for a, b in zip(prior.a, prior.b, strict=True)]
    tail = [_logit(prior.weight[0])] if len(parts) == 2 else []
    return np.array([*np.ravel(parts), *tail], dtype=np.float64)


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _checked(right_P: ArrayLike, total_P: ArrayLike) -> tuple[Rates, Rates]:
    right = np.asarray(right_P, dtype=np.float64)
    total = np.asarray(total_P, dtype=np.float64)
    if right.ndim != 1 or right.shape != total.shape or not right.size:
        raise ShapeError(f"need counts [P], got {list(right.shape)} and {list(total.shape)}")
    if not ((right >= 0) & (right <= total) & (total >= 1)).all():
        raise ShapeError("need 0 <= right <= total >= 1 for every prompt")
    return right, total
