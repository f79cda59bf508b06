"""Study `plateau`: its rule on made-up results, the paper's arms, and the curve of a start."""

import json

import pytest

from brorl.studies import plateau
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run

FLAT, RISING = [[0, 0.2], [200, 0.7], [300, 0.71]], [[0, 0.2], [300, 0.8]]


def judged(narrow, paper, start=FLAT, tasks=("sums", "words")):
    runs = [
        toy_run(arm, seed, [0.7, end + 0.005 * seed], measured={"start": start}, tasks=tasks)
        for seed in (0, 1, 2)
        for arm, end in (("narrow", narrow), ("wide-sqrt", paper), ("wide", 0.7))
    ]
    return plateau.judge(toy_results("plateau", runs))


def test_late_gain_is_the_rise_over_the_last_third():
    """Hand-computed: .71 - .70; .8 minus .6, two thirds up from .2 to .8."""
    assert plateau.late_gain(FLAT) == pytest.approx(0.01)
    assert plateau.late_gain(RISING) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("ends", "start", "holds"),
    [
        ((0.75, 0.6), FLAT, True),
        ((0.7, 0.8), FLAT, False),
        ((0.7, 0.7), FLAT, None),
        ((0.75, 0.6), RISING, None),  # no plateau: nothing is decided, whatever came after
        ((0.7, 0.8), RISING, None),
    ],
)
def test_the_rule(ends, start, holds):
    found = judged(*ends, start=start)
    assert found.holds is holds
    assert ("so it was no plateau" in found.because) is (start is RISING)


def test_regimes_say_for_each_task_who_moved():
    found = judged(0.8, 0.6)
    rows = found.figures["regimes"]
    assert {(r["task"], r["arm"]) for r in rows} == {
        (t, a) for t in ("sums", "words") for a in ("wide-sqrt", "wide")
    }
    paper = [r for r in rows if r["arm"] == "wide-sqrt"]
    assert {r["regime"] for r in paper} == {"narrow rises, wide-sqrt falls"}
    assert paper[0]["difference"]["value"] == pytest.approx(-0.2, abs=0.02)


def test_the_papers_arm_has_a_quarter_of_the_prompts_and_the_root_of_the_batch_ratio():
    """Hand-computed: 512 · 8 samples against 16 · 32 are 8 times as many, so 2.828 times the rate."""
    plans = plan_runs(make_spec("plateau", seeds=2))[:3]
    narrow, paper, held = (settings_of(p) for p in plans)
    assert narrow.prompts_per_step == 4 * paper.prompts_per_step
    assert narrow.num_minibatches == paper.num_minibatches == held.num_minibatches
    assert paper.lr * paper.lr_scale / (narrow.lr * narrow.lr_scale) == pytest.approx(8**0.5)
    assert held.lr * held.lr_scale == narrow.lr
    assert len({json.dumps(p.start) for p in plans}) == 1
    assert dict(plans[0].start)["max_samples"] == 400_000
    assert (dict(plans[0].start)["seed"], narrow.seed) == (0, 1000)
