"""Tables by hand, the four senses of a mean, and the three forms of a page."""

import json
import re

import pytest

from brorl.errors import DataError
from brorl.evaluate.compare import Part
from brorl.evaluate.figures import changes_svg, curves_svg, pass_curve
from brorl.evaluate.render import (
    Page,
    Table,
    cell,
    number,
    p_value,
    page_html,
    page_markdown,
    page_text,
    to_markdown,
    to_text,
)
from brorl.evaluate.results import Votes
from brorl.evaluate.tables import (
    as_json,
    by_key,
    by_suite,
    curve_table,
    means_table,
    overall,
    report,
    summarise,
)
from brorl.stats.intervals import Interval, mean_interval, wilson

from .evaluations import evaluation, problem, suite


def test_one_group_by_hand():
    """Problems 1 of 4, 4 of 4, 0 of 2 (its wrong answers score 0.5): avg (.25 + 1 + .5)/3,
    pass@1 (.25 + 1 + 0)/3, pass@2 (.5 + 1 + 0)/3, pass^2 (0 + 1 + 0)/3; k stops at 2."""
    rows = [problem("a", 1), problem("b", 4), problem("c", 0, 2, wrong=0.5, tokens=11)]
    got = summarise("g", rows, level=0.95)
    assert (got.problems, got.samples, got.fewest) == (3, 10, 2)
    assert got.score.value == pytest.approx(1.75 / 3)
    assert {k: x.value for k, x in got.pass_at_k.items()} == pytest.approx({1: 1.25 / 3, 2: 0.5})
    assert got.pass_hat_k == pytest.approx({1: 1.25 / 3, 2: 1 / 3})
    assert got.solved == pytest.approx(2 / 3)
    assert got.tokens == pytest.approx((5 + 5 + 11) / 3)


def test_votes_by_hand():
    """3 samples say 7 (right), 4 say 8, 1 is silent. All 8: 8 leads, 0. Of 2: a pair wins if
    7,7 (3), 7 and silent (3), and half of 7,8 (12): 12 of 28."""
    p = problem("a", 3, 8).model_copy(update={"answers": (Votes(3, True), Votes(4, False))})
    got = summarise("g", [p], level=0.95)
    assert got.majority == pytest.approx({1: 3 / 8, 2: 12 / 28, 4: got.majority[4], 8: 0.0})


def test_shares_are_means_over_problems():
    """By hand: 2 of 2 truncated and 0 of 8: a half, not 2 of 10."""
    cut = problem("a", 0, 2).model_copy(
        update={"truncated": 2, "verdicts": {"no_answer": 2}, "answers": ()}
    )
    got = summarise("g", [cut, problem("b", 0, 8)], level=0.95)
    assert (got.truncated, got.no_answer) == (0.5, 0.5)


def test_greedy_answers_have_wilsons_interval():
    """Identity: one sample a problem is a right-or-wrong trial; only pass@1 exists."""
    rows = [problem(str(i), int(i < 7), 1) for i in range(30)]
    got = summarise("g", rows, level=0.95)
    assert got.pass_at_k == {1: wilson(7, 30, level=0.95)}
    assert got.score == mean_interval([1.0] * 7 + [0.0] * 23, level=0.95)


def test_no_problem_is_refused():
    with pytest.raises(DataError, match="own: an empty suite"):
        summarise("own", [], level=0.95)


def two_suites():
    x = [problem(f"x{i}", c, task=f"t{i // 2}", category="u") for i, c in enumerate([4, 4, 0, 2])]
    y = [problem(f"y{i}", c, task="t9", category="v") for i, c in enumerate([1, 1, 1, 1, 1, 1])]
    return evaluation({"x": suite(x), "y": suite(y)})


def test_means_over_problems_tasks_categories_and_benchmarks_differ():
    """By hand: problems (1+1+0+.5 + 6·.25)/10 = .4; tasks (1, .25, .25) .5; categories and
    benchmarks (.625, .25) .4375."""
    got = {name: x.value for name, x in overall(two_suites(), level=0.95).items()}
    assert got == pytest.approx(
        {
            "mean over problems": 0.4,
            "mean over tasks": 0.5,
            "mean over categories": 0.4375,
            "mean over benchmarks": 0.4375,
        }
    )


def test_each_suite_has_its_own_means():
    """By hand: suite x alone is 0.625 over problems and over its tasks (1 and .25); y has one task
    and no line of its own; all together as above."""
    rows = dict(means_table(two_suites(), level=0.95).rows)
    assert list(rows) == [
        "x, mean over problems",
        "x, mean over tasks",
        "all, mean over problems",
        "all, mean over tasks",
        "all, mean over categories",
        "all, mean over benchmarks",
    ]
    assert rows["x, mean over tasks"].startswith("0.6250 ")
    assert rows["all, mean over tasks"].startswith("0.5000 ")
    assert means_table(evaluation({"y": suite([problem("a", 1)])}), level=0.95) is None
    means = as_json(two_suites(), level=0.95)["suites"]["x"]["means"]
    assert means["mean over tasks"]["value"] == pytest.approx(0.625)


def test_tasks_are_kept_apart_by_suite():
    names = [s.name for s in by_key(two_suites(), lambda p: p.task, level=0.95)]
    assert names == ["x/t0", "x/t1"]  # suite y has one task: nothing to tell apart


def test_json_contract():
    """The fields that design promises, and valid JSON."""
    got = json.loads(json.dumps(as_json(two_suites(), level=0.95), allow_nan=False))
    assert got["model"] == "m"
    assert got["protocol"]["temperature"] == 0.6
    x = got["suites"]["x"]
    assert (x["problems"], x["samples"]) == (4, 16)
    assert set(x["pass@k"]) == {"1", "2", "4"}
    assert set(x["pass@k"]["1"]) == {"value", "low", "high"}
    assert x["avg@n"]["value"] == pytest.approx(0.625)
    assert set(got["tasks"]) == {"x/t0", "x/t1"}


def test_report_names_settings_and_every_suite():
    text = page_text(report(two_suites(), level=0.95))
    assert "4 samples a problem, temperature 0.6, top-p 0.95" in text
    assert "without a chat template" in text
    for title in ("Benchmarks", "Means", "pass@k", "Tasks"):
        assert f"\n{title}\n" in text
    assert "0.4375" in text


def test_a_table_says_its_level_and_unequal_n():
    """By hand: 4 samples each, and 4 with one problem of 8; shares with three digits."""
    e = evaluation(
        {
            "x": suite([problem("a", 1), problem("b", 1)]),
            "y": suite([problem("a", 1), problem("b", 1, 8)]),
        }
    )
    table = report(e, level=0.9).tables[0]
    assert [row[2] for row in table.rows] == ["4", "4+"]
    assert [row[8:10] for row in table.rows] == [("0.000", "0.000")] * 2
    assert table.note.startswith("Brackets: 90 % intervals over problems")


def test_lost_samples_are_said():
    lost = problem("a", 1).model_copy(update={"grader_errors": 3})
    page = report(evaluation({"own": suite([lost, problem("b", 1)])}), level=0.95)
    assert "3 samples were left out because grading failed" in page.tables[0].note


def test_curves_of_suites_stop_where_the_shortest_does():
    e = evaluation({"x": suite([problem("a", 1, 8)]), "y": suite([problem("b", 1, 2)])})
    assert curve_table(by_suite(e, level=0.95)).columns == ("", "k = 1", "k = 2")


def test_cells():
    assert cell(Interval(0.5, 0.25, 0.75), 2) == "0.50 [0.25, 0.75]"
    assert cell(Interval(0.5, -0.25, 0.75), 2, sign=True) == "+0.50 [-0.25, +0.75]"
    assert (cell(None), number(None), p_value(None)) == ("-", "-", "-")
    assert p_value(6.5e-7) == "6.5e-07"


HOSTILE = Table(
    "T <b>", ("name", "a|b"), (("<script>alert(1)</script>", "1|2"), ("[red]x[/red]", "3")), "n & m"
)


def test_text_and_markdown_forms():
    """Golden, small: markup of any kind in a name stays text."""
    lines = to_text(HOSTILE).split("\n")
    assert lines[0] == "T <b>"
    assert lines[-1] == "n & m"
    assert "[red]x[/red]" in lines[4]
    assert to_markdown(HOSTILE) == (
        "**T <b>**\n\n| name | a\\|b |\n|---|---:|\n"
        "| <script>alert(1)</script> | 1\\|2 |\n| [red]x[/red] | 3 |\n\nn & m"
    )


def test_html_escapes_and_stands_alone():
    """Attack: a model or task name that holds a script; and nothing is fetched."""
    page = Page("p <i>", ("s & t",), (HOSTILE,), ("<svg id='f'></svg>",))
    html = page_html(page)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<title>p &lt;i&gt;</title>" in html
    assert "<svg id='f'></svg>" in html
    assert not re.search(r"(src|href)=", html)
    assert page_markdown(page).startswith("# p <i>\n\ns & t\n\n**T <b>**")


def test_figures_hold_their_names_and_repeat():
    """Golden by identity: same numbers, same bytes; every task is named; the scale is log."""
    rows = [problem(f"p{i}", i % 5) for i in range(12)]

    def draw():
        curve = pass_curve("a < b", rows, level=0.95, resamples=50, seed=0)
        return curves_svg([curve], level=0.95)

    assert draw() == draw()
    assert "a &lt; b" in draw()
    assert draw().startswith("<svg")
    parts = [
        Part("up", 9, 0.1, 0.4, Interval(0.3, 0.2, 0.4), 0.001, 0.002),
        Part("single", 1, 0.5, 0.25, None, None, None),
        Part("down", 9, 0.4, 0.1, Interval(-0.3, -0.4, -0.2), 0.001, 0.002),
    ]
    svg = changes_svg(parts, a="A", b="B", level=0.95)
    at = [svg.index(name) for name in ("down (9)", "single (1)", "up (9)")]
    assert at == sorted(at)


def test_curve_band_holds_the_curve():
    rows = [problem(f"p{i}", i % 5) for i in range(20)]
    curve = pass_curve("c", rows, level=0.95, resamples=200, seed=0)
    assert curve.ks == (1, 2, 4)
    assert curve.mean_J[0] == pytest.approx(0.5)
    assert (curve.low_J <= curve.mean_J).all()
    assert (curve.mean_J <= curve.high_J).all()
    assert curve.high_J.max() <= 1
