"""The rule by hand; what it costs and how it weighs prompts, by enumeration of all outcomes."""

import itertools
import subprocess
import sys
from fractions import Fraction

import pytest

from brorl.algo.waves import (
    check_waves,
    expected_samples,
    prompt_weight,
    reach_chances,
    samples_to_add,
)
from brorl.errors import ConfigError, ShapeError

RULES = [((4,), 2), ((2, 4), 1), ((2, 4), 2), ((2, 3, 6), 2), ((3, 5, 7), 3), ((2, 3, 4, 5), 1)]
CHANCES = [Fraction(1, 7), Fraction(1, 2), Fraction(9, 10)]
FULL = {"waves": (16, 64, 256, 512), "stop_right": 2}


def endings(waves, stop_right, p):
    """Every outcome of the last total's samples, in order: (chance, samples, wave) at the stop."""
    for outcome in itertools.product([0, 1], repeat=waves[-1]):
        chance = Fraction(1)
        for r in outcome:
            chance *= p if r else 1 - p
        n = next((n for n in waves if sum(outcome[:n]) >= stop_right), waves[-1])
        yield chance, outcome[:n], waves.index(n)


@pytest.mark.parametrize(
    ("right", "drawn", "want"),
    [
        (0, 0, 16),
        (0, 16, 48),
        (1, 16, 48),
        (2, 16, 0),
        (16, 16, 0),
        (1, 64, 192),
        (9, 64, 0),
        (0, 256, 256),
        (2, 256, 0),
        (0, 512, 0),
        (1, 512, 0),
    ],
)
def test_rule_by_hand(right, drawn, want):
    """Hand-computed for 16, 64, 256, 512 and two right answers."""
    assert samples_to_add(right, drawn, **FULL) == want


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize(("waves", "stop_right"), RULES)
def test_cost_by_enumeration(waves, stop_right, p):
    """Exact fractions: E[n], and the chance to reach each wave."""
    ends = list(endings(waves, stop_right, p))
    want = sum(chance * len(outcome) for chance, outcome, _ in ends)
    assert expected_samples(p, waves=waves, stop_right=stop_right) == want
    reach = [sum(c for c, _, j in ends if j >= wave) for wave in range(len(waves))]
    assert reach_chances(p, waves=waves, stop_right=stop_right) == reach


@pytest.mark.parametrize("p", CHANCES)
@pytest.mark.parametrize(("waves", "stop_right"), RULES)
def test_group_weight_by_enumeration(waves, stop_right, p):
    """Exact fractions: E[c (n - c) / n] / (p q), and N - 1 for a fixed width."""
    got = prompt_weight(p, waves=waves, stop_right=stop_right, baseline="group")
    want = sum(
        chance * Fraction(sum(o) * (len(o) - sum(o)), len(o))
        for chance, o, _ in endings(waves, stop_right, p)
    )
    assert got == want / (p * (1 - p))
    if len(waves) == 1:
        assert got == waves[0] - 1
        assert prompt_weight(p, waves=waves, stop_right=stop_right, baseline="unbiased") == got


@pytest.mark.parametrize("baseline", ["group", "unbiased"])
def test_hard_prompts_weigh_more(baseline):
    """Identity: w falls in p, from 511 at p = 0 to 15 at p = 1, at the sizes that are used."""
    grid = [1e-9, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.6, 0.9, 1 - 1e-9]
    got = [prompt_weight(p, baseline=baseline, **FULL) for p in grid]
    assert got == sorted(got, reverse=True)
    assert got[0] == pytest.approx(511, rel=1e-5)
    assert got[-1] == pytest.approx(15, rel=1e-5)


def test_ends_of_the_range():
    """Hand-computed: a hopeless prompt costs the last total, a solved one the first."""
    assert expected_samples(0.0, **FULL) == 512
    assert expected_samples(1.0, **FULL) == 16


def test_floats_agree_with_fractions_at_full_size():
    """Oracle: the same sums on exact fractions."""
    for p in (0.003, 0.2):
        for baseline in ("group", "unbiased"):
            got = prompt_weight(p, baseline=baseline, **FULL)
            want = prompt_weight(Fraction(p), baseline=baseline, **FULL)
            assert got == pytest.approx(float(want), rel=1e-10)


def test_needs_no_torch():
    """Policy: the planner reads this before torch is loaded."""
    code = "import sys, brorl.algo.waves; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("waves", "stop_right", "message"),
    [
        ((), 1, "must start with at least 2 samples, got \\[\\]"),
        ((1, 4), 1, "must start with at least 2 samples, got \\[1, 4\\]"),
        ((16, 64, 64), 2, "must grow, got \\[16, 64, 64\\]"),
        ((16, 8), 2, "must grow, got \\[16, 8\\]"),
        ((4, 8), 5, "stop_right must lie in 1 ... 4 .*, got 5"),
        ((4, 8), 0, "stop_right must lie in 1 ... 4 .*, got 0"),
    ],
)
def test_impossible_rules_are_refused(waves, stop_right, message):
    with pytest.raises(ConfigError, match=message):
        check_waves(waves, stop_right=stop_right)
    with pytest.raises(ConfigError, match=message):
        samples_to_add(0, 0, waves=waves, stop_right=stop_right)
    with pytest.raises(ConfigError, match=message):
        expected_samples(0.5, waves=waves, stop_right=stop_right)
    with pytest.raises(ConfigError, match=message):
        prompt_weight(0.5, waves=waves, stop_right=stop_right, baseline="group")


def test_says_what_is_wrong():
    for right, drawn in ((0, 17), (17, 16), (-1, 16)):
        with pytest.raises(ShapeError, match=f"got {drawn}, {right}"):
            samples_to_add(right, drawn, **FULL)
    for p in (-0.1, 1.1):
        with pytest.raises(ShapeError, match="a success probability lies in"):
            expected_samples(p, **FULL)
        with pytest.raises(ShapeError, match="a success probability lies in"):
            prompt_weight(p, baseline="group", **FULL)
    for p in (0.0, 1.0):
        with pytest.raises(ShapeError, match="need 0 < p < 1"):
            prompt_weight(p, baseline="unbiased", **FULL)
