"""The rate of an update by hand: batch rule, warm-up and cosine multiply."""

import math

import pytest

from brorl.train.rate import update_lr
from brorl.train.recipe import load_recipe


def rate(updates, *overrides):
    return update_lr(
        load_recipe("quickstart", ["lr=1e-3", "lr_warmup_updates=0", *overrides]), updates
    )


def test_constant_unless_asked():
    assert [rate(u) for u in (0, 1, 1000)] == [1e-3] * 3


def test_warm_up_moves_at_once_and_ends_after_its_updates():
    """(u + 1) / (3 + 1): a quarter, a half, three quarters, one."""
    found = [rate(u, "lr_warmup_updates=3") for u in range(5)]
    assert found == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3])


def test_batch_rule_and_cosine_multiply():
    """16 x 64 = 1,024 samples over 256: sqrt(4) = 2. Half-way down to 0.1: (1 + 0.1) / 2."""
    given = ["lr_scaling=sqrt", "lr_base_samples=256", "lr_schedule=cosine", "lr_decay_updates=10"]
    assert rate(0, *given) == pytest.approx(2e-3)
    assert rate(5, *given, "lr_floor=0.1") == pytest.approx(2e-3 * 0.55)
    assert rate(10, *given) == pytest.approx(0.0, abs=1e-18)
    assert rate(2, *given) == pytest.approx(2e-3 * (1 + math.cos(math.pi * 0.2)) / 2)
