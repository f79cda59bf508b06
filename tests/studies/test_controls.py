"""Study `controls`: its rule and its shares on made-up results (hand-computed), and its arms."""

import pytest

from brorl.studies import controls
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run

KNOBS = {"widths": (4, 16), "prompts": (4, 2)}
AS_PREDICTED = {
    "ground_truth": 0.6, "random": 0.2, "format": 0.2, "incorrect": 0.2, "majority": 0.55,
}  # fmt: skip


def judged(narrow, wide=None):
    """Final scores by source at N = 4 and at N = 16, from 0.2 before training.

    With seed s the true and the majority reward end 0.05 s higher.
    """
    runs = [
        toy_run(
            f"n{n}-m2-{source.replace('_', '-')}",
            seed,
            [0.2, end + 0.05 * seed * (source in ("ground_truth", "majority"))],
        )
        for seed in (0, 1, 2)
        for n, ends in ((4, narrow), (16, wide or narrow))
        for source, end in (AS_PREDICTED | ends).items()
    ]
    return controls.judge(toy_results("controls", runs, **KNOBS))


@pytest.mark.parametrize(
    ("narrow", "wide", "holds"),
    [
        ({}, {}, True),
        ({"random": 0.5}, {}, False),  # three quarters of the gain
        ({}, {"incorrect": 0.5}, False),  # at the wide N alone
        ({"majority": 0.25}, {}, False),
        ({"format": 0.3}, {}, None),  # 0.1 of 0.4, 0.45 and 0.5: about a quarter
        ({"majority": 0.4}, {}, None),  # half
        ({"ground_truth": 0.2, "majority": 0.2}, {}, None),  # no gain to keep anything of
    ],
)
def test_the_rule(narrow, wide, holds):
    found = judged(narrow, wide)
    assert found.holds is holds


def test_shares_by_hand():
    """Gains of 0.35, 0.4 and 0.45 beside 0.4, 0.45 and 0.5."""
    found = judged({})
    of = found.figures["n4-m2"]
    assert of["majority"]["share"]["value"] == pytest.approx(0.4 / 0.45)
    assert of["ground_truth"]["share"] == pytest.approx({"value": 1, "low": 1, "high": 1})
    assert of["random"]["gain"]["value"] == pytest.approx(0)
    assert "89% by majority" in found.because


def test_a_share_counts_the_true_rewards_own_spread():
    """Seeds' gains of majority follow the true ones exactly: their ratio is known without error."""
    runs = [
        toy_run(f"n{n}-m2-{source}", seed, [0.2, 0.2 + share * (0.2 + 0.2 * seed)])
        for seed in (0, 1, 2)
        for n in (4, 16)
        for source, share in (
            ("ground-truth", 1), ("random", 0), ("format", 0), ("incorrect", 0), ("majority", 0.5),
        )
    ]  # fmt: skip
    of = controls.judge(toy_results("controls", runs, **KNOBS)).figures["n4-m2"]["majority"]
    assert of["share"]["value"] == pytest.approx(0.5, abs=1e-9)
    assert of["share"]["high"] - of["share"]["low"] < 0.02
    assert of["gain"]["high"] - of["gain"]["low"] > 0.2


def test_arms_of_a_block_differ_in_the_source_alone():
    plans = plan_runs(make_spec("controls", ["study.minibatches=[1,4]"], seeds=2))
    blocks = {}
    for arm in controls.arms(controls.ControlsKnobs(minibatches=(1, 4))):
        made = next(settings_of(p) for p in plans if p.arm == arm.name)
        blocks.setdefault(arm.block, []).append(made)
    assert sorted(blocks) == ["n16-m1", "n16-m4", "n512-m1", "n512-m4"]
    for made in blocks.values():
        first = made[0].model_dump()
        changed = [{k for k, v in s.model_dump().items() if v != first[k]} for s in made[1:]]
        assert all(c == {"name", "reward"} for c in changed)
        assert {s.reward.source for s in made} == set(controls.SOURCES)
