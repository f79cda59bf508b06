"""Which groups are kept and what is counted, by hand and against a loop."""

import numpy as np
import pytest
import torch

from brorl.algo.filtering import group_outcomes, outcome_counts
from brorl.errors import ShapeError

# One group a line: what it is called, its scores, kept by "score", kept by "accuracy".
CASES = [
    ("none", [0.0, 0.0, 0.0], False, False),
    ("some", [0.0, 1.0, 0.0], True, True),
    ("all", [1.0, 1.0], False, False),
    ("flat", [0.5, 0.5, 0.5], False, False),
    ("none", [0.0] + [0.95] * 7, True, False),
    ("some", [0.95, 1.0], True, True),
    ("one right", [1.0], False, False),
    ("one wrong", [0.0], False, False),
    ("flat", [0.5], False, False),
    ("failed", [], False, False),  # every row lost to grader errors
]


def interleaved(seed):
    group = np.repeat(np.arange(len(CASES)), [len(c[1]) for c in CASES])
    scores = np.concatenate([c[1] for c in CASES])
    order = np.random.default_rng(seed).permutation(len(group))
    return torch.tensor(scores[order]), torch.tensor(group[order])


@pytest.mark.parametrize("metric", ["score", "accuracy"])
@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_group(seed, metric):
    """Hand-computed, for rows in any order."""
    scores, group = interleaved(seed)
    got = group_outcomes(scores, group, n_groups=len(CASES), metric=metric)
    assert got.kept_P.tolist() == [c[2 if metric == "score" else 3] for c in CASES]
    assert got.size_P.tolist() == [len(c[1]) for c in CASES]
    assert got.right_P.tolist() == [c[1].count(1.0) for c in CASES]
    assert got.none_P.tolist() == [c[0] in ("none", "flat", "one wrong") for c in CASES]
    assert got.some_P.tolist() == [c[0] == "some" for c in CASES]
    assert got.all_P.tolist() == [c[0] in ("all", "one right") for c in CASES]
    assert got.flat_P.tolist() == [c[0] == "flat" for c in CASES]


@pytest.mark.parametrize(("metric", "kept", "wrong"), [("score", 3, 2), ("accuracy", 2, 3)])
def test_counts(metric, kept, wrong):
    """Hand-computed, and the two sums that must hold."""
    scores, group = interleaved(0)
    got = outcome_counts(group_outcomes(scores, group, n_groups=len(CASES), metric=metric))
    assert got._asdict() == {
        "groups": 9,
        "solved_none": 5,
        "solved_some": 2,
        "solved_all": 2,
        "kept": kept,
        "dropped_right": 2,
        "dropped_wrong": wrong,
        "dropped_flat": 2,
    }
    assert got.solved_none + got.solved_some + got.solved_all == got.groups
    assert got.kept + got.dropped_right + got.dropped_wrong + got.dropped_flat == got.groups


def test_shaping_after_filtering_is_not_seen():
    """Attack: a length term gives an all-wrong group spread; raw scores still drop it."""
    raw, group = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    shaped = raw + torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert not group_outcomes(raw, group, n_groups=1, metric="score").kept_P.any()
    assert group_outcomes(shaped, group, n_groups=1, metric="score").kept_P.all()


def test_one_right_in_512():
    """Hand-computed: kept, however small the share."""
    scores, group = torch.zeros(1024), torch.arange(1024) % 2
    scores[700] = 1.0  # an even row: group 0
    got = group_outcomes(scores, group, n_groups=2, metric="accuracy")
    assert got.kept_P.tolist() == [True, False]
    assert got.right_P.tolist() == [1, 0]


def test_no_row_at_all():
    empty = torch.zeros(0)
    got = outcome_counts(group_outcomes(empty, empty.long(), n_groups=3, metric="score"))
    assert set(got) == {0}


def test_says_what_is_wrong():
    group = torch.tensor([0, 1])
    with pytest.raises(ShapeError, match=r"scores must lie in \[0, 1\], got 0\.0 \.\.\. 1\.5"):
        group_outcomes(torch.tensor([0.0, 1.5]), group, n_groups=2, metric="score")
    with pytest.raises(ShapeError, match="group indices must be below 1, got 1"):
        group_outcomes(torch.tensor([0.0, 1.0]), group, n_groups=1, metric="score")
    with pytest.raises(ShapeError, match="scores must be finite, got nan in row 0"):
        group_outcomes(torch.tensor([float("nan"), 1.0]), group, n_groups=2, metric="score")
