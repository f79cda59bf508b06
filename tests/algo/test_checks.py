"""The door checks and the reductions over ragged groups, by hand."""

import math

import pytest
import torch

from brorl.algo.checks import (
    group_count,
    group_means,
    group_sizes,
    group_sums,
    has_spread,
    quotient,
    require_rows,
)
from brorl.errors import ShapeError

GROUP = torch.tensor([3, 0, 3, 1, 3, 1])  # group 2 is empty
VALUES = torch.tensor([-5.0, 2.0, -5.0, 0.25, -4.0, 0.25])


def test_reductions_by_hand():
    """Hand-computed; negative values, so that a zero start of a maximum would show."""
    assert (group_count(GROUP), group_count(GROUP[:0])) == (4, 0)
    assert group_sizes(GROUP, 5).tolist() == [1, 2, 0, 3, 0]
    assert group_sums(VALUES, GROUP, 5).tolist() == [2.0, 0.5, 0.0, -14.0, 0.0]
    want = [2.0, 0.25, 0.0, -14 / 3, 0.0]
    assert group_means(VALUES, GROUP, 5).tolist() == pytest.approx(want)
    assert has_spread(VALUES, GROUP, 5).tolist() == [False, False, False, True, False]


def test_spread_is_decided_by_equality():
    """Hand-computed: one unit in the last place is spread; a mean that rounds is none."""
    one_ulp = torch.tensor([0.95, 0.95, math.nextafter(0.95, 1)], dtype=torch.float64)
    group = torch.zeros(3, dtype=torch.int64)
    assert has_spread(one_ulp, group, 1).all()
    for flat in (0.1, -0.1):
        assert not has_spread(torch.tensor([flat] * 3), group, 1).any()


def test_quotient():
    """Hand-computed; nothing over nothing is 0, and something over nothing is a mistake."""
    assert quotient(3.0, 4) == 0.75
    assert quotient(0.0, 0) == 0.0
    for total, count in ((1.0, 0), (0.0, -1), (1.0, -2)):
        with pytest.raises(ShapeError, match=f"need a positive count to divide {total} by"):
            quotient(total, count)


def test_rows_say_what_is_wrong():
    with pytest.raises(ShapeError, match=r"x must be finite, got inf in row 1"):
        require_rows("x", torch.tensor([0.0, math.inf]), torch.tensor([0, 0]))
    with pytest.raises(
        ShapeError, match=r"must be 1-d and equally long, got \[1, 2\] and \[1, 2\]"
    ):
        require_rows("x", torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int64))
    require_rows("x", torch.zeros(0), torch.zeros(0, dtype=torch.int64))
