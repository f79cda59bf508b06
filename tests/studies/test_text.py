"""The form of a study's docstring (policy), and what is refused."""

import ast
import re
from pathlib import Path

import pytest

from brorl.errors import ConfigError
from brorl.studies.runner.results import gather
from brorl.studies.runner.spec import load_study
from brorl.studies.runner.text import PARTS, docstring, parse, read_text, study_names

from .toys import toy_run

GOOD = """Title?

Question    What is
            asked?
Prediction  It is so.
Design      This is varied.
Decided by  A rule.
Cost        5 minutes.
"""


@pytest.mark.parametrize("name", study_names())
def test_every_study_says_all_of_it(name):
    text = read_text(name)
    assert text.title.endswith("?")
    assert text.question.endswith("?")
    assert "Varied" in text.design
    assert "Equal" in text.design
    assert all(word in text.decided_by for word in ("Holds", "Refuted", "not decided"))


@pytest.mark.parametrize("name", study_names())
def test_the_cost_that_is_told_is_the_one_that_budgets_scale_by(name):
    study = load_study(name)
    cost = read_text(name).cost
    assert f"{study.minutes:g} minutes on two cores" in cost
    assert study.minutes <= 25
    assert f"{study.seeds} seeds" in cost
    assert f"{study.knobs().samples:,} generated samples a run" in cost
    assert f"{len(study.arms(study.knobs()))} arms" in cost


def test_a_part_is_one_line_of_its_words():
    text = parse("x", GOOD)
    assert (text.title, text.question, text.cost) == ("Title?", "What is asked?", "5 minutes.")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Cost        5 minutes.\n", "", "needs a title, then Question, Prediction"),
        ("Cost   ", "Price  ", "belongs to no part"),
        ("Design      This", "Cost        1\nDesign      This", "has Cost twice"),
        ("Title?", "", "needs a title"),
        ("Cost        5 minutes.", "Cost 5 minutes.", "belongs to no part"),
    ],
)
def test_other_forms_are_refused(old, new, said):
    with pytest.raises(ConfigError, match=said):
        parse("x", GOOD.replace(old, new))


def test_parts_out_of_order_are_refused():
    lines = GOOD.splitlines()
    swapped = "\n".join([*lines[:2], lines[4], *lines[2:4], *lines[5:]])
    with pytest.raises(ConfigError, match="in that order; found Prediction, Question"):
        parse("x", swapped)
    assert len(PARTS) == 5


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown study 'widht'; nearest: width"):
        docstring("widht")
    with pytest.raises(ConfigError, match="unknown study"):
        docstring("runner")  # machinery, no study


def test_the_example_of_the_page_is_a_study():
    """docs/studies.md: its text has the form, its judge judges, its arms are two."""
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S)[1]
    parts = parse("example", ast.get_docstring(ast.parse(code)))
    made: dict = {}
    exec(compile(code, "docs/studies.md", "exec"), made)
    study = made["STUDY"]
    assert f"{study.minutes:g} minutes on two cores" in parts.cost
    knobs = study.knobs()
    runs = [
        toy_run(arm, s, [0.2, end]) for s in (0, 1) for arm, end in (("n16", 0.4), ("n64", 0.6))
    ]
    found = study.judge(gather(knobs, study.arms(knobs), {(r.arm, r.seed): r for r in runs}))
    assert found.holds is True
    assert found.because.startswith("64 minus 16: 0.2")
