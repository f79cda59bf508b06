"""Study `adaptive`: its rule on made-up results, and arms that differ in the rule alone."""

import runpy
from pathlib import Path

import pytest

from brorl.studies import adaptive
from brorl.studies.runner.spec import load_study, make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run

KNOBS = {"tasks": ("spell_backward", "chain_sum"), "fixed": (16, 512)}


def judged(plateau_ends, warm_end=0.6):
    """Final scores from the plateau by rule, 0.6 where not named; warm: of the adaptive arm."""
    runs = []
    for arm in adaptive.arms(load_study("adaptive").knobs(**KNOBS)):
        rule, start = arm.factors["rule"], arm.factors["start"]
        end = plateau_ends.get(rule, 0.6)
        if start == "warm":
            end = warm_end if rule == adaptive.BEST else 0.6
        runs += [toy_run(arm.name, seed, [0.5, end + 0.01 * seed]) for seed in (0, 1, 2)]
    return adaptive.judge(toy_results("adaptive", runs, **KNOBS))


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ({"adaptive-keep16": 0.8}, True),
        ({"adaptive-keep16": 0.8, "n16-solved": 0.8}, None),  # the control does as well
        ({"adaptive-keep16": 0.8, "n512": 0.9}, False),
        ({"adaptive-keep16": 0.8, "adaptive": 0.9}, True),  # of waves themselves nothing is claimed
    ],
)
def test_every_fixed_width_and_the_control_must_be_beaten(ends, holds):
    assert judged(ends).holds is holds


def test_what_happens_from_the_warm_start_does_not_decide_but_is_told():
    found = judged({"adaptive-keep16": 0.8}, warm_end=0.4)
    assert found.holds is True
    assert "minus the control: -0.2" in found.because
    assert set(found.figures) == {
        f"{start}, {budget}"
        for start in ("warm", "plateau")
        for budget in ("generated", "cpu_seconds", "updates")
    }


def test_pairs_are_tasks_and_seeds():
    """Hand-computed: two tasks times three seeds; in each the difference is .2."""
    found = judged({"adaptive-keep16": 0.8})
    assert found.figures["plateau, generated"]["n16"]["value"] == pytest.approx(0.2)


def test_arms_of_a_block_differ_in_the_rule_alone():
    plans = [p for p in plan_runs(make_spec("adaptive", seeds=2)) if p.seed == 0]
    blocks = {}
    for plan, arm in zip(plans, adaptive.arms(adaptive.AdaptiveKnobs()), strict=True):
        blocks.setdefault(arm.block, []).append((plan, settings_of(plan)))
    assert len(blocks) == 6
    for members in blocks.values():
        one = members[0][1].model_dump()
        changed = {k for _, s in members for k, v in s.model_dump().items() if v != one[k]}
        assert changed <= {"name", "rollout", "prompts_per_step", "data"}
        assert len({str(plan.start) for plan, _ in members}) == 1
        assert {s.prompts_per_step for _, s in members if s.rollout.n != 512} == {32}


def test_the_task_of_the_recipe_may_be_taken_as_it_is():
    spec = make_spec("adaptive", ["study.tasks=[own]", "task.name=count_bits",
                                  "task.prompt='{number}'"])  # fmt: skip
    assert settings_of(plan_runs(spec)[0]).task["name"] == "count_bits"


def test_its_rules_are_the_arms_of_the_benchmark():
    """One comparison, told twice: at length by the benchmark, in 25 minutes by the study."""
    path = Path(__file__).parents[2] / "benchmarks" / "adaptive.py"
    theirs = runpy.run_path(str(path))["ARMS"]
    ours = {
        name: settings for name, (_, settings) in adaptive.rules(adaptive.AdaptiveKnobs()).items()
    }
    same = {"n16": "N=16", "n512": "N=512", "n16-solved": "N=16 solved 1/8", "adaptive": "adaptive",
            "adaptive-keep16": "adaptive keep 16"}  # fmt: skip
    assert {name: ours[name] for name in same} == {name: theirs[at] for name, at in same.items()}
