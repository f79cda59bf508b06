"""Which groups have something to teach: dynamic sampling's rule, on raw scores.

Scores are those of the configured reward source before any shaping: a length term puts spread
among answers that are all wrong, and a filter that saw it would train the model to be brief.
"""

from typing import Literal, NamedTuple, assert_never

from torch import Tensor

from brorl.algo.checks import group_sizes, group_sums, has_spread, require_rows
from brorl.errors import ShapeError

FilterMetric = Literal["score", "accuracy"]


class GroupOutcomes(NamedTuple):
    """One entry a group. none, some and all divide the groups that have a row at all."""

    size_P: Tensor  # int64: rows
    right_P: Tensor  # int64: rows with score 1
    none_P: Tensor  # bool: no row right (part credit is not right)
    some_P: Tensor  # bool: some right, some not
    all_P: Tensor  # bool: every row right
    flat_P: Tensor  # bool: the same part credit in every row, a case of none
    kept_P: Tensor  # bool: goes into the update


class OutcomeCounts(NamedTuple):
    """Groups counted. The three solved_ add up to `groups`; so do kept and the dropped_."""

    groups: int  # with at least one row
    solved_none: int
    solved_some: int
    solved_all: int
    kept: int
    dropped_right: int  # every row right
    dropped_wrong: int  # no row right
    dropped_flat: int  # no row right, and the same part credit in each


def group_outcomes(
    scores_B: Tensor, group_B: Tensor, *, n_groups: int, metric: FilterMetric
) -> GroupOutcomes:
    """Sort groups into solved by none, some or all, and say which are kept.

        score     kept where two scores differ (part credit teaches too)
        accuracy  kept where 0 < right < size

    With scores of only 0 and 1 the two are the same. A group of one is never kept.

    Args:
        scores_B: float [B], in [0, 1], raw. 1 is right, and only 1.
        group_B: int64 [B], in 0 ... n_groups - 1.
        n_groups: P. A group may have lost all its rows to failures; it is in none of the classes.
        metric: see above.

    Raises:
        ShapeError: see `checks.require_rows`; a score outside [0, 1]; an index >= n_groups.
    """
    require_rows("scores", scores_B, group_B)
    if scores_B.numel():
        low, high, top = float(scores_B.min()), float(scores_B.max()), int(group_B.max())
        if low < 0 or high > 1:
            raise ShapeError(f"scores must lie in [0, 1], got {low} ... {high}")
        if top >= n_groups:
            raise ShapeError(f"group indices must be below {n_groups}, got {top}")
    size_P = group_sizes(group_B, n_groups)
    right_P = group_sums((scores_B == 1).long(), group_B, n_groups)
    credit_P = group_sums((scores_B > 0).long(), group_B, n_groups)
    spread_P = has_spread(scores_B, group_B, n_groups)
    none_P = (right_P == 0) & (size_P > 0)
    all_P = (right_P == size_P) & (size_P > 0)
    some_P = (right_P > 0) & (right_P < size_P)
    flat_P = none_P & ~spread_P & (credit_P > 0)
    match metric:
        case "score":
            kept_P = spread_P
        case "accuracy":
            kept_P = some_P
        case _:
            assert_never(metric)
    return GroupOutcomes(size_P, right_P, none_P, some_P, all_P, flat_P, kept_P)


def outcome_counts(outcomes: GroupOutcomes) -> OutcomeCounts:
    """What to log, and what to tell a user whose run finds no group to train on."""
    o = outcomes
    return OutcomeCounts(
        groups=int((o.size_P > 0).sum()),
        solved_none=int(o.none_P.sum()),
        solved_some=int(o.some_P.sum()),
        solved_all=int(o.all_P.sum()),
        kept=int(o.kept_P.sum()),
        dropped_right=int((o.all_P & ~o.kept_P).sum()),
        dropped_wrong=int((o.none_P & ~o.kept_P & ~o.flat_P).sum()),
        dropped_flat=int((o.flat_P & ~o.kept_P).sum()),
    )
