"""Advantages against a loop over exact fractions, against exhaustion, and against identities."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from brorl.algo.advantages import advantages, dr_grpo, grpo, normalised, rloo
from brorl.algo.advantages import reinforce_plus_plus_baseline as rpp
from brorl.errors import ConfigError, ShapeError

ESTIMATORS = ("reinforce_plus_plus_baseline", "grpo", "dr_grpo", "rloo")
NORMALISE = ("trajectory", "trajectory_unbiased", "token", "token_unbiased", "none")
FORMS = [(ESTIMATORS[0], n) for n in NORMALISE] + [(e, "none") for e in ESTIMATORS[1:]]


def run(rewards, group, lengths, form, baseline=None):
    return advantages(
        rewards, group, lengths, estimator=form[0], normalise=form[1], baseline_P=baseline
    )


def batch(seed, dtype=torch.float64):
    """Groups of 1, 2, 4, 7 and 3 rows, interleaved; group 4 has no spread; part credit too."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat([0, 1, 2, 3, 4], [1, 2, 4, 7, 3]))
    rewards = rng.choice([0.0, 0.25, 0.95, 1.0], size=len(group))
    rewards[group == 4] = 0.95
    rewards[np.flatnonzero(group == 1)] = [0.0, 1.0]  # at least one group with spread
    lengths = rng.integers(0, 12, size=len(group))
    return torch.tensor(rewards, dtype=dtype), torch.tensor(group), torch.tensor(lengths)


def oracle(rewards, group, lengths, form):
    """Row by row on Fractions; square roots last. Token forms repeat a row once per token."""
    estimator, normalise = form
    r = [Fraction(x) for x in rewards.tolist()]
    rows = {g: [i for i, h in enumerate(group.tolist()) if h == g] for g in group.tolist()}
    out, counts = [Fraction(0)] * len(r), [False] * len(r)
    for members in rows.values():
        scores = [r[i] for i in members]
        if len(set(scores)) < 2:
            continue
        mean = sum(scores) / len(scores)
        for i in members:
            counts[i] = True
            others = [r[j] for j in members if j != i]
            out[i] = r[i] - (sum(others) / len(others) if estimator == "rloo" else mean)
            if estimator == "grpo":
                var = sum((x - mean) ** 2 for x in scores) / (len(scores) - 1)
                out[i] = float(out[i]) / (math.sqrt(var) + 1e-6)
    if normalise == "none":
        return [float(x) for x in out]
    by_token = normalise.startswith("token")
    pool = [
        out[i]
        for i in range(len(r))
        if counts[i]
        for _ in range(int(lengths[i]) if by_token else 1)
    ]
    mean = sum(pool) / len(pool)
    squares = sum((x - mean) ** 2 for x in pool)
    variance = squares / (len(pool) - normalise.endswith("unbiased"))
    if normalise == "token":
        variance = max(float(variance), 1e-8)
    if normalise == "token_unbiased":
        variance = float(variance) + 1e-8
    shift = mean if by_token else 0
    return [
        float(x - shift) / math.sqrt(variance) if c else 0.0
        for x, c in zip(out, counts, strict=True)
    ]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("seed", range(8))
def test_matches_the_loop_over_fractions(seed, form):
    rewards, group, lengths = batch(seed)
    got = run(rewards, group, lengths, form)
    assert got.tolist() == pytest.approx(oracle(rewards, group, lengths, form), rel=1e-12)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_rows_may_stand_in_any_order(form):
    """Identity: a permutation of the rows permutes the result; names of groups don't matter."""
    rewards, group, lengths = batch(3)
    want = run(rewards, group, lengths, form)
    order = torch.tensor(np.random.default_rng(0).permutation(len(group)))
    got = run(rewards[order], group[order], lengths[order], form)
    torch.testing.assert_close(got, want[order], rtol=1e-13, atol=0)
    renamed = torch.tensor([7, 0, 3, 9, 1])[group]  # with gaps: indices 2, 4, 5, 6, 8 are empty
    torch.testing.assert_close(run(rewards, renamed, lengths, form), want, rtol=1e-13, atol=0)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_interleaved_prompts_are_not_read_as_blocks(form):
    """Two prompts a, b, a, b with rewards 1, 0, 1, 0: each is flat. Read as blocks, neither is."""
    rewards, lengths = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([3, 3, 3, 3])
    assert not run(rewards, torch.tensor([0, 1, 0, 1]), lengths, form).any()
    assert run(rewards, torch.tensor([0, 0, 1, 1]), lengths, form).all()


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_groups_that_teach_nothing_change_nothing(form):
    """Identity: a flat group and a group of one get exactly 0 and leave the others as they were."""
    rewards, group = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0, 0, 0])
    lengths = torch.tensor([2, 5, 4])
    alone = run(rewards, group, lengths, form)
    more = torch.tensor([0.1, 0.1, 0.1, 0.7])  # 3 x 0.1 has a mean that isn't 0.1 in floats
    got = run(
        torch.cat([rewards, more]),
        torch.cat([group, torch.tensor([1, 1, 1, 2])]),
        torch.cat([lengths, torch.tensor([9, 1, 9, 30])]),
        form,
    )
    assert got.tolist() == [*alone.tolist(), 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_only_differences_of_rewards_count(form):
    """Identity: a constant added to every reward of a group is gone; 0.25 is exact in binary."""
    rewards = torch.tensor([0.0, 0.5, 1.0, 0.0, 1.0], dtype=torch.float64)
    group, lengths = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1, 2, 3, 4, 5])
    shifted = rewards + torch.tensor([0.25, 4.0], dtype=torch.float64)[group]
    torch.testing.assert_close(
        run(shifted, group, lengths, form), run(rewards, group, lengths, form), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("normalise", ["trajectory", "trajectory_unbiased"])
def test_batch_normalisation_has_unit_spread_and_no_scale(normalise):
    """Identity: sum of squares is B (or B - 1), and rewards times 1000 or 1e-200 change nothing."""
    rewards, group, lengths = batch(5)
    form = ("reinforce_plus_plus_baseline", normalise)
    got = run(rewards, group, lengths, form)
    counted = int((got != 0).sum())  # no reward of batch 5 equals its group's mean
    want = counted if normalise == "trajectory" else counted - 1
    assert got.square().sum().item() == pytest.approx(want, rel=1e-12)
    for scale in (1000.0, 1e-200):
        torch.testing.assert_close(run(rewards * scale, group, lengths, form), got)


@pytest.mark.parametrize("n", [2, 5])
def test_bias_factor_by_exhaustion(n):
    """E[A_1 r_1] / Var(r) over all 2^n outcomes, exactly: (n - 1) / n with the mean, 1 without."""
    p = Fraction(3, 10)
    total = {"dr_grpo": Fraction(0), "rloo": Fraction(0)}
    for outcome in itertools.product([0.0, 1.0], repeat=n):
        weight = math.prod(p if r else 1 - p for r in outcome)
        r, g = torch.tensor(outcome, dtype=torch.float64), torch.zeros(n, dtype=torch.int64)
        for name, a in (("dr_grpo", dr_grpo(r, g, baseline_P=None)), ("rloo", rloo(r, g))):
            total[name] += weight * Fraction(a[0].item()).limit_denominator(100) * int(outcome[0])
    assert total == {"dr_grpo": Fraction(n - 1, n) * p * (1 - p), "rloo": p * (1 - p)}


@pytest.mark.parametrize(
    ("form", "want"),
    [
        # mean 1/512; biased std = sqrt(1/512 · 511/512) = sqrt(511)/512; (511/512) / that
        (("reinforce_plus_plus_baseline", "trajectory"), math.sqrt(511)),
        (("reinforce_plus_plus_baseline", "token"), math.sqrt(511)),
        # times sqrt(511/512) for the divisor N - 1
        (("reinforce_plus_plus_baseline", "trajectory_unbiased"), 511 / math.sqrt(512)),
        (("grpo", "none"), (511 / 512) / (1 / math.sqrt(512) + 1e-6)),
        (("dr_grpo", "none"), 511 / 512),
        (("rloo", "none"), 1.0),
    ],
    ids=str,
)
def test_one_right_in_512(form, want):
    """Hand-computed. Division by a group's own spread makes one success in 512 worth 22.6."""
    rewards = torch.zeros(512, dtype=torch.float64)
    rewards[77] = 1.0
    group, lengths = torch.zeros(512, dtype=torch.int64), torch.full((512,), 9)
    got = run(rewards, group, lengths, form)
    assert got[77].item() == pytest.approx(want, rel=1e-12)
    assert got[0].item() == pytest.approx(-want / 511, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_seven_equal_part_credits(dtype):
    """Hand-computed. [0, 0.95 x 7]: mean 0.83125, biased std 0.95 sqrt(7)/8, unbiased 0.95/sqrt(8).

    A peer's leave-one-out standard deviation of the seven was rounding only, and gave -2000.
    """
    rewards = torch.tensor([0.0] + [0.95] * 7, dtype=dtype)
    group, lengths = torch.zeros(8, dtype=torch.int64), torch.ones(8, dtype=torch.int64)
    close = {"rel": 1e-6 if dtype == torch.float32 else 1e-12}
    assert dr_grpo(rewards, group, baseline_P=None)[0].item() == pytest.approx(-0.83125, **close)
    assert rloo(rewards, group)[0].item() == pytest.approx(-0.95, **close)
    want = -0.83125 / (0.95 / math.sqrt(8) + 1e-6)
    assert grpo(rewards, group)[0].item() == pytest.approx(want, **close)
    got = rpp(rewards, group, lengths, normalise="trajectory", baseline_P=None)
    assert got[0].item() == pytest.approx(-math.sqrt(7), **close)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_a_large_common_reward_does_not_drown_the_spread(form):
    """Hand-computed. In float32 E[x^2] - E[x]^2 of 4096 and 4096.25 is 0 or negative.

    The values are exact in float32, so the answer is that of 0 and 0.25.
    """
    group, lengths = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    small = torch.tensor([0.0, 0.25, 0.25, 0.25])
    assert (small.add(4096).square().mean() - small.add(4096).mean().square()).item() <= 0
    got = run(small + 4096, group, lengths, form)
    torch.testing.assert_close(got, run(small, group, lengths, form), rtol=1e-6, atol=0)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_nothing_to_learn_from(form):
    """No row, only flat groups, and only groups of one: zeros, not 0/0."""
    empty = torch.zeros(0)
    assert run(empty, empty.long(), empty.long(), form).shape == (0,)
    flat, group = torch.tensor([0.1, 0.1, 0.1, 1.0]), torch.tensor([0, 0, 0, 1])
    assert run(flat, group, torch.tensor([3, 0, 2, 1]), form).tolist() == [0.0] * 4


def test_the_floors_of_the_token_forms():
    """Hand-computed at rewards 0 and 1e-5: a variance of 2.5e-11 gives way to 1e-8.

    token: 5e-6 / 1e-4. token_unbiased: 5e-6 / sqrt(2 · 2.5e-11 / 1 + 1e-8).
    """
    rewards, group = torch.tensor([0.0, 1e-5], dtype=torch.float64), torch.tensor([0, 0])
    for normalise, want in (("token", 0.05), ("token_unbiased", 5e-6 / math.sqrt(1.005e-8))):
        got = rpp(rewards, group, torch.tensor([1, 1]), normalise=normalise, baseline_P=None)
        assert got.tolist() == pytest.approx([-want, want], rel=1e-12)


def test_token_forms_with_no_token_at_all():
    """All truncated and masked: there is no token to weigh by, and no advantage."""
    rewards, group = torch.tensor([0.0, 1.0]), torch.tensor([0, 0])
    for normalise in ("token", "token_unbiased"):
        got = rpp(rewards, group, torch.tensor([0, 0]), normalise=normalise, baseline_P=None)
        assert got.tolist() == [0.0, 0.0]


def test_another_baseline_takes_the_place_of_the_mean():
    """Hand-computed: 1 - 1/4 and 0 - 1/4; the flat group stays 0. Trajectory: variance 1/4."""
    rewards, group = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1])
    baseline = torch.tensor([0.25, 0.5])
    got = dr_grpo(rewards, group, baseline_P=baseline)
    assert got.tolist() == [0.75, -0.25, 0.0, 0.0]
    lengths = torch.ones(4, dtype=torch.int64)
    got = rpp(rewards, group, lengths, normalise="trajectory", baseline_P=baseline)
    assert got.tolist() == [1.5, -0.5, 0.0, 0.0]
    # every reward below the baseline: -3/4 and -1/4 over the same 1/4
    rewards[0] = 0.5
    got = dr_grpo(rewards, group, baseline_P=torch.tensor([0.75, 0.5]))
    assert got.tolist() == [-0.25, -0.75, 0.0, 0.0]
    got = normalised(got, got != 0, lengths, normalise="trajectory")
    assert got.tolist() == pytest.approx([-1.0, -3.0, 0.0, 0.0], rel=1e-15)
    assert got.dtype == torch.float64


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_options_that_would_be_ignored_are_refused(estimator):
    rewards, group = torch.tensor([0.0, 1.0]), torch.tensor([0, 0])
    with pytest.raises(ConfigError, match=f"must be none for {estimator}, got token"):
        run(rewards, group, torch.tensor([1, 1]), (estimator, "token"))
    if estimator != "dr_grpo":
        with pytest.raises(ConfigError, match=f"{estimator} has a baseline of its own"):
            run(rewards, group, torch.tensor([1, 1]), (estimator, "none"), torch.tensor([0.5]))


@pytest.mark.parametrize(
    ("rewards", "group", "message"),
    [
        ([0.0, math.nan], [0, 0], "rewards must be finite, got nan in row 1"),
        ([0.0, 1.0], [0, -1], "group indices must be >= 0, got -1"),
        ([0.0, 1.0], [0, 0, 0], r"equally long, got \[2\] and \[3\]"),
        ([0, 1], [0, 0], r"must be a float tensor, got torch\.int64"),
        ([0.0, 1.0], [0.0, 0.0], r"group must be int64, got torch\.float32"),
    ],
)
def test_says_what_is_wrong(rewards, group, message):
    with pytest.raises(ShapeError, match=message):
        rloo(torch.tensor(rewards), torch.tensor(group))


def test_normalised_says_what_is_wrong():
    a = torch.zeros(2)
    with pytest.raises(ShapeError, match=r"equally long \[B\], got \[\[2\], \[2\], \[3\]\]"):
        normalised(a, a > 0, torch.zeros(3), normalise="trajectory")
    with pytest.raises(ShapeError, match=r"counts must be bool, got torch\.float32"):
        normalised(a, a, a, normalise="trajectory")
    with pytest.raises(ShapeError, match=r"need a baseline for 2 groups, got \[1\]"):
        dr_grpo(a, torch.tensor([0, 1]), baseline_P=torch.zeros(1))
