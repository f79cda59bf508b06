"""Study `downsampling`: its rule on made-up results (hand-computed), and what its arms set."""

import pytest

from brorl.studies import downsampling
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run


def judged(whole, variance, fast=0.25):
    """Final scores of all rows and of the cut by variance, which takes `fast` of the seconds."""
    arms = downsampling.arms(downsampling.DownsamplingKnobs())
    runs = [
        toy_run(
            arm.name,
            seed,
            [0.2, variance if arm.name == "variance" else whole],
            spent={"update_seconds": 1000.0 * (fast if arm.name == "variance" else 1)},
        )
        for seed in (0, 1, 2)
        for arm in arms
    ]
    return downsampling.judge(toy_results("downsampling", runs))


@pytest.mark.parametrize(
    ("whole", "variance", "fast", "holds"),
    [
        (0.6, 0.6, 0.25, True),  # after 250 s: 0.6 against 0.3
        (0.6, 0.6, 1.0, None),  # no faster
        (0.6, 0.4, 0.25, False),  # 0.2 below at equal samples
        (0.6, 0.3, 1.0, False),
        (0.6, 0.7, 4.0, False),  # at 1,000 s of its 4,000: 0.325 against 0.6
    ],
)
def test_the_rule(whole, variance, fast, holds):
    assert judged(whole, variance, fast).holds is holds


def test_seconds_of_updating_decide_by_hand():
    found = judged(0.6, 0.6)
    seconds = found.figures["variance"]["update_seconds"]
    assert seconds["amount"] == 250
    assert seconds["value"] == pytest.approx(0.6 - 0.3, abs=0.02)
    assert "at 250 seconds of updating" in found.because


def test_curves_end_where_the_run_ended_to_the_bit():
    """Regression: 0.8358 * 20 / 20 is more than 0.8358 in floats, and no run has spent that."""
    runs = [
        toy_run(arm.name, seed, [0.2, 0.6], spent={"update_seconds": 0.8358})
        for seed in (0, 1)
        for arm in downsampling.arms(downsampling.DownsamplingKnobs())
    ]
    for line in downsampling.judge(toy_results("downsampling", runs)).charts[0].lines:
        assert line.x[-1] == runs[0].totals["update_seconds"]
        assert line.y[-1] == pytest.approx(0.6)


def test_what_each_arm_sets():
    plans = plan_runs(make_spec("downsampling", seeds=2))
    made = {p.arm: settings_of(p) for p in plans if p.seed == 0}
    told = {
        arm: (
            s.rollout.n, s.rollout.keep_per_group, s.rollout.keep_rule, s.advantage.weight,
            s.data.solved_weight, s.data.solved_visits,
        )
        for arm, s in made.items()
    }  # fmt: skip
    assert told == {
        "all": (64, None, "spread", "none", 1.0, 1),
        "variance": (64, 16, "max_variance", "none", 1.0, 1),
        "spread": (64, 16, "spread", "none", 1.0, 1),
        "spread-unbiased": (64, 16, "spread", "unbiased", 1.0, 1),
        "random-unbiased": (64, 16, "random", "unbiased", 1.0, 1),
        "skip-1": (64, None, "spread", "none", 0.0, 1),
        "skip-2-variance": (64, 16, "max_variance", "none", 0.0, 2),
        "narrow": (16, None, "spread", "none", 1.0, 1),
    }
    assert made["skip-1"].data.solved_share == 1.0
    assert {s.prompts_per_step * s.rollout.n for s in made.values()} == {1024}
