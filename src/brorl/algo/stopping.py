"""Estimates that stay unbiased although the group stopped because of what it had drawn.

A group that stops at its k-th right answer has too many right for its size: c / n is biased
upwards. What is not biased is the first sample, which is drawn whatever happens, and so is its
mean given all that is known at the end (Rao and Blackwell), for samples are exchangeable within
the part before the last wave. With b samples before the last wave, m in it, and c right in all,
the number t of right ones before it has

    P(t | c) proportional to C(b, t) · C(m, c - t),   t < stop_right

because the last wave was drawn at all. P(first sample right) is E[t] / b. For waves of one
sample and c = k it is (k - 1) / (n - 1), the classical estimate of inverse sampling; without
stopping it is c / n.

Axes:  P groups · B sequences
"""

from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

from brorl.algo.checks import group_means, group_sizes, group_sums, require_rows
from brorl.errors import ConfigError, ShapeError


class FirstSamples(NamedTuple):
    """Chances of what the first one or two samples were, given how the group ended. Exact."""

    right: Fraction  # the first is right
    right_right: Fraction  # the first two are right
    right_wrong: Fraction  # the first is right and the second is not; as likely as the reverse
    wrong_wrong: Fraction  # the first two are not right


@lru_cache(maxsize=65536)
def first_samples(right: int, size: int, before: int, *, stop_right: int) -> FirstSamples:
    """What the first two samples of one group were, in chances given its counts at the end.

    Args:
        right: c, right answers in all.
        size: n >= 1, samples in all (lost ones left out, here and below).
        before: b, samples before the last wave drawn; 0 where there was one wave, and all of
            `size` where the last wave was lost whole.
        stop_right: right answers at which a group stops, >= 1.

    Returns:
        FirstSamples. The pair chances are 0 for groups of one, and where a group that stops at
        one right answer had lost all but one sample when it went on.

    Raises:
        ConfigError: stop_right < 1.
        ShapeError: counts that the rule can't end with.

    Source:
        Haldane 1945, Biometrika 33 (inverse sampling); Girshick, Mosteller, Savage 1946, Ann.
        Math. Stat. 17 (counting paths to a stopping point).
    """
    b, _, ways = _ways(right, size, before, stop_right)
    total = sum(ways.values())

    def mean(numerator: dict[int, int], denominator: int) -> Fraction:
        weighted = sum(ways[t] * numerator[t] for t in ways)
        return Fraction(weighted, total * denominator) if denominator else Fraction(0)

    pairs = b * (b - 1)
    return FirstSamples(
        right=mean({t: t for t in ways}, b),
        right_right=mean({t: t * (t - 1) for t in ways}, pairs),
        right_wrong=mean({t: t * (b - t) for t in ways}, pairs),
        wrong_wrong=mean({t: (b - t) * (b - t - 1) for t in ways}, pairs),
    )


def unbiased_rate(right_P: Tensor, size_P: Tensor, before_P: Tensor, *, stop_right: int) -> Tensor:
    """Estimates of the success probability whose mean over all ways a group can end is p.

    With stop_right = 1 the estimate of every group that went beyond its first wave is 0, as
    unbiasedness forces: use at least 2.

    Args:
        right_P: int64 [P], right answers.
        size_P: int64 [P], >= 1, samples.
        before_P: int64 [P], samples before the last wave drawn; 0 where there was one wave.
        stop_right: right answers at which a group stops, >= 1.

    Returns:
        float64 [P], in [0, 1].

    Raises:
        ConfigError: stop_right < 1.
        ShapeError: shapes differ, or counts that the rule can't end with.
    """
    rows = _counts(right_P, size_P, before_P)
    rates = [float(first_samples(c, n, b, stop_right=stop_right).right) for c, n, b in rows]
    return torch.tensor(rates, dtype=torch.float64)


def unbiased_pass_at_k(
    right_P: Tensor, size_P: Tensor, before_P: Tensor, *, k: int, stop_right: int
) -> Tensor:
    """Estimates of 1 - (1 - p)^k whose mean over all ways a group can end is just that.

    1 - P(the first k samples were all wrong | how the group ended). k may exceed the group's
    size: a group that stopped early had a right answer among its first k.

    Args:
        right_P, size_P, before_P, stop_right: as `unbiased_rate`.
        k: >= 1, at most the last total of the waves.

    Returns:
        float64 [P], in [0, 1].

    Raises:
        ConfigError: stop_right or k < 1.
        ShapeError: shapes differ, counts that the rule can't end with, or a group with fewer
            than k samples that didn't stop for its right answers.

    Source:
        Chen et al. 2021, arXiv:2107.03374, eq. 1, which it is for groups that don't stop.
    """
    if k < 1:
        raise ConfigError(f"pass@k needs k >= 1, got {k}")
    rows = _counts(right_P, size_P, before_P)
    miss = [float(_first_k_wrong(c, n, b, k, stop_right)) for c, n, b in rows]
    return 1.0 - torch.tensor(miss, dtype=torch.float64)


def unbiased_baseline(
    rewards_B: Tensor, right_B: Tensor, group_B: Tensor, before_P: Tensor, *, stop_right: int
) -> Tensor:
    """The mean reward of the first sample given how the group ended: a baseline per group.

        b = s · (mean reward of the right) + (1 - s) · (mean reward of the wrong)

    with s of `unbiased_rate`. Its mean is the expected reward, and the expected sum over the
    group of (r - b) · grad log pi is (E[n] - 1) · gradient of the expected reward, for any
    rewards: what the group mean does for a fixed width.

    Args:
        rewards_B: float [B], finite, shaped or not.
        right_B: bool [B]: what the stopping rule counted.
        group_B: int64 [B], >= 0.
        before_P: int64 [P], samples before the last wave drawn; 0 where there was one wave.
        stop_right: right answers at which a group stops, >= 1.

    Returns:
        float64 [P]; 0 for a group without rows.

    Raises:
        ConfigError: stop_right < 1.
        ShapeError: shapes, dtypes, or counts that the rule can't end with.
    """
    g = _grouped(rewards_B, right_B, group_B, before_P, stop_right)
    share_P = g.chances_4P[0]
    return share_P * g.right_mean_P + (1 - share_P) * g.wrong_mean_P


def unbiased_advantages(
    rewards_B: Tensor, right_B: Tensor, group_B: Tensor, before_P: Tensor, *, stop_right: int
) -> Tensor:
    """Advantages under which every prompt weighs the same, however long it was searched.

    The expected sum over the group of A · grad log pi is the gradient of the expected reward,
    exactly and whatever the waves. It is (r_1 - r_2)(grad log pi_1 - grad log pi_2) / 2 of the
    first two samples, averaged over all that the group could have begun with: with c right, w
    wrong, and means over the right R and the wrong W,

        A_i = RW / c · (r_i - mean W) + RR / (c - 1) · (r_i - mean R)   for a right i
        A_i = RW / w · (r_i - mean R) + WW / (w - 1) · (r_i - mean W)   for a wrong i

    where RW, RR, WW are the pair chances of `first_samples`. For a fixed width it is
    (r - mean) / (N - 1). Groups sum to 0. With stop_right = 1 it is 0 for 0/1 rewards in every
    group that went beyond its first wave.

    Args, Raises: as `unbiased_baseline`.

    Returns:
        float64 [B], of the size 1 / N: scale it with `advantages.normalised`.
    """
    g = _grouped(rewards_B, right_B, group_B, before_P, stop_right)
    _, right_right_P, right_wrong_P, wrong_wrong_P = g.chances_4P
    own_P = {True: right_right_P, False: wrong_wrong_P}
    mean_P = {True: g.right_mean_P, False: g.wrong_mean_P}
    count_P = {True: g.right_P, False: g.size_P - g.right_P}
    side = {}
    for right in (True, False):
        across = (right_wrong_P / count_P[right].clamp(min=1))[group_B]
        within = (own_P[right] / (count_P[right] - 1).clamp(min=1))[group_B]
        from_other = rewards_B.double() - mean_P[not right][group_B]
        from_own = rewards_B.double() - mean_P[right][group_B]
        side[right] = across * from_other + within * from_own
    return torch.where(right_B, side[True], side[False])


class _Grouped(NamedTuple):
    """Counts, means and chances of each group."""

    right_P: Tensor
    size_P: Tensor
    right_mean_P: Tensor  # float64; 0 where there is no right one
    wrong_mean_P: Tensor
    chances_4P: Tensor  # float64 [4, P], rows as FirstSamples; 0 for a group without rows


def _grouped(
    rewards_B: Tensor, right_B: Tensor, group_B: Tensor, before_P: Tensor, stop_right: int
) -> _Grouped:
    require_rows("rewards", rewards_B, group_B)
    if right_B.shape != group_B.shape or right_B.dtype != torch.bool:
        raise ShapeError(
            f"right must be bool {list(group_B.shape)}, got {right_B.dtype} {list(right_B.shape)}"
        )
    n_groups = len(before_P)
    if group_B.numel() and int(group_B.max()) >= n_groups:
        raise ShapeError(f"group indices must be below {n_groups}, got {int(group_B.max())}")
    size_P = group_sizes(group_B, n_groups)
    right_P = group_sums(right_B.long(), group_B, n_groups)
    nobody = FirstSamples(*[Fraction(0)] * 4)
    chances = [
        first_samples(c, n, b, stop_right=stop_right) if n else nobody
        for c, n, b in _counts(right_P, size_P, before_P)
    ]
    table = torch.tensor([[float(x) for x in row] for row in chances], dtype=torch.float64)
    return _Grouped(
        right_P=right_P,
        size_P=size_P,
        right_mean_P=group_means(rewards_B[right_B].double(), group_B[right_B], n_groups),
        wrong_mean_P=group_means(rewards_B[~right_B].double(), group_B[~right_B], n_groups),
        chances_4P=table.reshape(n_groups, 4).T,
    )


def _counts(right_P: Tensor, size_P: Tensor, before_P: Tensor) -> list[tuple[int, int, int]]:
    if not (right_P.shape == size_P.shape == before_P.shape and right_P.ndim == 1):
        shapes = [list(x.shape) for x in (right_P, size_P, before_P)]
        raise ShapeError(f"right, size and before must be equally long [P], got {shapes}")
    return list(zip(right_P.tolist(), size_P.tolist(), before_P.tolist(), strict=True))


def _ways(right: int, size: int, before: int, stop_right: int) -> tuple[int, int, dict[int, int]]:
    """b, m, and for each possible t the orders of samples that end so: C(b, t) · C(m, c - t)."""
    if stop_right < 1:
        raise ConfigError(f"stop_right must be >= 1, got {stop_right}")
    if not (0 <= right <= size and size >= 1 and 0 <= before <= size):
        raise ShapeError(
            f"need 0 <= right <= size and 0 <= before <= size >= 1, got {right}, {size}, {before}"
        )
    if before < stop_right:  # one wave, or too few samples left to have stopped: no condition
        return size, 0, {right: comb(size, right)}
    last = size - before
    first, end = max(0, right - last), min(right, before, stop_right - 1)
    ways = {t: comb(before, t) * comb(last, right - t) for t in range(first, end + 1)}
    if not ways:
        raise ShapeError(
            f"a group that stops at {stop_right} right can't have gone on after {before} samples "
            f"and end with {right} right of {size}"
        )
    return before, last, ways


def _first_k_wrong(right: int, size: int, before: int, k: int, stop_right: int) -> Fraction:
    """P(the first k samples were all wrong | how the group ended)."""
    b, m, ways = _ways(right, size, before, stop_right)
    if k > size:
        if right < stop_right:
            raise ShapeError(
                f"need k <= {size}, the samples of a group that found too few, got {k}"
            )
        return Fraction(0)
    in_b, in_m = min(k, b), max(k - b, 0)
    clear = sum(comb(b - in_b, t) * comb(m - in_m, right - t) for t in ways)
    return Fraction(clear, sum(ways.values()))
