"""Length and truncation terms: hand-computed numbers and their shape."""

import math

import pytest
import torch

from brorl.algo.shaping import (
    cosine_length_term,
    length_term_active,
    linear_length_term,
    overlong_penalty,
    stop_properly,
)
from brorl.errors import ConfigError, ShapeError


def test_overlong_by_hand():
    """DAPO's own numbers: limit 20,480, buffer 4,096, factor 1; and half way into it."""
    lengths = torch.tensor([0, 16_384, 16_385, 18_432, 20_480])
    got = overlong_penalty(lengths, max_length=20_480, buffer=4_096, factor=1.0)
    assert got.tolist() == [0.0, 0.0, -1 / 4096, -0.5, -1.0]
    got = overlong_penalty(lengths, max_length=20_480, buffer=20_480, factor=2.0)
    assert got.tolist() == pytest.approx([0.0, -1.6, -2 * 16_385 / 20_480, -1.8, -2.0], rel=1e-15)
    got = overlong_penalty(torch.tensor([0, 1]), max_length=1, buffer=1, factor=0.1)
    assert got.tolist() == [0.0, -0.1]
    assert not overlong_penalty(lengths, max_length=20_480, buffer=9, factor=0.0).any()


@pytest.mark.parametrize(
    ("coefficient", "want"),
    [(0.0, [1, 0.5, 0, 0, -1]), (0.5, [1, 0.5, 0.5, 0.25, -1]), (1.0, [1, 0.5, 1, 0.5, -1])],
)
def test_stop_properly_scales_the_truncated(coefficient, want):
    """Hand-computed. Rows 2 and 3 were cut off."""
    rewards = torch.tensor([1.0, 0.5, 1.0, 0.5, -1.0])
    truncated = torch.tensor([False, False, True, True, False])
    assert stop_properly(rewards, truncated, coefficient=coefficient).tolist() == want


def test_stop_properly_negative_replaces():
    """Hand-computed: -0.25 for a cut-off answer, right or wrong."""
    rewards, truncated = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([False, True, True])
    assert stop_properly(rewards, truncated, coefficient=-0.25).tolist() == [1.0, -0.25, -0.25]


def test_all_truncated():
    """Degenerate: every answer cut off leaves no spread, and so no advantage."""
    rewards = torch.tensor([1.0, 0.0, 0.5])
    assert not stop_properly(rewards, rewards > -1, coefficient=0.0).any()


def test_cosine_by_hand():
    """Ends, middle and a third: cos(pi/3) = 1/2."""
    got = cosine_length_term(
        torch.tensor([0, 100, 150, 300]), max_length=300, eta_min=-1.0, eta_max=0.5
    )
    assert got.tolist() == pytest.approx([0.5, -1 + 0.75 * 1.5, -0.25, -1.0], abs=1e-15)


def test_linear_by_hand():
    got = linear_length_term(
        torch.tensor([0, 100, 150, 300]), max_length=300, eta_min=-1.0, eta_max=0.5
    )
    assert got.tolist() == pytest.approx([0.5, 0.0, -0.25, -1.0], abs=1e-15)


def test_cosine_pulls_at_half_the_limit_and_not_at_its_ends():
    """Identity: the slope is -(eta_max - eta_min) pi / (2 T) · sin(pi t / T), by differences."""
    lengths = torch.arange(1001)
    got = cosine_length_term(lengths, max_length=1000, eta_min=0.0, eta_max=2.0)
    slope = got.diff()
    middle = torch.arange(1000).double() + 0.5
    want = -(math.pi / 1000) * torch.sin(math.pi * middle / 1000)
    torch.testing.assert_close(slope, want, rtol=1e-5, atol=0)


def test_equal_ends_are_a_constant():
    """Identity: eta_min = eta_max is the same reward for every length."""
    for term in (cosine_length_term, linear_length_term):
        got = term(torch.tensor([0, 1]), max_length=1, eta_min=0.3, eta_max=0.3)
        assert got.tolist() == [0.3, 0.3]


def test_duty_cycle():
    """Hand-computed: 2 on, 3 off, from step 0; off = 0 never goes off."""
    got = [length_term_active(s, on=2, off=3) for s in range(11)]
    assert [int(x) for x in got] == [1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1]
    assert all(length_term_active(s, on=1, off=0) for s in range(9))


def test_says_what_is_wrong():
    lengths = torch.tensor([3, 11])
    with pytest.raises(ShapeError, match=r"lengths must lie in 0 \.\.\. 10, got 3 \.\.\. 11"):
        overlong_penalty(lengths, max_length=10, buffer=2, factor=1.0)
    for buffer, factor in ((0, 1.0), (21, 1.0), (5, -1.0), (5, math.inf)):
        with pytest.raises(ConfigError, match=r"need 1 <= overlong\.buffer <= 20"):
            overlong_penalty(lengths, max_length=20, buffer=buffer, factor=factor)
    for term in (cosine_length_term, linear_length_term):
        with pytest.raises(ConfigError, match="need finite eta_min <= eta_max"):
            term(lengths, max_length=20, eta_min=1.0, eta_max=0.0)
        for low, high in ((-math.inf, 0.0), (0.0, math.inf)):
            with pytest.raises(ConfigError, match="need finite eta_min <= eta_max"):
                term(lengths, max_length=20, eta_min=low, eta_max=high)
        with pytest.raises(ShapeError, match=r"must lie in 0 \.\.\. 20, got -3 \.\.\. 11"):
            term(torch.tensor([-3, 11]), max_length=20, eta_min=0.0, eta_max=1.0)
        with pytest.raises(ConfigError, match="max_length must be >= 1 token, got 0"):
            term(lengths, max_length=0, eta_min=0.0, eta_max=1.0)
    for coefficient in (1.5, math.nan, -math.inf):
        with pytest.raises(ConfigError, match="stop-properly coefficient"):
            stop_properly(lengths.float(), lengths > 5, coefficient=coefficient)
    with pytest.raises(ShapeError, match=r"truncated must be bool, got torch\.int64"):
        stop_properly(lengths.float(), lengths, coefficient=0.0)
    with pytest.raises(ShapeError, match=r"equal shapes, got .*'truncated': \[1\]"):
        stop_properly(lengths.float(), lengths[:1] > 5, coefficient=0.0)
    for on, off in ((0, 3), (1, -1)):
        with pytest.raises(ConfigError, match="need length_penalty on >= 1 and off >= 0"):
            length_term_active(0, on=on, off=off)
