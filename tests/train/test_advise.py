"""Advice from records: predictions against exact integrals, costs and rules by hand, refusals."""

import json
from itertools import product

import numpy as np
import pytest
import yaml
from report.recorded import CONFIG, ENVIRONMENT, group, metrics, new_run, row
from scipy.special import betaln
from typer.testing import CliRunner

from brorl.algo.waves import expected_samples
from brorl.cli.main import app
from brorl.errors import ConfigError, DataError
from brorl.policy.tiny import TinyShape
from brorl.record.metrics import append_metrics
from brorl.record.rollouts import write_rollouts
from brorl.seeds import generator
from brorl.stats.shrinkage import Posterior
from brorl.train import advise as module
from brorl.train.advise import Advice, advise, enough
from brorl.train.advise_costs import fit_costs
from brorl.train.advise_groups import Rated, direct_pass_rate, shares
from brorl.train.advise_records import Timing, read_records

from .toys import SHAPE, settings

SHAPE_DICT = dict(zip(TinyShape._fields, SHAPE, strict=True))
TASK = {"name": "spell_backward", "seed": 1}
STEP = {
    "task": TASK,
    "rollout": {"n": 16, "max_new_tokens": 8},
    "prompts_per_step": 8,
    "dynamic_sampling": {"oversample": 100.0},
}


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """40 in place of 200: the ends of the intervals are coarser, the predictions the same."""
    monkeypatch.setattr(module, "RESAMPLES", 40)


def recipe(**changes):
    return settings(**(STEP | changes))


def recorded(path, steps, **rollout):
    """A run; `steps` are lists of groups' rewards, e.g. [[1, 0, 0], [0, 0, 0]]."""
    config = CONFIG | {"task": TASK, "rollout": {"n": 16, "waves": None} | rollout}
    run = new_run(path, config, ENVIRONMENT)
    number = 0
    for step, groups in enumerate(steps, start=1):
        rows = []
        for rewards in groups:
            rows += [
                row(
                    step=step,
                    problem_id=f"p{number}",
                    group_id=f"p{number}#0",
                    sample_index=i,
                    raw_score=float(r),
                    verdict="correct" if r == 1 else "wrong",
                )
                for i, r in enumerate(rewards)
            ]
            number += 1
        write_rollouts(run, step, rows)
        mixed = sum(len(set(g)) > 1 for g in groups)
        samples = sum(map(len, groups))
        append_metrics(
            run,
            metrics(
                step,
                **{
                    "groups/sampled": len(groups),
                    "groups/kept": mixed,
                    "samples/generated": samples,
                    "samples/kept": sum(len(g) for g in groups if len(set(g)) > 1),
                    "dynamic_sampling/pass_rate": mixed / len(groups),
                    "time/generate": 0.001 * samples,
                    "time/grade": 0.0,
                    "time/update": 0.002 * samples,
                    "time/other": 0.0,
                },
            ),
        )
    return run


def beta_groups(a, b, prompts, n, *, waves=None):
    """Rewards of groups whose rates come from Beta(a, b); with waves they stop at 2 right."""
    rng = generator(11, "advise", str(a), n)
    draws = (rng.random((prompts, n)) < rng.beta(a, b, (prompts, 1))).astype(int)
    if waves is None:
        return draws.tolist()
    found = []
    for line in draws.tolist():
        size = next((m for m in waves if sum(line[:m]) >= 2), waves[-1])
        found.append(line[:size])
    return found


def mixed(a, b, n):
    """1 - E[p^n] - E[(1-p)^n] for p ~ Beta(a, b), exactly."""
    return 1 - np.exp(betaln(a + n, b) - betaln(a, b)) - np.exp(betaln(a, b + n) - betaln(a, b))


def holds(interval, exact):
    """Within 4 standard errors, as the 95 % interval tells them."""
    return abs(interval.value - exact) <= 4 / 1.96 * max(
        interval.high - interval.value, interval.value - interval.low
    )


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.7), (1.5, 3.0)])
def test_predictions_are_the_integrals_of_the_population(tmp_path, a, b):
    """Statistical: 300 prompts of 16; exact pass rates lie within 4 standard errors at every width, and
    within 0.05 of the prediction. The direct figure agrees where there is one."""
    run = recorded(tmp_path / "run", [beta_groups(a, b, 300, 16)])
    found = advise([run], recipe(), widths=(4, 64, 256))
    assert [r.totals for r in found.at] == [(4,), (16,), (64,), (256,)]
    for line in found.at:
        exact = mixed(a, b, line.totals[0])
        assert holds(line.pass_rate, exact)
        assert line.pass_rate.value == pytest.approx(exact, abs=0.05)
    assert [line.direct is None for line in found.at] == [False, False, True, True]
    assert found.at[0].direct == pytest.approx(found.at[0].pass_rate.value, abs=0.01)
    assert (found.prompts, found.groups) == (300, 300)


def test_adaptive_groups_predict_a_fixed_width(tmp_path):
    """Statistical: groups that stopped at 2 right in waves 4, 16, 64; exact pass rates of fixed widths
    and the exact mean cost of the waves, integrated over the population."""
    a, b, waves = 0.4, 2.0, (4, 16, 64)
    groups = beta_groups(a, b, 300, 64, waves=waves)
    run = recorded(tmp_path / "run", [groups], n=None, waves=list(waves))
    s = recipe(rollout={"waves": list(waves), "n": None, "max_new_tokens": 8})
    found = {line.totals: line for line in advise([run], s, widths=(8, 64)).at}
    for n in (8, 64):
        line = found[(n,)]
        assert holds(line.pass_rate, mixed(a, b, n))
        assert line.direct is None  # groups that stopped are no random ones
    own = found[waves]
    rates = generator(1, "rates").beta(a, b, 500)
    cost = np.mean([expected_samples(p, waves=waves, stop_right=2) for p in rates])
    groups_a_step = own.samples_per_step.value / cost
    assert groups_a_step * own.pass_rate.value == pytest.approx(8, rel=0.15)


def test_none_right_of_sixteen_does_not_predict_none(tmp_path):
    """Most prompts were all wrong; the wide prediction finds some of them, with an interval."""
    run = recorded(tmp_path / "run", [beta_groups(0.2, 4.0, 200, 16)])
    found = advise([run], recipe(), widths=(16, 128)).at
    assert found[0].direct < 0.5
    assert found[1].pass_rate.low > found[0].direct
    assert holds(found[1].pass_rate, mixed(0.2, 4.0, 128))


def point(p):
    """All prompts of rate p."""
    rates = Posterior(np.ones((1, 1)), np.array([[p * 1e7]]), np.array([[(1 - p) * 1e7]]))
    return Rated(rates, np.ones(1))


def test_waves_of_one_rate_by_hand():
    """Waves 2 and 4, stop at 1 right, p = 1/2: 3/4 stop at 2. Kept: mixed at 2 (1/2, two samples) or
    one right in the last two after two wrong (1/4 · 3/4, four): 11/16, and 1 + 3/4 samples."""
    found = shares(point(0.5), None, (2, 4), stop_right=1, keep_per_group=None)
    assert found.samples == pytest.approx(2.5, rel=1e-4)
    assert found.kept == pytest.approx(11 / 16, rel=1e-4)
    assert found.kept_samples == pytest.approx(1.75, rel=1e-4)
    assert found.solved == pytest.approx(15 / 16, rel=1e-4)
    cut = shares(point(0.5), None, (2, 4), stop_right=1, keep_per_group=3)
    assert cut.kept_samples == pytest.approx(1 + 3 * 3 / 16, rel=1e-4)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_the_cost_of_waves_is_that_of_the_rule(p):
    """Oracle: algo.waves."""
    waves = (4, 16, 64)
    found = shares(point(p), None, waves, stop_right=2, keep_per_group=None)
    assert found.samples == pytest.approx(expected_samples(p, waves=waves, stop_right=2), rel=1e-4)


def test_variance_within_kept_groups_by_enumeration():
    """Oracle: all 32 groups of five answers at p = 0.3."""
    total = chance = 0.0
    for rewards in product((0, 1), repeat=5):
        c = sum(rewards)
        weight = 0.3**c * 0.7 ** (5 - c)
        if 0 < c < 5:
            total += weight * (c / 5) * (1 - c / 5)
            chance += weight
    found = shares(point(0.3), None, (5,), stop_right=2, keep_per_group=None)
    assert found.variance == pytest.approx(total / chance, rel=1e-4)
    assert found.kept == pytest.approx(chance, rel=1e-4)


def test_direct_rates_by_enumeration():
    """Oracle: all subsets of three of five answers, two of them right: one of ten is all wrong."""
    assert direct_pass_rate(np.array([2.0]), np.array([5.0]), 3) == pytest.approx(0.9)
    both = direct_pass_rate(np.array([2.0, 5.0]), np.array([5.0, 5.0]), 3)
    assert both == pytest.approx(0.45)


def timing(groups, samples, kept=100.0, **clocks):
    plain = {"generate": 1.0, "grade": 0.0, "update": 1.0, "other": 0.0}
    return Timing(groups, samples, kept, **(plain | clocks))


def test_costs_are_found_where_widths_differ():
    """0.01 s a group and 0.001 a sample; 0.5 s an update and 0.002 a kept sample; grading 0.0003."""
    steps = [
        timing(
            g,
            g * n,
            kept,
            generate=0.01 * g + 0.001 * g * n,
            update=0.5 + 0.002 * kept,
            grade=0.0003 * g * n,
            other=0.1,
        )
        for g, n, kept in [(10, 16, 100), (12, 16, 150), (8, 64, 400), (9, 64, 300)]
    ]
    costs = fit_costs(steps)
    assert costs.apart
    assert costs.generate_group == pytest.approx(0.01)
    assert costs.generate_sample == pytest.approx(0.001)
    assert costs.update_step == pytest.approx(0.5)
    assert costs.update_sample == pytest.approx(0.002)
    assert costs.grade_sample == pytest.approx(0.0003)
    assert costs.other_step == pytest.approx(0.1)


def test_one_width_is_taken_in_proportion():
    costs = fit_costs([timing(10, 160, generate=1.6), timing(20, 320, generate=3.2)])
    assert not costs.apart
    assert (costs.generate_group, costs.generate_sample) == pytest.approx((0, 0.01))
    assert (costs.update_step, costs.update_sample) == pytest.approx((0, 0.01))
    with pytest.raises(DataError, match="no step of the window says what it cost"):
        fit_costs([])


def test_seconds_and_rates_of_a_step_by_hand(tmp_path):
    """Groups of 16 that are all half right: at N = 4 a share 1 - 2/16 is kept, so 8 prompts cost 64/7
    groups, 256/7 samples at 0.001 s, and 32 kept ones at 0.002 s: 0.1006 s, 318 kept a second."""
    run = recorded(tmp_path / "run", [[[0, 1] * 8] * 100])
    found = advise([run], recipe(), widths=(4,)).at[0]
    assert found.pass_rate.value == pytest.approx(7 / 8, abs=3e-3)
    assert found.samples_per_step.value == pytest.approx(256 / 7, rel=3e-3)
    assert found.kept_per_step.value == pytest.approx(32)
    assert found.seconds.value == pytest.approx(0.256 / 7 + 0.064, rel=3e-3)
    assert found.kept_per_s.value == pytest.approx(32 / (0.256 / 7 + 0.064), rel=3e-3)
    assert found.reward_variance.value == pytest.approx(0.25 * 3 / 4 / (7 / 8), rel=3e-3)


def test_rounds_that_find_too_much_are_counted(tmp_path):
    """Six of eight groups pass and four are used: half as many again."""
    run = recorded(tmp_path / "run", [[[0, 1]] * 6 + [[0, 0]] * 2])
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace('"groups/kept": 6', '"groups/kept": 4'))
    assert read_records(run, window=1).overhead == pytest.approx(1.5)


def test_the_window_is_the_last_steps_and_carried_groups_count_once(tmp_path):
    run = recorded(tmp_path / "run", [[[0, 1]] * 3, [[1, 1]] * 2, [[0, 0]] * 4])
    rows = group("late", ["cba"], step=3) + group("old", ["cba"], step=3, born=2)
    write_rollouts(run, 3, rows + group("two", ["cba", "abc"], step=3))
    found = read_records(run, window=2)
    assert found.steps == (2, 3)
    assert list(zip(found.right_G, found.total_G, strict=True)) == [(2, 2), (2, 2), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("rates", "wanted"),
    [
        ([10, 20, 20.3, 20.5], 8),  # 2.5 % beyond 8's 20 is 20.5: over 2 %, so not 8
        ([10, 20, 20.3, 20.4], 8),
        ([10, 20, 30, 40], None),
        ([50, 40, 30, 20], 4),
    ],
)
def test_the_width_beyond_which_it_no_longer_rises(rates, wanted):
    if rates == [10, 20, 20.3, 20.5]:
        wanted = 16
    assert enough([4, 8, 16, 32], np.array(rates, dtype=float)) == wanted


def test_part_credit_counts_zeros_apart(tmp_path):
    """Scores 0 and 1/2 in every group: nothing is right, and no group agrees."""
    run = recorded(tmp_path / "run", [[[0, 0.5] * 8] * 50])
    found = advise([run], recipe(), widths=(16,))
    assert found.at[0].solved.value < 0.05
    assert found.at[0].pass_rate.value > 0.95
    assert "part credit" in found.notes[-1]


def test_refusals(tmp_path):
    run = recorded(tmp_path / "run", [[[0, 1]] * 3])
    with pytest.raises(ConfigError, match=r"trains on name=chain_sum, .*advice is about one task"):
        advise([run], recipe(task={"name": "chain_sum"}))
    with pytest.raises(ConfigError, match="widths of at least 2"):
        advise([run], recipe(), widths=(1,))
    empty = new_run(tmp_path / "empty", CONFIG | {"task": TASK})
    with pytest.raises(DataError, match="no step has rollouts and metrics"):
        advise([empty], recipe())
    with pytest.raises(DataError, match="needs graded groups of at least 2 prompts"):
        advise([recorded(tmp_path / "one", [[[0, 1]]])], recipe())
    with pytest.raises(DataError, match="is not a run"):
        advise([tmp_path], recipe())


def plan(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)])


def test_the_command_prints_a_table_and_names_the_width(tmp_path):
    run = recorded(tmp_path / "run", [beta_groups(0.5, 0.5, 100, 16)])
    made = tmp_path / "recipe.yaml"
    made.write_text(
        yaml.safe_dump(
            recipe(model={"shape": SHAPE_DICT}).model_dump(mode="json", exclude_defaults=True)
        )
    )
    words = [made, "--from", run, "--widths", "4,64"]
    done = plan(*words)
    assert done.exit_code == 0, done.output
    assert "100 groups of 100 prompts" in done.output
    assert "beyond N = " in done.output or "still rise at N = 64" in done.output
    found = json.loads(plan(*words, "--json").output)["advice"]
    assert set(Advice._fields) == found.keys()
    assert [line["totals"] for line in found["at"]] == [[4], [16], [64]]
    assert found["at"][0]["pass_rate"].keys() == {"value", "low", "high"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--widths", "4"], "--widths needs --from"),
        (["--window", "3"], "--window needs --from"),
        (["--pass-rate", "0.5"], "--pass-rate needs --devices"),
        (["--devices", "1", "--device", "abacus"], "--device needs one of a100, h100, h200"),
        (["--devices", "1", "--pass-rate", "2"], "a pass rate lies in"),
        (["--devices", "1", "--answer-tokens", "9999"], "answers have 1 to"),
        (["--devices", "1", "--bandwidth", "0"], "--bandwidth needs a positive rate"),
    ],
)
def test_an_option_that_would_be_ignored_or_makes_no_sense_is_one_line(words, said):
    done = plan("quickstart", *words)
    assert said in str(done.exception)
