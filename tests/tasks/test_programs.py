"""The programs task: functions by hand, prompts worked out again here, and what its tests pay."""

import re

import pytest

from brorl.errors import ConfigError
from brorl.tasks.build import build_task
from brorl.tasks.programs import FAMILIES, Line
from brorl.tasks.proxies import VisibleTests
from brorl.verify.code import CodeVerifier
from brorl.verify.formula_program import FormulaProgram
from brorl.verify.verdict import Kind


def task(**changes):
    sizes = {"train_size": 60, "eval_size": 30, "warmstart_size": 40, "seed": 5}
    return build_task({"name": "programs", **sizes, **changes}, {})


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (Line(0, 7), "7"), (Line(1, 0), "x"), (Line(1, 3), "x+3"), (Line(1, -3), "x-3"),
        (Line(4, 0), "4*x"), (Line(2, 9), "2*x+9"),
    ],
)  # fmt: skip
def test_spellings_by_hand(line, source):
    assert line.source == source
    assert [eval(source, {"x": x}) for x in range(5)] == [line.value(x) for x in range(5)]


def test_prompts_show_the_first_tests_and_hide_the_others():
    for problem in task(prompt="{examples}=").problems("train"):
        shown = re.findall(r"f\((\d+)\)=(-?\d+)", problem.prompt)
        tests = [re.fullmatch(r"assert f\((\d+)\) == (-?\d+)", t) for t in problem.row["tests"]]
        found = [(m[1], m[2]) for m in tests]
        assert found[:2] == shown
        assert len(found) == 6
        assert all(int(x) < 10 for x, _ in found[:2])
        assert all(int(x) >= 10 for x, _ in found[2:])
        f = eval(problem.worked.removeprefix("f="))
        assert all(f(int(x)) == int(y) for x, y in found)


def test_two_values_leave_one_function_and_splits_share_no_prompt():
    """Oracle: every function of every family against every shown value."""
    made = task(prompt="{examples}")
    lines = [line for family in FAMILIES.values() for line in family]
    for problem in made.problems("eval"):
        shown = re.findall(r"f\((\d+)\)=(-?\d+)", problem.prompt)
        fits = [g for g in lines if all(g.value(int(x)) == int(y) for x, y in shown)]
        assert [g.source for g in fits] == [problem.gold.removeprefix("f=lambda x:")]
    prompts = [p.prompt for s in ("train", "eval", "warmstart") for p in made.problems(s)]
    assert len(set(prompts)) == len(prompts) == 130
    assert {p.task for p in made.problems("train")} == {f"programs/{name}" for name in FAMILIES}


@pytest.mark.parametrize("judge", [FormulaProgram(), CodeVerifier(unsafe_local=True)])
def test_a_program_that_returns_the_shown_value_is_paid_by_the_shown_test_alone(judge):
    """Attack: what a policy learns where only the first test is run. Without a box, for speed."""
    shown = VisibleTests(judge, 1)
    problem = next(p for p in task().problems("train") if p.row["family"] == "line")
    value = problem.row["tests"][0].rpartition("== ")[2]
    for text, paid, right in (
        (problem.worked, Kind.CORRECT, Kind.CORRECT),
        (f"f=lambda x:{value}", Kind.CORRECT, Kind.WRONG),
        ("f=lambda x:-999", Kind.WRONG, Kind.WRONG),
    ):
        assert shown.grade(text, gold=None, row=problem.row).kind is paid
        assert judge.grade(text, gold=None, row=problem.row).kind is right


def test_the_sandbox_is_asked_for():
    assert task().verifier == FormulaProgram()
    assert task(sandbox=True).verifier == CodeVerifier()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shown": 0}, r"task.shown must be in 1 \.\.\. 10, got 0"),
        ({"hidden": 21}, r"task.hidden must be in 1 \.\.\. 20, got 21"),
        ({"train_size": -1}, "task.train_size must be >= 0"),
        ({"shown": "two"}, "task.shown must be an integer"),
        ({"prompt": "{example}"}, "unknown field in task.prompt 'example'; nearest: examples"),
        ({"shown": 1, "train_size": 350}, r"only \d+ different prompts"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        task(**changes).problems("train")
