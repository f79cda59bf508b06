"""Study `coverage`: its rule on made-up steps, hand-computed."""

import pytest

from brorl.studies import coverage

from .toys import toy_results, toy_run


def tried(moment, worst, noise=0.0):
    """A step that moves three golds; the last by `worst`. Predicted: the same, plus noise."""
    measured = [0.02, 0.01, worst]
    predicted = [0.02 + noise, 0.01 - noise, worst]
    return {"moment": moment, "moment_expected": moment, "measured_K": measured,
            "predicted_K": predicted, "gradient_norm": 1.0}  # fmt: skip


def judged(narrow, wide, **more):
    runs = [
        toy_run(arm, seed, [0.4, 0.4], measured={
            "4": [tried(*narrow[seed], **more)], "16": [tried(*wide[seed], **more)],
        })
        for seed in (0, 1, 2) for arm in ("warm-start", "trained")
    ]  # fmt: skip
    return coverage.judge(toy_results("coverage", runs, widths=(4, 16), prompts=3))


NARROW = [(0.3, -0.11), (0.31, -0.12), (0.29, -0.10)]
WIDE = [(0.1, -0.02), (0.11, -0.03), (0.09, -0.01)]


def test_smaller_falls_and_moments_hold():
    found = judged(NARROW, WIDE)
    assert found.holds is True
    assert found.figures["trained"]["gain"]["value"] == pytest.approx(0.09)


def test_larger_falls_refute():
    assert (
        judged(WIDE, [(m, w) for (m, _), (_, w) in zip(WIDE, NARROW, strict=True)]).holds is False
    )


def test_moments_that_rise_in_every_seed_refute():
    assert judged(WIDE, [(0.5, w) for _, w in WIDE]).holds is False


def test_first_order_theory_that_does_not_fit_leaves_it_open():
    """Predicted 0.22, -0.19 for measured 0.02, 0.01: correlation far below 0.9."""
    assert judged(NARROW, WIDE, noise=0.2).holds is None
