"""Study `factors`: the fraction's arithmetic by hand, its rule on made-up results, its arms."""

import numpy as np
import pytest

from brorl.studies import factors
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run


def judged(effect_of, spent=None):
    """Final scores 0.5 + half of each factor's effect times its sign, alike in three seeds."""
    arms = factors.arms(factors.FactorsKnobs())
    runs = [
        toy_run(
            arm.name,
            seed,
            [0.2, 0.5 + sum(effect_of.get(k, 0) * s / 2 for k, s in arm.factors.items())],
            spent=spent(arm) if spent else None,
        )
        for seed in (0, 1, 2)
        for arm in arms
    ]
    return factors.judge(toy_results("factors", runs))


def test_the_fraction_is_balanced_and_no_two_effects_share_a_column():
    """Resolution V: the 5 + 10 columns of signs are orthogonal to each other and to the mean."""
    rows = np.array(factors.signs())
    columns = [rows[:, i] for i in range(5)]
    columns += [rows[:, i] * rows[:, j] for i in range(5) for j in range(i)]
    table = np.stack([np.ones(16), *columns])
    assert rows.shape == (16, 5)
    assert np.array_equal(table @ table.T, 16 * np.eye(16))


def test_effects_are_what_was_put_in():
    """Hand-made scores: N costs 0.2, the filter brings 0.1, the rest nothing; no pair."""
    found = judged({"N": -0.2, "filter": 0.1})
    table = found.figures["generated"]
    assert table["N"]["value"] == pytest.approx(-0.2, abs=1e-9)
    assert table["filter"]["value"] == pytest.approx(0.1, abs=1e-9)
    others = [v["value"] for k, v in table.items() if k not in ("N", "filter")]
    assert len(others) == 13
    assert np.allclose(others, 0, atol=1e-9)


def filtered_saves(arm):
    """The filter's update sees a quarter of the tokens."""
    return {"update_tokens": 250.0 if arm.factors["filter"] > 0 else 1000.0}


@pytest.mark.parametrize(
    ("effect_of", "spent", "holds"),
    [
        ({"N": -0.2, "filter": 0.1}, None, True),
        ({"N": 0.2, "filter": 0.1}, None, False),
        ({"N": -0.2, "filter": -0.1}, None, False),
        ({"filter": 0.1}, None, None),  # no effect of N to be seen
        # At equal samples the filter brings nothing, but at its 250 update tokens the arms
        # without it are a quarter of their way up.
        ({"N": -0.2}, filtered_saves, True),
    ],
)
def test_the_rule(effect_of, spent, holds):
    assert judged(effect_of, spent).holds is holds


def test_every_factor_reaches_the_settings():
    plans = plan_runs(make_spec("factors", seeds=2))
    made = {p.arm: settings_of(p) for p in plans if p.seed == 0}
    for arm in factors.arms(factors.FactorsKnobs()):
        s, f = made[arm.name], arm.factors
        assert s.rollout.n == (128 if f["N"] > 0 else 16)
        assert s.prompts_per_step == (32 if f["prompts"] > 0 else 8)
        assert s.num_minibatches == (4 if f["minibatches"] > 0 else 1)
        assert s.dynamic_sampling.enable is (f["filter"] > 0)
        root = (s.samples_per_step / 512) ** 0.5
        assert s.lr_scale == pytest.approx(root if f["rate"] > 0 else 1.0)
