"""Study `composition`: its rule on made-up results by level, and what its arms hold equal."""

import dataclasses

import numpy as np
import pytest

from brorl.studies import composition
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run

KNOBS = {"widths": (4, 16), "batch": 32}
LEVELS = [f"composition/level-{i}" for i in (1, 2, 3, 4)]


def leveled(run, scores):
    """The run with ten problems a level, whose final scores are given level by level."""
    right_EK = run.right_EK.copy()
    dither = np.tile([-1, 1], 5)
    for i, score in enumerate(scores):
        right_EK[-1, 10 * i : 10 * i + 10] = np.round(score * 20) + dither
    tasks = tuple(np.repeat(LEVELS, 10))
    return dataclasses.replace(run, right_EK=right_EK, tasks=tasks)


def judged(one, two):
    """From level 3's final score after training on 1 and on 2, at N = 4 and at N = 16."""
    unseen = {"unseen": dict.fromkeys(LEVELS, 0.1), "unseen_before": dict.fromkeys(LEVELS, 0.0)}
    runs = [
        leveled(
            toy_run(f"level{level}-n{n}", seed, [0.2, 0.5], measured=unseen),
            [0.9, 0.5, scores[i] + 0.05 * (seed - 1), 0.1],
        )
        for seed in (0, 1, 2)
        for i, n in enumerate((4, 16))
        for level, scores in ((1, one), (2, two))
    ]
    return composition.judge(toy_results("composition", runs, **KNOBS))


@pytest.mark.parametrize(
    ("one", "two", "holds"),
    [
        ((0.2, 0.2), (0.5, 0.6), True),
        ((0.2, 0.5), (0.5, 0.2), False),  # refuted at one N
        ((0.2, 0.2), (0.2, 0.5), None),
    ],
)
def test_level_three_decides_at_every_width(one, two, holds):
    assert judged(one, two).holds is holds


def test_each_level_is_a_column_of_its_own():
    """Hand-made: 0.9, 0.5, 0.5 and 0.1 after training on level 2, 0.2 before; unseen 0 to 0.1."""
    found = judged((0.2, 0.2), (0.5, 0.5))
    by_arm = {row[0]: row[1:] for row in found.tables[0].rows}
    assert [cell.split()[0] for cell in by_arm["level2-n4"]] == ["0.900", "0.500", "0.500", "0.100"]
    assert {cell.split()[0] for cell in by_arm["start"]} == {"0.200"}
    unseen = {row[0]: row[1:] for row in found.tables[-1].rows}
    assert unseen["start"] == [0.0] * 4
    assert unseen["level2-n16"] == pytest.approx([0.1] * 4)
    assert found.figures["4"]["value"] == pytest.approx(0.3)


def test_arms_differ_in_level_and_width_alone_and_share_a_start():
    plans = plan_runs(make_spec("composition", seeds=2))
    mine = [p for p in plans if p.seed == 0]
    assert all(p.start == mine[0].start for p in mine)
    assert dict(mine[0].start)["task.levels"] == [1, 2]
    made = [settings_of(p).model_dump() for p in mine]
    assert {m["prompts_per_step"] * m["rollout"]["n"] for m in made} == {512}
    changed = {k for m in made[1:] for k in m if m[k] != made[0][k]}
    assert changed == {"name", "rollout", "prompts_per_step", "task"}
    assert all({**m["task"], "levels": None} == {**made[0]["task"], "levels": None} for m in made)
