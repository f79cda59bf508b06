"""Fewer rows for the update than were sampled: wide search, narrow update.

Advantages come first, from the whole group; then rows are chosen, and their advantages are not
recomputed. Chosen at random with known chances, the update can be made unbiased; chosen by a
rule, it can't.

Axes:  P groups · B sequences · K rows chosen
"""

from typing import NamedTuple

import torch
from torch import Tensor

from brorl.algo.checks import group_count, require_rows
from brorl.errors import ConfigError, ShapeError


class Cut(NamedTuple):
    """The rows that stay, in their old order, and what each stands for."""

    rows_K: Tensor  # int64 [K], growing: indices into the rows given
    weight_K: Tensor  # float64 [K], >= 1: one over the chance with which the row was chosen


def cut_groups(
    right_B: Tensor, answer_B: Tensor, group_B: Tensor, keys_2B: Tensor, *, keep_per_group: int
) -> Cut:
    """At most `keep_per_group` rows of each group: right ones, then many different wrong ones.

    Right answers take up to half of the places (more where there are too few wrong ones to fill
    the rest), at random among them. The other places go round the distinct wrong answers, one
    row each until all are used or the places are: every answer gives as many rows as the others
    or all it has, and the last, incomplete round goes to answers at random.

    Times `weight_K`, the sum over the rows chosen of anything that was computed from the whole
    group has the sum over the whole group as its mean (Horvitz and Thompson), so the expected
    gradient is that of the whole group, under its own denominator: the tokens or sequences of
    all rows, not of those chosen. Without the weights the cut group pulls right answers up more
    than wrong ones down, and presses rare wrong answers as hard as common ones.

    Args:
        right_B: bool [B].
        answer_B: int64 [B]: equal numbers for equal answers within a group; read for wrong rows.
        group_B: int64 [B], >= 0.
        keys_2B: float64 [2, B], independent and uniform, from a named stream. keys_2B[0] orders
            the rows of a group, keys_2B[1] its answers; an answer's key is its earliest row's.
        keep_per_group: >= 2.

    Raises:
        ConfigError: keep_per_group < 2.
        ShapeError: shapes or dtypes.

    Source:
        Horvitz and Thompson 1952, J. Am. Stat. Assoc. 47.
    """
    if keep_per_group < 2:
        raise ConfigError(f"keep_per_group must be >= 2, got {keep_per_group}")
    if keys_2B.shape != (2, len(group_B)):
        raise ShapeError(f"keys must be [2, {len(group_B)}], got {list(keys_2B.shape)}")
    require_rows("keys", keys_2B[0], group_B)
    if right_B.dtype != torch.bool or right_B.shape != group_B.shape:
        raise ShapeError(f"right must be bool, one per row, got {right_B.dtype} {right_B.shape}")
    if answer_B.dtype != torch.int64 or answer_B.shape != group_B.shape:
        raise ShapeError(
            f"answer must be int64, one per row, got {answer_B.dtype} {answer_B.shape}"
        )
    chance_B = torch.zeros(len(group_B), dtype=torch.float64)
    chosen_B = torch.zeros(len(group_B), dtype=torch.bool)
    for group in range(group_count(group_B)):
        rows = (group_B == group).nonzero()[:, 0]
        right, wrong = rows[right_B[rows]], rows[~right_B[rows]]
        places = min(keep_per_group, len(rows))
        for_right = max(min(len(right), keep_per_group // 2), places - len(wrong))
        if len(right):
            chosen_B[right[keys_2B[0, right].argsort(stable=True)[:for_right]]] = True
            chance_B[right] = for_right / len(right)
        if len(wrong):
            took, chance = _spread(answer_B[wrong], keys_2B[:, wrong], places - for_right)
            chosen_B[wrong[took]] = True
            chance_B[wrong] = chance
    rows_K = chosen_B.nonzero()[:, 0]
    return Cut(rows_K=rows_K, weight_K=1.0 / chance_B[rows_K])


def random_rows(group_B: Tensor, keys_B: Tensor, *, keep_per_group: int) -> Cut:
    """`keep_per_group` rows of each group, every row with the same chance: what a rule must beat.

    Args:
        group_B: int64 [B], >= 0.
        keys_B: float64 [B], independent and uniform, from a named stream.
        keep_per_group: >= 2; smaller groups are kept whole.

    Raises:
        ConfigError: keep_per_group < 2.
        ShapeError: see `checks.require_rows`.
    """
    if keep_per_group < 2:
        raise ConfigError(f"keep_per_group must be >= 2, got {keep_per_group}")
    require_rows("keys", keys_B, group_B)
    chosen, weight = [], []
    for group in range(group_count(group_B)):
        rows = (group_B == group).nonzero()[:, 0]
        m = min(keep_per_group, len(rows))
        chosen.append(rows[keys_B[rows].argsort(stable=True)[:m]])
        weight.append(torch.full((m,), len(rows) / max(m, 1), dtype=torch.float64))
    if not chosen:
        return Cut(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64))
    order = torch.cat(chosen).argsort()
    return Cut(torch.cat(chosen)[order], torch.cat(weight)[order])


def max_variance_rows(rewards_B: Tensor, group_B: Tensor, *, keep_per_group: int) -> Tensor:
    """The rows of each group whose rewards have the largest variance: int64 [K], growing.

    They are some of the highest and some of the lowest; the split is found by trying all. With
    rewards 0 and 1 it is half of each as far as there are. The choice is fixed by the rewards
    (equal rewards by row number), so rows left out have no chance at all and no weight makes the
    update unbiased.

    Args:
        rewards_B: float [B], finite.
        group_B: int64 [B], >= 0.
        keep_per_group: >= 2; smaller groups are kept whole.

    Raises:
        ConfigError: keep_per_group < 2.
        ShapeError: see `checks.require_rows`.

    Source:
        Xu et al. 2025 (PODS), arXiv:2504.13818, max-variance down-sampling.
    """
    if keep_per_group < 2:
        raise ConfigError(f"keep_per_group must be >= 2, got {keep_per_group}")
    require_rows("rewards", rewards_B, group_B)
    chosen = []
    for group in range(group_count(group_B)):
        rows = (group_B == group).nonzero()[:, 0]
        m = min(keep_per_group, len(rows))
        rows = rows[rewards_B[rows].argsort(stable=True)]
        value = rewards_B[rows].double()
        value = value - value[:1]  # from the lowest: squares of large rewards would drown the rest
        sums, squares = (torch.cat([x.new_zeros(1), x.cumsum(0)]) for x in (value, value.square()))
        low = torch.arange(m + 1)  # how many of the lowest; the rest from the top
        top = len(rows) - (m - low)
        total = sums[low] + sums[-1] - sums[top]
        square = squares[low] + squares[-1] - squares[top]
        best = int((m * square - total.square()).argmax()) if m else 0
        chosen.append(torch.cat([rows[:best], rows[len(rows) - (m - best) :]]))
    return torch.cat(chosen).sort().values if chosen else torch.zeros(0, dtype=torch.int64)


def _spread(answer_n: Tensor, keys_2n: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Rows taken (bool [n]) and each row's chance (float64 [n]) for rows of wrong answers.

    `level` complete rounds fit; the answers that have more than `level` rows share the rest.
    """
    _, answer_n, count_D = answer_n.unique(return_inverse=True, return_counts=True)
    level = 0
    while int(count_D.clamp(max=level + 1).sum()) <= places and level < int(count_D.max()):
        level += 1
    quota_D = count_D.clamp(max=level)
    rest, open_D = places - int(quota_D.sum()), count_D > level
    share = rest / int(open_D.sum()) if rest else 0.0
    chance_D = (quota_D + share * open_D.double()) / count_D

    earliest_D = torch.full_like(count_D, len(answer_n))
    earliest_D.scatter_reduce_(0, answer_n, torch.arange(len(answer_n)), "amin")
    answer_key_D = torch.where(open_D, keys_2n[1, earliest_D], torch.inf)
    quota_D[answer_key_D.argsort(stable=True)[:rest]] += 1

    order = keys_2n[0].argsort(stable=True)
    order = order[answer_n[order].argsort(stable=True)]  # by answer, within it by key
    start_D = count_D.cumsum(0) - count_D
    rank_n = torch.empty_like(order)
    rank_n[order] = torch.arange(len(order)) - start_D[answer_n[order]]
    return rank_n < quota_D[answer_n], chance_D[answer_n]
