"""Study `passrate`: its formula exactly, and its rule on made-up counts."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from brorl.studies import passrate

from .toys import toy_results, toy_run


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 7), Fraction(1, 2), Fraction(1)])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_prediction_is_unbiased(p, n):
    """Exhaustive: over all counts c of M = 6, weighted by their chance, exactly 1 - p^n - q^n."""
    m = 6
    chances = [comb(m, c) * p**c * (1 - p) ** (m - c) for c in range(m + 1)]
    found = passrate.predicted_K(np.arange(m + 1), np.full(m + 1, m), n)
    expected = 1 - p**n - (1 - p) ** n
    assert float(np.dot([float(x) for x in chances], found)) == pytest.approx(float(expected))


def counts(right, samples, speed=100.0):
    return {
        "ids": [f"p{i}" for i in range(len(right))],
        "right": list(right),
        "samples": [samples] * len(right),
        "samples_per_s": speed,
    }


def judged(wide, speed=200.0, narrow=(0, 4, 1, 0)):
    """Four prompts of p about 0, 1, 1/2 and 1/2 in 64 samples; right answers in 4 and in 16."""
    measured = {
        "independent": counts([0, 64, 32, 32], 64),
        "group of 4": counts(narrow, 4),
        "group of 16": counts(wide, 16, speed),
    }
    runs = [toy_run(a, s, [0.4, 0.4], measured=measured)
            for s in (0, 1) for a in ("warm-start", "trained")]  # fmt: skip
    return passrate.judge(toy_results("passrate", runs, widths=(4, 16), independent=64, prompts=4))


def test_what_the_formula_says_is_found():
    """Predicted for N = 16: 0, 0, and almost 1 twice; kept exactly those: (0 + 0 + 1 + 1)/4."""
    found = judged((0, 16, 7, 9))
    assert found.holds is True
    assert found.figures["trained"]["16"]["kept"]["value"] == 0.5
    assert found.figures["trained"]["4"]["kept"]["value"] == 0.25


def test_no_faster_or_no_more_prompts_refutes():
    assert judged((0, 16, 7, 9), speed=90.0).holds is False
    assert judged((0, 16, 16, 9)).holds is False  # 1 of 4 kept at both widths


def test_a_p_that_other_samples_do_not_bear_out_refutes():
    """Prompts 1 and 2 were never mixed in 64 samples and always are in 16: a wrong p."""
    found = judged((1, 15, 7, 9), narrow=(1, 3, 2, 0))
    assert found.figures["trained"]["16"]["gap"]["value"] == pytest.approx(0.5, abs=1e-3)
