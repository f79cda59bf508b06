"""Curves: gaps stay gaps, thinning is a mean, budgets add up; numbers by hand."""

import math

import numpy as np
import pytest

from brorl.record.metrics import append_metrics, read_metrics
from brorl.record.rollouts import write_rollouts
from brorl.report.budgets import BUDGETS, spent
from brorl.report.series import eval_curves, step_curves, with_shares

from .recorded import evaluate, group, metrics, new_run


def axis(rows):
    return {"step": np.array([float(r["step"]) for r in rows])}


def test_what_is_not_known_is_a_gap_and_never_a_zero():
    """A null, a missing name, a text and an infinity are gaps; a 0 is a 0."""
    rows = [
        {"step": 1, "a": 1.5, "b": 0.0, "ref/reset_reason": "kl"},
        {"step": 2, "a": None, "b": 0.0},
        {"step": 3, "b": math.inf},
        {"step": 4, "a": 2.5, "b": 0, "only_null": None},
    ]
    curves = step_curves(rows, axis(rows), most_points=100)
    assert curves.y == {"a": [1.5, None, None, 2.5], "b": [0, 0, None, 0]}
    assert curves.x == {"step": [1, 2, 3, 4]}


def test_thinned_points_are_means_of_what_is_known_by_hand():
    """7 steps in at most 3 points: 3 steps each; (1 + 3) / 2 with a null between; one left over."""
    rows = [{"step": i + 1, "a": v} for i, v in enumerate([1.0, None, 3.0, 4.0, 5.0, 9.0, 7.0])]
    rows[3]["gone"] = None
    curves = step_curves(rows, axis(rows), most_points=3)
    assert curves.rows_per_point == 3
    assert curves.x["step"] == [3, 6, 7]
    assert curves.y == {"a": [2, 6, 7]}


def test_the_evaluation_before_training_is_no_step_and_the_evaluations_are_not_thinned():
    rows = [
        {"step": 0, "eval/pass@1": 0.25},
        {"step": 1, "a": 1.0},
        {"step": 2, "a": 2.0, "eval/pass@1": 0.5},
    ]
    assert step_curves(rows, axis(rows), most_points=1).y == {"a": [1.5]}
    found = eval_curves(rows, axis(rows))
    assert found.y == {"eval/pass@1": [0.25, 0.5]}
    assert found.x == {"step": [0, 2]}


def test_a_ratio_near_one_keeps_its_digits():
    rows = [{"step": 1, "mismatch/ratio_max": 1.0000045299632632}]
    assert step_curves(rows, axis(rows), most_points=9).y["mismatch/ratio_max"] == [1.00000453]


def test_budgets_by_hand(tmp_path):
    """Two steps of 8 samples, 4 kept, 4 tokens each; 2 s a step without evaluation; the update of
    step 1 saw 4 answers of 4 tokens, that of step 2 saw none."""
    run = new_run(tmp_path / "run")
    rows = [{"step": 0, "updates": 0, "time/eval": 9.0}, metrics(1), metrics(2)]
    write_rollouts(run, 1, group("p", ["cba", "a", "b", "c"]))
    write_rollouts(run, 2, group("p", ["a", "b"], step=2, kept=False))
    found = {name: values.tolist() for name, values in spent(run, rows).items()}
    assert found == {
        "step": [0, 1, 2],
        "generated": [0, 8, 16],
        "kept": [0, 4, 8],
        "tokens": [0, 32, 64],
        "update_tokens": [0, 16, 16],
        "updates": [0, 2, 4],
        "seconds": [0, 2, 4],
    }
    assert list(found) == list(BUDGETS)


@pytest.mark.parametrize(
    ("hole", "lost"),
    [
        ({"samples/generated": None}, {"generated", "tokens"}),
        ({"response/length_mean": None}, {"tokens"}),
        ({"time/grade": None}, {"seconds"}),
        ({"updates": None}, {"updates"}),
    ],
)
def test_a_budget_with_a_hole_is_left_out(tmp_path, hole, lost):
    """The rollouts of the second step are missing too, so update tokens are never known here."""
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, group("p", ["cba", "a"]))
    found = spent(run, [metrics(1), metrics(2, **hole), metrics(3)])
    assert BUDGETS.keys() - found.keys() == lost | {"update_tokens"}


def test_a_step_without_answers_has_no_tokens_and_is_no_hole(tmp_path):
    nothing = {"samples/generated": 0, "response/length_mean": None}
    found = spent(new_run(tmp_path / "run"), [metrics(1), metrics(2, **nothing), metrics(3)])
    assert found["tokens"].tolist() == [32, 32, 64]


def test_kept_share_by_hand():
    rows = with_shares([{"step": 0}, metrics(1), metrics(2, **{"samples/generated": 0})])
    assert [r.get("samples/kept_share") for r in rows] == [None, 0.5, None]


def test_a_kill_while_a_line_was_written_loses_that_line_only(tmp_path):
    """Attack: the torn line of a killed run is no reason to show nothing."""
    run = new_run(tmp_path / "run")
    append_metrics(run, {"step": 0, "updates": 0} | evaluate(run, 0, [1, 2]))
    append_metrics(run, metrics(1))
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 2, "reward/mean": 0.')
    rows = read_metrics(run)
    assert step_curves(rows, spent(run, rows), most_points=9).x["step"] == [1]
