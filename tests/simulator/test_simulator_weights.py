"""Advantages against a mean taken item by item."""

import itertools

import pytest

from brorl.simulator.weights import advantages


@pytest.mark.parametrize(("right", "wrong"), list(itertools.product(range(5), repeat=2))[1:])
def test_against_a_loop_over_items(right, wrong):
    rewards = [0.7] * right + [-1.1] * wrong
    for baseline in ("none", "mean", "leave-one-out"):
        got = advantages(right, wrong, reward_correct=0.7, reward_wrong=-1.1, baseline=baseline)
        for i, r in enumerate(rewards):
            others = rewards[:i] + rewards[i + 1 :]
            want = {
                "none": r,
                "mean": r - sum(rewards) / len(rewards),
                "leave-one-out": r - sum(others) / len(others) if others else 0.0,
            }[baseline]
            mine = (got.correct if i < right else got.wrong) * got.unit
            assert mine == pytest.approx(want, abs=1e-15)


def test_one_kind_and_the_whole_batch_cancel_exactly():
    """Identity in floating point, not to rounding: rewards without a finite binary fraction."""
    for right, wrong in itertools.product(range(1, 60), range(60)):
        got = advantages(right, wrong, reward_correct=0.1, reward_wrong=0.3, baseline="mean")
        assert right * got.correct + wrong * got.wrong == 0
        if wrong == 0:
            assert got.correct == 0
