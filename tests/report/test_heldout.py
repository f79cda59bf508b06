"""Before and after: the paired change by hand, and what is said where there is none."""

import pytest

from brorl.errors import DataError
from brorl.record.evals import eval_path
from brorl.report.facts import Cost, differing, facts, sentences
from brorl.report.heldout import before_after, pass_curves
from brorl.report.load import read_run
from brorl.stats.intervals import mean_interval
from brorl.stats.pass_at_k import pass_at_k

from .recorded import evaluate, finished_run, metrics, new_run


def recorded(run, *evals):
    """Metrics of evaluations (step, right of 4 by problem)."""
    return [{"step": step} | evaluate(run, step, right) for step, right in evals]


def text_of(record, cost, found):
    return " ".join("".join(p.text for p in s) for s in sentences(record, cost, found, None))


def test_paired_change_by_hand(tmp_path):
    """pass@1 goes 1/4 → 1/4 and 0 → 1/2: differences 0 and 1/2, mean 1/4, standard error 1/4,
    t(0.975, 1 degree of freedom) = 12.7062: 0.25 ± 3.17655. pass@4: 1 → 1 and 0 → 1: 0.5 ± 6.3531."""
    run = new_run(tmp_path / "run")
    found = before_after(run, recorded(run, (0, [1, 0]), (5, [1, 2])))
    by_k = {line.k: line for line in found.lines}
    assert (found.first_step, found.last_step, found.problems) == (0, 5, 2)
    assert by_k[1].change == pytest.approx((0.25, 0.25 - 3.17655, 0.25 + 3.17655), abs=1e-4)
    assert by_k[4].change == pytest.approx((0.5, 0.5 - 6.3531, 0.5 + 6.3531), abs=1e-4)
    assert by_k[1].before.value == pytest.approx(0.125)
    assert by_k[1].after.value == 0.375


def test_only_problems_of_both_evaluations_are_paired(tmp_path):
    """The third problem is new, or gone: differences stay 1/2 and 1/2, the interval that point."""
    run = new_run(tmp_path / "run")
    new = before_after(run, recorded(run, (0, [1, 0]), (5, [3, 2, 0])))
    gone = before_after(run, recorded(run, (0, [1, 0, 4]), (5, [3, 2])))
    assert new.lines[0].change == gone.lines[0].change == (0.5, 0.5, 0.5)


def test_no_change_without_the_problems(tmp_path):
    """The metrics alone give both intervals; the pairing needs the evaluation files."""
    run = new_run(tmp_path / "run")
    rows = recorded(run, (0, [1, 0]), (5, [3, 2]))
    eval_path(run, 0).unlink()
    line = before_after(run, rows).lines[0]
    assert line.change is None
    assert line.after.value == 0.625
    assert [c.step for c in pass_curves(run, rows)] == [5]


def test_one_evaluation_has_no_after(tmp_path):
    run = new_run(tmp_path / "run")
    rows = [*recorded(run, (0, [1, 2])), metrics(1)]
    found = before_after(run, rows)
    assert [line.after for line in found.lines] == [None] * 3
    assert len(pass_curves(run, rows)) == 1
    assert before_after(run, [metrics(1)]) is None


def test_pass_curve_by_hand(tmp_path):
    """2 of 4 right: pass@2 = 1 - C(2,2)/C(4,2) = 5/6; with a problem never right the mean is 5/12.
    Two problems that differ leave a band around it."""
    run = new_run(tmp_path / "run")
    (curve,) = pass_curves(run, recorded(run, (0, [2, 0])))
    assert curve.ks == [1, 2, 4]
    assert curve.value == pytest.approx([0.25, 5 / 12, 0.5], abs=1e-6)
    assert all(
        low < v < high for low, v, high in zip(curve.low, curve.value, curve.high, strict=True)
    )


def test_the_band_of_all_k_is_never_inside_the_interval_of_one(tmp_path):
    """Few problems, most of them alike: resampled they vary too little."""
    run = new_run(tmp_path / "run")
    (curve,) = pass_curves(run, recorded(run, (0, [4, 4, 4, 4, 4, 4, 0])))
    right, total = [4] * 6 + [0], [4] * 7
    for j, k in enumerate(curve.ks):
        alone = mean_interval(pass_at_k(right, total, k), level=0.95)
        assert curve.low[j] <= alone.low + 1e-6
        assert curve.high[j] >= alone.high - 1e-6


def test_names_an_evaluation_file_that_is_none(tmp_path):
    run = new_run(tmp_path / "run")
    rows = recorded(run, (0, [1, 0]), (5, [3, 2]))
    eval_path(run, 5).write_text('{"suites": 3}')
    with pytest.raises(DataError, match=r"step-000005\.json: not an evaluation"):
        before_after(run, rows)


def test_sentences_say_how_far_the_run_is(tmp_path):
    """3 steps of 8 rollouts and 2 s; then the same run planned for 9 steps."""
    cost = Cost(24.0, 12.0, 6.0)
    whole = read_run(finished_run(tmp_path / "whole"))
    part = read_run(finished_run(tmp_path / "part"))._replace(config={"steps": 9})
    found = before_after(whole.path, whole.metrics)
    assert text_of(whole, cost, found).startswith(
        "3 of 3 steps, 24 rollouts, 6 s without evaluation."
    )
    assert "3 of 9 steps" in text_of(part, cost, None)
    assert "resumed" in text_of(part, cost, None)
    assert "No held-out evaluation is recorded." in text_of(part, cost, None)


def test_cost_per_point_only_where_the_gain_is_beyond_doubt(tmp_path):
    """Three problems gain 1/2 each: 50 points for 1,000 samples, 20 a point. A gain whose interval
    holds 0 gives no such number, a loss neither."""
    run = new_run(tmp_path / "run")
    sure = before_after(run, recorded(run, (0, [0, 1, 2]), (1, [2, 3, 4])))
    unsure = before_after(run, recorded(run, (0, [0, 1, 2]), (1, [4, 1, 2])))
    record = read_run(run)
    assert ("samples per point gained", "20") in facts(record, Cost(1000.0, None, None), sure)
    names = [name for name, _ in facts(record, Cost(1000.0, 1.0, 1.0), unsure)]
    assert "samples per point gained" not in names


def test_differing_settings_by_hand():
    a = {"name": "x", "lr": 1, "rollout": {"n": 16, "waves": None}, "steps": 3}
    b = {
        "name": "y",
        "lr": 1,
        "rollout": {"n": None, "waves": [16, 64]},
        "tis": {"type": "icepop"},
        "steps": 3,
    }
    assert differing([a, b]) == [
        ("rollout.n", "16", "null"),
        ("rollout.waves", "null", "[16, 64]"),
        ("tis.type", "–", "icepop"),
    ]
