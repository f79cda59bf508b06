"""Best-of-n under a proxy, and where optimising the proxy begins to hurt the true reward.

From recorded rollouts with two scores each: the proxy that selects (or trains) and the true one.
Picking the best of n by the proxy is a policy with a known density over proxy quantiles, so the
true reward can be followed, and its turning point found, without sampling anything new.

Axes:  K problems · M recorded samples of a problem · D distinct proxy values of a problem
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.errors import ShapeError
from brorl.stats.pass_at_k import pass_hat_k

Float = NDArray[np.float64]
Pair = tuple[ArrayLike, ArrayLike]


class Selection(StrEnum):
    """How many samples the proxy chooses from."""

    BEST_OF_N = "best_of_n"  # n samples; theta = n >= 1, not necessarily whole
    BEST_OF_POISSON = "best_of_poisson"  # 1 + Poisson(mu) samples; theta = mu >= 0


class Ladder(NamedTuple):
    """One problem's samples by rising proxy, equal proxies together."""

    edges_D1: NDArray[np.int64]  # [D + 1] counts of samples up to each step, from 0 to M
    true_D: Float  # mean true reward of each step


def ladder(proxy_M: ArrayLike, true_M: ArrayLike) -> Ladder:
    """Sort one problem's samples by proxy; ties form one step, so a pick among them is fair.

    Raises:
        ShapeError: not two finite vectors of one length M >= 1.
    """
    proxy, true = np.asarray(proxy_M, dtype=np.float64), np.asarray(true_M, dtype=np.float64)
    if proxy.shape != true.shape or proxy.ndim != 1 or not proxy.size:
        raise ShapeError(
            f"need proxy and true [M], M >= 1, got {list(proxy.shape)} and {list(true.shape)}"
        )
    if not (np.isfinite(proxy).all() and np.isfinite(true).all()):
        raise ShapeError("proxy and true rewards must be finite")
    _, step_M = np.unique(proxy, return_inverse=True)
    sizes_D = np.bincount(step_M)
    edges = np.concatenate([[0], np.cumsum(sizes_D)])
    return Ladder(edges, np.bincount(step_M, weights=true) / sizes_D)


def best_of(steps: Ladder, n: int) -> float:
    """Expected true reward of the highest-proxy sample among n drawn without replacement.

        sum over steps d of true_d · [C(edge_d, n) - C(edge_{d-1}, n)] / C(M, n)

    Unbiased for fresh draws of n. With 0/1 scores and proxy = true it is pass@n.

    Args:
        steps: of one problem with M samples.
        n: 1 <= n <= M.

    Raises:
        ShapeError: n outside [1, M]: no unbiased estimate exists.
    """
    cdf_D1 = pass_hat_k(steps.edges_D1, int(steps.edges_D1[-1]), n)
    return float(np.diff(cdf_D1) @ steps.true_D)


def expected_reward(steps: Ladder, theta: float, *, selection: Selection) -> float:
    """f(theta): the true reward when the proxy's quantile u has the density of the selection.

    The recorded samples stand for the distribution: step d covers the quantiles from
    edge_{d-1}/M to edge_d/M. Best-of-n has CDF u**n, Best-of-Poisson u·exp(mu·(u - 1)).
    """
    _check_theta(theta, selection)
    u_D1 = steps.edges_D1 / steps.edges_D1[-1]
    if selection is Selection.BEST_OF_N:
        cdf = np.power(u_D1, theta)
    else:
        cdf = u_D1 * np.exp(theta * (u_D1 - 1))
    return float(np.diff(cdf) @ steps.true_D)


def residual(steps: Ladder, theta: float, *, selection: Selection) -> float:
    """f'(theta) = E over u of true(u)·psi(u), psi the score d/dtheta log density.

    For a step function the integral of true·density·psi is exact: the density times its score
    is the derivative of the density, so each step contributes true_d times the change of

        d/dtheta u**n = u**n · log u,      d/dmu u·exp(mu(u - 1)) = u(u - 1)·exp(mu(u - 1))

    Source:
        HedgeTune, arXiv:2506.19248 (read through notes, not first-hand): the residual is the
        score-weighted true reward, and its root is the hacking threshold.
    """
    _check_theta(theta, selection)
    u = steps.edges_D1 / steps.edges_D1[-1]
    if selection is Selection.BEST_OF_N:
        slope = np.zeros_like(u)
        slope[1:] = np.power(u[1:], theta) * np.log(u[1:])  # 0·log 0 = 0 at u = 0
    else:
        slope = u * (u - 1) * np.exp(theta * (u - 1))
    return float(np.diff(slope) @ steps.true_D)


class Shape(StrEnum):
    """What the true reward does as the proxy is optimised harder, up to the limit looked at."""

    RISES = "rises"  # no threshold in the range
    FALLS = "falls"  # hurts from the start
    PEAKS = "peaks"  # rises, then falls: the threshold is the peak
    DIPS = "dips"  # falls, then rises
    FLAT = "flat"  # the proxy tells nothing about the true reward


class Threshold(NamedTuple):
    """The hacking threshold: the theta after which more optimisation lowers the true reward."""

    shape: Shape
    theta: float | None  # the peak; None unless the shape is PEAKS
    reward_at_start: float
    reward_at_threshold: float | None
    reward_at_end: float


def hacking_threshold(
    problems: Sequence[Pair], *, selection: Selection, theta_max: float, grid: int
) -> Threshold:
    """Find where the mean true reward over problems turns, by bisection on its derivative.

    The derivative is evaluated on a geometric grid from the least theta to theta_max; the first
    change of sign is refined to 1e-10 relative. If the true reward is "totally positive" in the
    proxy there is at most one; where several exist, the first is reported.

    Args:
        problems: (proxy_M, true_M) of each problem; M may differ. Quantiles are per problem.
        selection: the family.
        theta_max: largest n (> 1) or mu (> 0) to look at.
        grid: points of the grid, >= 2.

    Returns:
        Threshold.

    Raises:
        ShapeError: no problem, a bad range, or what `ladder` refuses.

    Source:
        HedgeTune, arXiv:2506.19248; see `residual`.
    """
    steps = [ladder(proxy, true) for proxy, true in problems]
    least = 1.0 if selection is Selection.BEST_OF_N else 0.0
    if not steps or not np.isfinite(theta_max) or theta_max <= least or grid < 2:
        raise ShapeError(
            f"need a problem, theta_max > {least:g} and grid >= 2, got {len(steps)} problems, "
            f"{theta_max} and {grid}"
        )

    def slope(theta: float) -> float:
        return float(np.mean([residual(s, theta, selection=selection) for s in steps]))

    def reward(theta: float) -> float:
        return float(np.mean([expected_reward(s, theta, selection=selection) for s in steps]))

    thetas = least - 1 + np.geomspace(1, theta_max - least + 1, grid)
    signs = np.sign([_quiet(slope(float(t))) for t in thetas])
    moving = np.flatnonzero(signs)
    ends = (reward(least), reward(theta_max))
    if not moving.size:
        return Threshold(Shape.FLAT, None, ends[0], None, ends[1])
    first = signs[moving[0]]
    turned = [i for i in moving if signs[i] != first]
    if not turned:
        return Threshold(Shape.RISES if first > 0 else Shape.FALLS, None, ends[0], None, ends[1])
    if first < 0:
        return Threshold(Shape.DIPS, None, ends[0], None, ends[1])
    before = max(i for i in moving if i < turned[0])
    low, high = float(thetas[before]), float(thetas[turned[0]])
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    peak = (low + high) / 2
    return Threshold(Shape.PEAKS, peak, ends[0], reward(peak), ends[1])


def hacking_rate(proxy_M: ArrayLike, true_M: ArrayLike, n: int) -> float:
    """P(the pick of best-of-n has proxy success but not true success), success being score 1.

    Args:
        proxy_M, true_M: scores in [0, 1] of one problem's samples.
        n: 1 <= n <= M, drawn without replacement.
    """
    proxy, true = np.asarray(proxy_M, dtype=np.float64), np.asarray(true_M, dtype=np.float64)
    return best_of(ladder(proxy, (proxy == 1.0) & (true != 1.0)), n)


def best_of_n_kl_bound(n: float) -> float:
    """Upper bound in nats on KL(best-of-n || base): log n - (n - 1)/n, n >= 1.

    Equal to it where the proxy has no ties. Source: Beirami et al. 2024, arXiv:2401.01879.
    """
    if not n >= 1:
        raise ShapeError(f"need n >= 1, got {n}")
    return float(np.log(n) - (n - 1) / n)


def _quiet(x: float) -> float:
    """Rounding of sums of order 1 is not a slope."""
    return 0.0 if abs(x) < 1e-15 else x


def _check_theta(theta: float, selection: Selection) -> None:
    least = 1.0 if selection is Selection.BEST_OF_N else 0.0
    if not (np.isfinite(theta) and theta >= least):
        raise ShapeError(f"{selection} needs theta >= {least:g}, got {theta}")
