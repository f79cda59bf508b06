"""The cut by exhaustion over all orders of its keys; the max-variance subset by trying all."""

import itertools
import statistics
from fractions import Fraction

import pytest
import torch

from brorl.algo.selection import cut_groups, max_variance_rows, random_rows
from brorl.errors import ConfigError, ShapeError

# Answers of the wrong rows of one group (None: a right row), and the places for it.
GROUPS = [
    ([None, None, None, 1, 2], 2),
    ([None, None, 1, 1, 1, 2], 4),
    ([None, 1, 1, 1, 2, 3], 4),
    ([None, None, None, None, 5], 3),
    ([1, 1, 1, 2, 3], 3),
    ([1, 1, 2, 2, 3], 4),
    ([7, 7, 8, 9, None], 3),
    ([None, None, None, 3], 9),
]


def tensors(answers):
    right = torch.tensor([a is None for a in answers])
    return right, torch.tensor([0 if a is None else a for a in answers])


def all_keys(answers):
    """Every order of the rows times every order of the answers, as keys: equally likely."""
    earliest = [i for i, a in enumerate(answers) if a is not None and a not in answers[:i]]
    for rows in itertools.permutations(range(len(answers))):
        for ranks in itertools.permutations(range(len(earliest))):
            keys = torch.zeros(2, len(answers), dtype=torch.float64)
            keys[0] = torch.tensor(rows, dtype=torch.float64)
            keys[1, earliest] = torch.tensor(ranks, dtype=torch.float64)
            yield keys


@pytest.mark.parametrize(("answers", "keep"), GROUPS, ids=str)
def test_weights_are_one_over_the_chance_to_be_chosen(answers, keep):
    """Exhaustion: every row has a chance, and the weight it gets is its inverse, exactly.

    So the weighted sum of any advantage times any gradient has the whole group's as its mean.
    """
    right, answer = tensors(answers)
    group = torch.zeros(len(answers), dtype=torch.int64)
    times, weight, total = [0] * len(answers), [0.0] * len(answers), 0
    for keys in all_keys(answers):
        cut = cut_groups(right, answer, group, keys, keep_per_group=keep)
        assert len(cut.rows_K) == min(keep, len(answers))
        for row, w in zip(cut.rows_K.tolist(), cut.weight_K.tolist(), strict=True):
            times[row] += 1
            weight[row] = w
        total += 1
    assert min(times) > 0
    assert [float(Fraction(total, t)) for t in times] == pytest.approx(weight, rel=1e-15)


@pytest.mark.parametrize(
    ("answers", "keep", "right_rows", "by_answer"),
    [
        # two right of three take half of the places; the five wrong answers get one row each
        # at most, so two of them at random
        ([None] * 3 + [1, 1, 1, 2, 3, 4, 5], 4, 2, [1, 1]),
        # one right; three places over 4, 1 and 1 rows: one each
        ([None, 1, 1, 1, 1, 2, 3], 4, 1, [1, 1, 1]),
        # five places over 4, 1 and 2: a whole round, then two more for those that have them
        ([None, 1, 1, 1, 1, 2, 3, 3], 6, 1, [1, 2, 2]),
        # one wrong row alone cannot fill its half
        ([None] * 6 + [4], 4, 3, [1]),
        # no right answer at all, and a group that is small enough
        ([1, 1, 2], 2, 0, [1, 1]),
        ([None, 1, 1], 16, 1, [2]),
    ],
)
def test_places_by_hand(answers, keep, right_rows, by_answer):
    """Hand-computed, for twenty draws of the keys."""
    right, answer = tensors(answers)
    group = torch.zeros(len(answers), dtype=torch.int64)
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        keys = torch.rand(2, len(answers), generator=g, dtype=torch.float64)
        rows = cut_groups(right, answer, group, keys, keep_per_group=keep).rows_K
        assert int(right[rows].sum()) == right_rows
        counts = answer[rows][~right[rows]].unique(return_counts=True)[1]
        assert sorted(counts.tolist()) == by_answer


def test_one_right_in_512_by_hand():
    """Hand-computed: 1 right (weight 1); 15 places, 3 answers of 500, 10 and 1 rows.

    One round of 3, then 12 places go to the first two in turn until the second has no more:
    7 rounds give 7 + 7 + 1 = 15. Weights 500/7, 10/7 and 1.
    """
    answers = [None] + [1] * 500 + [2] * 10 + [3]
    right, answer = tensors(answers)
    g = torch.Generator().manual_seed(1)
    keys = torch.rand(2, 512, generator=g, dtype=torch.float64)
    cut = cut_groups(right, answer, torch.zeros(512, dtype=torch.int64), keys, keep_per_group=16)
    kept = [(int(answer[i]), w) for i, w in zip(cut.rows_K, cut.weight_K.tolist(), strict=True)]
    want = [(0, 1.0)] + [(1, 500 / 7)] * 7 + [(2, 10 / 7)] * 7 + [(3, 1.0)]
    assert kept == [pytest.approx(x) for x in want]


def test_groups_do_not_touch_each_other():
    """Identity: interleaved groups are cut as each alone, whatever answer numbers they share."""
    g = torch.Generator().manual_seed(2)
    group = torch.randint(4, (60,), generator=g)
    group[group == 2] = 1  # an empty index
    right = torch.rand(60, generator=g) < 0.3
    answer = torch.randint(5, (60,), generator=g)
    keys = torch.rand(2, 60, generator=g, dtype=torch.float64)
    whole = cut_groups(right, answer, group, keys, keep_per_group=6)
    assert whole.rows_K.tolist() == sorted(whole.rows_K.tolist())
    for i in (0, 1, 3):
        rows = (group == i).nonzero()[:, 0]
        alone = cut_groups(
            right[rows], answer[rows], torch.zeros_like(rows), keys[:, rows], keep_per_group=6
        )
        mine = group[whole.rows_K] == i
        assert whole.rows_K[mine].tolist() == rows[alone.rows_K].tolist()
        assert whole.weight_K[mine].tolist() == alone.weight_K.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_max_variance_by_trying_all(seed):
    """Oracle: the population variance of every subset, by the standard library."""
    g = torch.Generator().manual_seed(seed)
    values = torch.tensor([0.0, 0.25, 0.5, 0.9, 1.0]) if seed % 2 else torch.tensor([0.0, 1.0])
    rewards = values[torch.randint(len(values), (8,), generator=g)] + 1000
    for m in (2, 3, 5, 8):
        group = torch.zeros(8, dtype=torch.int64)
        rows = max_variance_rows(rewards, group, keep_per_group=m).tolist()
        assert rows == sorted(set(rows))
        assert len(rows) == m
        best = max(statistics.pvariance(c) for c in itertools.combinations(rewards.tolist(), m))
        got = statistics.pvariance([rewards[i].item() for i in rows])
        assert got == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_max_variance_of_close_float32_rewards():
    """Hand-computed: of 1, 1 + e, 1 + 2e, 1 + 4e the ends differ most; their squares drown e."""
    rewards = 1 + torch.tensor([1.0, 4.0, 2.0, 0.0]) * 2.0**-23
    got = max_variance_rows(rewards, torch.zeros(4, dtype=torch.int64), keep_per_group=2)
    assert got.tolist() == [1, 3]


def test_max_variance_of_right_and_wrong_is_half_and_half():
    """Hand-computed, two interleaved groups: 8 of 20 right, and 1 of 12."""
    rewards, group = torch.zeros(32), torch.tensor([0] * 20 + [1] * 12)
    rewards[[0, 2, 3, 5, 7, 11, 13, 17, 25]] = 1.0
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    rows = max_variance_rows(rewards[order], group[order], keep_per_group=6)
    r, g = rewards[order][rows], group[order][rows]
    assert [(int(r[g == i].sum()), int((g == i).sum())) for i in (0, 1)] == [(3, 6), (1, 6)]


def test_random_rows_are_those_of_the_smallest_keys_and_stand_for_the_group():
    """Hand-computed: groups of 4 and 1, two rows each; a row of the first stands for 4 / 2."""
    group = torch.tensor([0, 1, 0, 0, 0])
    keys = torch.tensor([0.9, 0.5, 0.1, 0.8, 0.2], dtype=torch.float64)
    cut = random_rows(group, keys, keep_per_group=2)
    assert cut.rows_K.tolist() == [1, 2, 4]
    assert cut.weight_K.tolist() == [1.0, 2.0, 2.0]


def test_every_row_has_the_same_chance_at_random():
    """Statistical: 3 of 8 rows, 4,000 draws, 4 sigma of a share of 3/8."""
    seen = torch.zeros(8)
    group = torch.zeros(8, dtype=torch.int64)
    stream = torch.Generator().manual_seed(0)
    for _ in range(4000):
        keys = torch.rand(8, dtype=torch.float64, generator=stream)
        seen[random_rows(group, keys, keep_per_group=3).rows_K] += 1
    assert ((seen / 4000 - 3 / 8).abs() < 4 * (3 / 8 * 5 / 8 / 4000) ** 0.5).all()


def test_nothing_to_choose_from():
    none = torch.zeros(0, dtype=torch.int64)
    keys = torch.zeros(2, 0, dtype=torch.float64)
    cut = cut_groups(none > 0, none, none, keys, keep_per_group=4)
    assert (len(cut.rows_K), len(cut.weight_K)) == (0, 0)
    assert len(max_variance_rows(torch.zeros(0), none, keep_per_group=4)) == 0
    cut = random_rows(none, keys[0], keep_per_group=4)
    assert (len(cut.rows_K), len(cut.weight_K)) == (0, 0)


def test_says_what_is_wrong():
    group = torch.tensor([0, 0, 0])
    keys = torch.rand(2, 3, dtype=torch.float64)
    right = torch.tensor([True, False, False])
    with pytest.raises(ConfigError, match="keep_per_group must be >= 2, got 1"):
        cut_groups(right, group, group, keys, keep_per_group=1)
    with pytest.raises(ConfigError, match="keep_per_group must be >= 2, got 1"):
        max_variance_rows(keys[0], group, keep_per_group=1)
    with pytest.raises(ConfigError, match="keep_per_group must be >= 2, got 1"):
        random_rows(group, keys[0], keep_per_group=1)
    with pytest.raises(ShapeError, match=r"keys must be \[2, 3\], got \[3\]"):
        cut_groups(right, group, group, keys[0], keep_per_group=2)
    with pytest.raises(ShapeError, match="keys must be finite, got nan in row 0"):
        cut_groups(right, group, group, keys * float("nan"), keep_per_group=2)
    with pytest.raises(ShapeError, match="group indices must be >= 0, got -1"):
        max_variance_rows(keys[0], group - 1, keep_per_group=2)
    with pytest.raises(ShapeError, match="right must be bool"):
        cut_groups(group, group, group, keys, keep_per_group=2)
    with pytest.raises(ShapeError, match="answer must be int64"):
        cut_groups(right, right, group, keys, keep_per_group=2)
