"""Unbiasedness under stopping, by enumeration of everything that a small group can draw.

The policy is a softmax over five answers: two right, three wrong, two of those with part credit.
Each ordered outcome becomes one group, so one call sees them all, and the expectation is a sum.
"""

import itertools
from fractions import Fraction

import pytest
import torch

from brorl.algo.advantages import dr_grpo
from brorl.algo.stopping import (
    first_samples,
    unbiased_advantages,
    unbiased_baseline,
    unbiased_pass_at_k,
    unbiased_rate,
)
from brorl.algo.waves import expected_samples, prompt_weight
from brorl.errors import ConfigError, ShapeError

RULES = [((4,), 2), ((2, 4), 1), ((2, 4), 2), ((2, 3, 6), 2), ((3, 5, 7), 3), ((3, 4, 5, 6), 2)]
SMALL = [((4,), 2), ((2, 4), 1), ((2, 4), 2), ((2, 3, 5), 2), ((3, 5), 3)]
CHANCES = [Fraction(1, 7), Fraction(1, 2), Fraction(9, 10)]
POLICY = torch.tensor([0.1, 0.15, 0.35, 0.3, 0.1], dtype=torch.float64)
RIGHT = torch.tensor([True, True, False, False, False])


def endings(waves, stop_right, kinds):
    """Every ordered outcome up to the stop, once: (answers drawn, samples before the last wave)."""
    open_groups, before = [()], 0
    for total in waves:
        nxt = []
        for head in open_groups:
            for tail in itertools.product(range(len(kinds)), repeat=total - before):
                group = head + tail
                if sum(kinds[i] for i in group) >= stop_right or total == waves[-1]:
                    yield group, before
                else:
                    nxt.append(group)
        open_groups, before = nxt, total


def counted(waves, stop_right, p):
    """Right answers, size, size before the last wave, and the exact chance, of every ending."""
    for group, before in endings(waves, stop_right, [False, True]):
        c, n = sum(group), len(group)
        yield group, c, n, before, p**c * (1 - p) ** (n - c)


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize(("waves", "stop_right"), RULES)
def test_estimates_have_the_right_mean(waves, stop_right, p):
    """Exact fractions: E of the rate is p, of the pairs p^2, p q and q^2; the chances sum to 1."""
    mean, chance_sum = [Fraction(0)] * 4, Fraction(0)
    for _, c, n, before, chance in counted(waves, stop_right, p):
        estimate = first_samples(c, n, before, stop_right=stop_right)
        mean = [m + chance * x for m, x in zip(mean, estimate, strict=True)]
        chance_sum += chance
    assert chance_sum == 1
    assert mean == [p, p**2, p * (1 - p), (1 - p) ** 2]


@pytest.mark.parametrize(("waves", "stop_right"), RULES)
def test_estimate_is_the_conditional_chance(waves, stop_right):
    """Oracle: among all orders that end alike, the share that begin with a right answer.

    Given where it ended, every order is equally likely, whatever p.
    """
    ends = {}
    for group, c, n, before, _ in counted(waves, stop_right, Fraction(1, 2)):
        ends.setdefault((c, n, before), []).append(group[:2])
    for (c, n, before), heads in ends.items():
        got = first_samples(c, n, before, stop_right=stop_right)
        want = [sum(h[0] for h in heads), heads.count((1, 1)), heads.count((1, 0))]
        assert got[:3] == tuple(Fraction(x, len(heads)) for x in want)


def test_the_group_mean_is_biased():
    """Why any of this: after stopping at a second right answer c / n is too high on average."""
    p = Fraction(1, 7)
    mean = sum(chance * Fraction(c, n) for _, c, n, _, chance in counted((2, 3, 6), 2, p))
    assert mean > p * Fraction(11, 10)


def test_waves_of_one_are_inverse_sampling():
    """Identity: stopped at the k-th right answer after n, (k - 1) / (n - 1)."""
    for k, n in itertools.product(range(2, 6), range(7, 12)):
        got = first_samples(k, n, n - 1, stop_right=k)
        assert got.right == Fraction(k - 1, n - 1)


def test_one_wave_is_the_plain_share():
    """Identity: without stopping it is c / n, and the pairs are those of drawing without return."""
    for n, c in itertools.product(range(2, 7), range(7)):
        if c <= n:
            got, w, pairs = first_samples(c, n, 0, stop_right=1), n - c, n * (n - 1)
            assert got == (
                Fraction(c, n),
                Fraction(c * (c - 1), pairs),
                Fraction(c * w, pairs),
                Fraction(w * (w - 1), pairs),
            )


def test_two_right_in_512_by_hand():
    """Hand-computed. Reached 512 from 256 with t = 0 or 1 right, in C(256, 2) and 256 · 256 ways."""
    got = unbiased_rate(*(torch.tensor([x]) for x in (2, 512, 256)), stop_right=2)
    assert got.item() == pytest.approx(65536 / (32640 + 65536) / 256, rel=1e-15)
    one = first_samples(1, 512, 256, stop_right=2)  # ran out: nothing was cut off, so 1 in 512
    assert one.right == Fraction(1, 512)


def test_stopping_at_the_first_right_answer_says_nothing():
    """Identity: k = 1 gives (k - 1) / (n - 1) = 0 to every group that went on."""
    assert first_samples(3, 64, 16, stop_right=1) == (0, 0, 0, Fraction(1))


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize(("waves", "stop_right"), RULES)
def test_pass_at_k_has_the_right_mean(waves, stop_right, p):
    """Enumeration: E is 1 - (1 - p)^k for every k up to the last total, also k > the first wave."""
    rows = list(counted(waves, stop_right, p))
    right, size, before = (torch.tensor([r[i] for r in rows]) for i in (1, 2, 3))
    chance = torch.tensor([float(r[4]) for r in rows], dtype=torch.float64)
    for k in range(1, waves[-1] + 1):
        got = unbiased_pass_at_k(right, size, before, k=k, stop_right=stop_right)
        assert (chance @ got).item() == pytest.approx(float(1 - (1 - p) ** k), rel=1e-12)
        assert 0 <= got.min() <= got.max() <= 1


def everything(waves, stop_right):
    """All ordered outcomes over the five answers as groups of one call, and their chances."""
    groups = list(endings(waves, stop_right, RIGHT.tolist()))
    answer_B = torch.tensor([i for g, _ in groups for i in g])
    group_B = torch.repeat_interleave(
        torch.arange(len(groups)), torch.tensor([len(g) for g, _ in groups])
    )
    before_P = torch.tensor([b for _, b in groups])
    chance_P = torch.ones(len(groups), dtype=torch.float64)
    chance_P.scatter_reduce_(0, group_B, POLICY[answer_B], "prod")
    return answer_B, group_B, before_P, chance_P


def expected_update(advantage_B, answer_B, group_B, chance_P):
    """E of the sum over the group of A · grad log pi, for the logits of the softmax: [5]."""
    score_BV = torch.eye(5, dtype=torch.float64)[answer_B] - POLICY
    return (chance_P[group_B] * advantage_B) @ score_BV


def reward_gradient(rewards_V):
    """Gradient of the expected reward in the logits: pi · (r - mean)."""
    return POLICY * (rewards_V - POLICY @ rewards_V)


REWARDS = {
    "right and wrong": [1.0, 1.0, 0.0, 0.0, 0.0],
    "part credit": [1.0, 1.0, 0.0, 0.5, 0.9],
    "shaped": [1.0, 0.7, -0.2, 0.1, 0.4],
}


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize(("waves", "stop_right"), SMALL)
def test_unbiased_baseline_gives_expected_width_less_one(waves, stop_right, rewards):
    """Enumeration: E[sum (r - b) grad log pi] = (E[n] - 1) grad E[r], whatever the rewards."""
    answer_B, group_B, before_P, chance_P = everything(waves, stop_right)
    rewards_V = torch.tensor(rewards, dtype=torch.float64)
    r, right_B = rewards_V[answer_B], RIGHT[answer_B]
    b = unbiased_baseline(r, right_B, group_B, before_P, stop_right=stop_right)
    got = expected_update(dr_grpo(r, group_B, baseline_P=b), answer_B, group_B, chance_P)
    width = expected_samples(0.25, waves=waves, stop_right=stop_right)
    torch.testing.assert_close(got, (width - 1) * reward_gradient(rewards_V))
    torch.testing.assert_close(chance_P @ b, POLICY @ rewards_V)
    if rewards == REWARDS["right and wrong"]:
        weight = prompt_weight(0.25, waves=waves, stop_right=stop_right, baseline="unbiased")
        torch.testing.assert_close(got, weight * reward_gradient(rewards_V))


@pytest.mark.parametrize(("waves", "stop_right"), SMALL)
def test_group_mean_keeps_the_direction_of_a_prompt(waves, stop_right):
    """Enumeration: for rewards 0 and 1 the update is w(p) grad p, with the w of waves.py."""
    answer_B, group_B, _, chance_P = everything(waves, stop_right)
    rewards_V = RIGHT.double()
    a = dr_grpo(rewards_V[answer_B], group_B, baseline_P=None)
    got = expected_update(a, answer_B, group_B, chance_P)
    weight = prompt_weight(0.25, waves=waves, stop_right=stop_right, baseline="group")
    torch.testing.assert_close(got, weight * reward_gradient(rewards_V))


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize(("waves", "stop_right"), SMALL)
def test_unbiased_advantages_weigh_every_prompt_alike(waves, stop_right, rewards):
    """Enumeration: E[sum A grad log pi] is the gradient of the expected reward itself."""
    answer_B, group_B, before_P, chance_P = everything(waves, stop_right)
    rewards_V = torch.tensor(rewards, dtype=torch.float64)
    r, right_B = rewards_V[answer_B], RIGHT[answer_B]
    a = unbiased_advantages(r, right_B, group_B, before_P, stop_right=stop_right)
    got = expected_update(a, answer_B, group_B, chance_P)
    torch.testing.assert_close(got, reward_gradient(rewards_V))
    sums = torch.zeros(len(before_P), dtype=torch.float64).index_add_(0, group_B, a)
    assert sums.abs().max() < 1e-14


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
def test_fixed_width_is_what_it_always_was(rewards):
    """Identity: one wave gives the group mean as baseline, and (r - mean) / (N - 1)."""
    g = torch.Generator().manual_seed(1)
    answer_B = torch.randint(5, (60,), generator=g)
    group_B = torch.randperm(60, generator=g) // 20
    r, right_B = torch.tensor(rewards, dtype=torch.float64)[answer_B], RIGHT[answer_B]
    args = (r, right_B, group_B, torch.zeros(3, dtype=torch.int64))
    mean = torch.stack([r[group_B == i].mean() for i in range(3)])
    torch.testing.assert_close(unbiased_baseline(*args, stop_right=2), mean)
    want = (r - mean[group_B]) / 19
    torch.testing.assert_close(unbiased_advantages(*args, stop_right=2), want)


def test_float32_rewards_are_read_as_they_are():
    """Identity: the arithmetic is float64 from the first sum on, whatever comes in."""
    answer_B, group_B, before_P, _ = everything((2, 4), 2)
    rewards = torch.tensor([1.0, 0.7, -0.2, 0.1, 0.4])[answer_B]
    for function in (unbiased_baseline, unbiased_advantages):
        got, want = (
            function(r, RIGHT[answer_B], group_B, before_P, stop_right=2)
            for r in (rewards, rewards.double())
        )
        assert got.tolist() == want.tolist()


def test_one_sided_groups_and_lost_groups():
    """Degenerate: all right, all wrong after two waves, one row, and no row at all."""
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    group, before = torch.tensor([0, 0, 1, 1, 1, 1, 2]), torch.tensor([0, 2, 0, 0])
    args = (rewards, rewards == 1, group, before)
    assert unbiased_baseline(*args, stop_right=2).tolist() == [1.0, 0.0, 1.0, 0.0]
    assert unbiased_advantages(*args, stop_right=2).tolist() == [0.0] * 7


def test_lost_samples_leave_no_condition():
    """Identity: with fewer samples left than stop_right the group had to go on: c / n again."""
    assert first_samples(3, 9, 1, stop_right=2).right == Fraction(1, 3)
    assert first_samples(3, 9, 2, stop_right=2).right != Fraction(1, 3)


def test_a_last_wave_that_was_lost_whole():
    """Hand-computed: the 16 before it are known one by one, so it is 1 in 16."""
    assert first_samples(1, 16, 16, stop_right=2).right == Fraction(1, 16)
    with pytest.raises(ShapeError, match="can't have gone on after 16 samples and end with 2"):
        first_samples(2, 16, 16, stop_right=2)


def test_says_what_is_wrong():
    with pytest.raises(
        ShapeError, match="stops at 2 right can't have gone on after 16 samples and"
    ):
        first_samples(60, 64, 16, stop_right=2)
    for c, n, b in ((3, 2, 0), (-1, 2, 0), (-1, 9, 4), (0, 0, 0), (1, 4, 5), (1, 4, -1)):
        with pytest.raises(ShapeError, match=f"before <= size >= 1, got {c}, {n}, {b}"):
            first_samples(c, n, b, stop_right=2)
    with pytest.raises(ConfigError, match="stop_right must be >= 1, got 0"):
        first_samples(1, 4, 2, stop_right=0)
    one = torch.tensor([1])
    with pytest.raises(
        ShapeError, match="need k <= 4, the samples of a group that found too few, got 5"
    ):
        unbiased_pass_at_k(one, one * 4, one * 2, k=5, stop_right=2)
    with pytest.raises(ConfigError, match="needs k >= 1, got 0"):
        unbiased_pass_at_k(one, one * 4, one * 2, k=0, stop_right=2)
    with pytest.raises(ShapeError, match=r"equally long \[P\], got \[\[1\], \[2\], \[1\]\]"):
        unbiased_rate(one, torch.tensor([4, 4]), one, stop_right=2)
    rewards, group = torch.zeros(2), torch.tensor([0, 1])
    with pytest.raises(ShapeError, match="rewards must be finite, got nan in row 1"):
        unbiased_baseline(
            torch.tensor([0.0, float("nan")]),
            rewards > 0,
            group,
            torch.tensor([0, 0]),
            stop_right=2,
        )
    with pytest.raises(ShapeError, match="group indices must be below 1, got 1"):
        unbiased_baseline(rewards, rewards > 0, group, one * 0, stop_right=2)
    with pytest.raises(ShapeError, match=r"right must be bool \[2\], got torch\.float32 \[2\]"):
        unbiased_baseline(rewards, rewards, group, torch.tensor([0, 0]), stop_right=2)
