"""The tables in the paper's layout and of cost per point, from small runs by hand."""

import json

import numpy as np
import pytest

from brorl.record.evals import eval_path
from brorl.record.metrics import append_metrics
from brorl.report.budgets import spent
from brorl.report.heldout import BeforeAfter, Line
from brorl.report.load import read_run
from brorl.report.paper import (
    MOST_CATEGORIES,
    NO_GAIN,
    OTHER_PROBLEMS,
    Arm,
    cost_table,
    paper_table,
)
from brorl.stats.intervals import Interval

from .recorded import evaluate, finished_run, metrics, new_run


def arm(run, number=0, found=None, name="wide"):
    record = read_run(run)
    return Arm(name, number, record, spent(run, record.metrics), found)


def rows(table):
    return [[part.text for part in row] for row in table.rows]


def recategorise(run, step, names):
    path = eval_path(run, step)
    record = json.loads(path.read_text())
    for problem, name in zip(record["suites"]["spell_backward"]["problems"], names, strict=True):
        problem["category"] = name
    path.write_text(json.dumps(record))


def test_rows_of_a_run_by_hand(tmp_path):
    """Three steps of 8 samples, 4 kept, 1 s of generation and 2 s in all each: 24 samples, 6 s, 50 %,
    8 samples a second. Right at the start 0, 1, 2, 0 of 4: 18.75 %; at the end 1, 4, 3, 2: 62.5 %."""
    table = paper_table([arm(finished_run(tmp_path / "run"))])
    assert table.columns == (
        "run", "N", "prompts a step", "steps", "samples, thousands", "hours", "pass rate",
        "samples/s", "pass@1",
    )  # fmt: skip
    assert rows(table) == [
        ["wide, start", "4", "2", "0", "0", "0", "–", "–", "18.75"],
        ["wide", "4", "2", "+3", "0.024", "0.00167", "50 %", "8", "62.50"],
    ]


def test_a_column_a_category_and_their_plain_mean(tmp_path):
    """Problems 0 and 1 are algebra: 1/4 and 4/4; 2 is code: 3/4; 3 is games: 2/4. The average of the
    columns is (62.5 + 75 + 50) / 3, not the mean over problems."""
    run = finished_run(tmp_path / "run")
    for step in (0, 3):
        recategorise(run, step, ["algebra", "algebra", "code", "games"])
    table = paper_table([arm(run)])
    assert table.columns[-4:] == ("algebra", "code", "games", "average")
    assert rows(table)[-1][-4:] == ["62.50", "75.00", "50.00", "62.50"]


def test_too_many_categories_are_one_average(tmp_path):
    run = new_run(tmp_path / "run")
    many = MOST_CATEGORIES + 1
    for step in (0, 1):
        append_metrics(run, metrics(step) | evaluate(run, step, [step] * many))
        recategorise(run, step, [f"c{i}" for i in range(many)])
    assert paper_table([arm(run)]).columns[-1] == "pass@1"
    assert rows(paper_table([arm(run)]))[-1][-1] == "25.00"


def test_first_middle_and_last_evaluation_and_a_shared_start_once(tmp_path):
    runs = []
    for name in "ab":
        run = new_run(tmp_path / name)
        for step in range(5):
            append_metrics(run, metrics(step) | evaluate(run, step, [step, 0]))
        runs.append(run)
    other = finished_run(tmp_path / "c")
    arms = [arm(run, i, name=run.name) for i, run in enumerate([*runs, other])]
    table = paper_table(arms)
    assert [(r[0], r[3]) for r in rows(table)] == [
        ("a, start", "0"), ("a", "+2"), ("a", "+4"), ("b", "+2"), ("b", "+4"),
        ("c, start", "0"), ("c", "+3"),
    ]  # fmt: skip
    assert [row[0].tone for row in table.rows] == ["run0"] * 3 + ["run1"] * 2 + ["run2"] * 2


def test_nothing_to_show_without_two_evaluations(tmp_path):
    run = new_run(tmp_path / "run")
    assert paper_table([arm(run)]) is None
    append_metrics(run, metrics(0) | evaluate(run, 0, [1]))
    assert paper_table([arm(run)]) is None


def test_says_where_scores_do_not_compare(tmp_path):
    """The same four problems, then one that the other run was not asked."""
    a, b = finished_run(tmp_path / "a"), finished_run(tmp_path / "b")
    arms = [arm(a, 0), arm(b, 1)]
    assert OTHER_PROBLEMS not in paper_table(arms).note
    path = eval_path(b, 3)
    path.write_text(path.read_text().replace("heldout/0", "heldout/9"))
    assert OTHER_PROBLEMS in paper_table(arms).note


def gained(value, low, high):
    one = Interval(0.0, 0.0, 0.0)
    return BeforeAfter(0, 3, 4, (Line(1, one, one, Interval(value, low, high)),))


def test_cost_of_a_point_by_hand(tmp_path):
    """24 samples over 4 points is 6, between 24 / 6 and 24 / 2; a step's tokens are 8 · 4."""
    run = finished_run(tmp_path / "run")
    table = cost_table([arm(run, 0, gained(0.04, 0.02, 0.06))])
    assert table.columns == (
        "run", "generated samples", "kept samples", "generated tokens", "update tokens",
        "optimizer updates", "seconds",
    )  # fmt: skip
    assert rows(table) == [
        [
            "wide",
            "6 [4, 12]",
            "3 [2, 6]",
            "24 [16, 48]",
            "12 [8, 24]",
            "1.5 [1, 3]",
            "1.5 [1, 3]",
        ]
    ]


@pytest.mark.parametrize("found", [None, gained(0.04, -0.01, 0.09), gained(-0.1, -0.2, -0.01)])
def test_a_gain_that_is_not_beyond_doubt_has_no_price(tmp_path, found):
    run = finished_run(tmp_path / "run")
    assert cost_table([arm(run, 0, found)]) is None
    table = cost_table([arm(run, 0, gained(0.04, 0.02, 0.06)), arm(run, 1, found)])
    assert rows(table)[1] == ["wide", *[NO_GAIN] * 6]


def test_a_budget_that_is_not_known_is_no_zero(tmp_path):
    found = arm(finished_run(tmp_path / "run"), 0, gained(0.04, 0.02, 0.06))
    budgets = {"generated": np.array([0.0, 8.0]), "updates": found.budgets["updates"]}
    table = cost_table([found, found._replace(budgets=budgets, number=1)])
    assert rows(table)[1][1:] == ["2 [1.33, 4]", "–", "–", "–", "1.5 [1, 3]", "–"]
