"""Tasks read from rows, rows of public benchmarks, and outputs compared."""

import ast
import gzip
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import DataError
from brorl.verify.code import CodeVerifier
from brorl.verify.code_compare import same_output
from brorl.verify.code_rows import contest_task, humaneval_task, leetcode_task, mbpp_task
from brorl.verify.code_task import Run, read_task
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind

from .boxes import needs_bubblewrap


def same(printed, expected, compare="lines", tolerance=None):
    return same_output(printed.encode(), expected, compare=compare, tolerance=tolerance)


@pytest.mark.parametrize(
    ("printed", "expected", "exact", "lines", "tokens"),
    [
        ("1 2\n", "1 2\n", True, True, True),
        ("1 2", "1 2\n", False, True, True),
        ("1  2 \n\n", "1 2", False, True, True),
        ("1\n2", "1 2", False, False, True),
        ("1\n\n2", "1\n2", False, False, True),
        ("12", "1 2", False, False, False),
        ("", "\n", False, True, True),
        ("1 2 3", "1 2", False, False, False),
        ("1\n2\n", "1\n", False, False, False),
        ("yes", "YES", False, False, False),
        ("1.0", "1", False, False, False),
    ],
)
def test_three_ways_to_compare(printed, expected, exact, lines, tokens):
    """By hand: whitespace counts in full, within lines not, not at all."""
    for compare, want in (("exact", exact), ("lines", lines), ("tokens", tokens)):
        assert same(printed, expected, compare) is want


@pytest.mark.parametrize(
    ("printed", "expected", "equal"),
    [
        ("0.333333", "0.333333333333", True),
        ("0.3333", "0.333333333333", False),
        ("1000000.5", "1000000", True),  # relative: 5e-7 of the expected one
        ("1e6", "1000000", True),
        ("-0.0", "0", True),
        ("nan", "0", False),
        ("nan", "nan", True),  # equal text
        ("inf", "1e999", False),
        ("1e999", "1e998", False),  # both beyond float: not comparable
        ("0x10", "16", False),
        ("1_0", "10", False),
        ("\u0661", "1", False),  # a digit of another script
        ("1/3", "0.333333333333", False),
    ],
)
def test_tolerance_is_for_numbers_alone(printed, expected, equal):
    assert same(printed, expected, tolerance=1e-6) is equal


@settings(deadline=None, derandomize=True)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-2e-6, 2e-6))
def test_tolerance_against_its_formula(value, shift):
    """Oracle: |a - b| <= 1e-6 * max(1, |b|), on the numbers as they are printed."""
    moved = value + shift * max(1.0, abs(value))
    if not math.isfinite(moved):
        return
    want = abs(moved - value) <= 1e-6 * max(1.0, abs(value))
    assert same(repr(moved), repr(value), tolerance=1e-6) is want


@given(st.binary(), st.text(), st.sampled_from(["lines", "tokens", "exact"]))
def test_comparing_is_total(printed, expected, compare):
    assert same_output(printed, expected, compare=compare, tolerance=1e-6) in (True, False)
    assert same_output(b"\xff\xfe3\x00", "3", compare=compare, tolerance=None) is False


def test_both_forms_of_examples():
    pairs = (Run("1", "2"), Run("3", "4"))
    one = [{"input": "1", "output": "2"}, {"input": "3", "output": "4"}]
    other = {"inputs": ["1", "3"], "outputs": ["2", "4"]}
    for tests in (one, other):
        task = read_task({"task": {"kind": "stdin", "tests": tests}})
        assert (task.runs, task.declared) == (pairs, 2)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("x", "task must be an object, got str"),
        ({}, "task.kind must be one of function, stdin, got None"),
        ({"kind": "function"}, "task.tests must be a list of strings of Python, got None"),
        ({"kind": "function", "tests": "assert f()"}, "must be a list of strings"),
        ({"kind": "function", "tests": [1]}, "must be a list of strings"),
        (
            {"kind": "function", "tests": [], "entry_point": 1},
            "task.entry_point must be a string, got int",
        ),
        ({"kind": "stdin", "tests": [1]}, "a test must be {input, output}, both strings, got 1"),
        ({"kind": "stdin", "tests": [{"input": "1"}]}, "a test must be {input, output}"),
        ({"kind": "stdin", "tests": {"inputs": ["1"], "outputs": []}}, "as many inputs as outputs"),
        ({"kind": "stdin", "tests": [], "compare": "fuzzy"}, "task.compare must be one of lines"),
        (
            {"kind": "stdin", "tests": [], "tolerance": 0},
            "task.tolerance must be a number > 0, got 0",
        ),
        ({"kind": "stdin", "tests": [], "timeout_s": True}, "task.timeout_s must be a number > 0"),
        (
            {"kind": "stdin", "tests": [], "timeout_s": float("nan")},
            "task.timeout_s must be a number > 0",
        ),
        (
            {"kind": "stdin", "tests": [{"input": "x" * 4_000_001, "output": ""}]},
            "may have 4000000",
        ),
    ],
)
def test_a_row_that_is_no_task_says_why(task, message):
    with pytest.raises(DataError) as error:
        read_task({"task": task})
    assert message in str(error.value)


def test_helpers_of_a_benchmark_stay_with_its_tests():
    """The prompt of HumanEval/32 defines `poly`, which its tests call: never the program's own."""
    row = {
        "task_id": "HumanEval/x",
        "entry_point": "find_zero",
        "prompt": "import math\n\ndef poly(xs, x):\n    return sum(xs)\n\n\ndef find_zero(xs):\n    '''Doc.'''\n",
        "test": "def check(candidate):\n    assert poly([1], candidate([1])) == 1\n",
    }
    task = humaneval_task(row)
    assert "def poly" in task["setup"]
    assert "def poly" in task["preamble"]
    assert "find_zero" not in task["setup"]
    assert task["tests"] == [row["test"] + "\ncheck(find_zero)\n"]


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("assert add(1, 2) == 3", "add"),
        ("assert set(similar((1,), (2,))) == set((1,))", "similar"),
        ("assert not len(f(g(1)))", "f"),
        ("assert sum(1, 2) == 3", "sum"),
    ],
)
def test_the_entry_point_of_a_row_of_mbpp(test, name):
    assert mbpp_task({"task_id": 1, "test_list": [test]})["entry_point"] == name


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (humaneval_task, {"prompt": "def f(:", "entry_point": "f", "test": ""}),
        (humaneval_task, {"prompt": "def f():"}),
        (mbpp_task, {"test_list": []}),
        (mbpp_task, {"test_list": ["assert True"]}),
        (leetcode_task, {"tests": "{'functional': 1}"}),
        (leetcode_task, {"tests": "nonsense("}),
        (contest_task, {"tests": "nonsense("}),
    ],
)
def test_rows_that_cannot_be_read_are_refused(make, row):
    with pytest.raises(DataError):
        make(row)


def shared(name):
    folder = os.environ.get("BRORL_SHARED")
    if not folder:
        pytest.skip("BRORL_SHARED is not set")
    path = Path(folder) / "data" / name
    data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    return json.loads(data) if ".jsonl" not in name else list(map(json.loads, data.splitlines()))


def failing(rows):
    """Ids of the (id, task, program) whose program does not pass, with the reason."""
    verifier = CodeVerifier(timeout_s=30.0, total_s=60.0)
    with GraderPool(workers=2, deadline_s=5.0) as pool:
        tickets = [
            pool.submit(verifier, problem_id=str(i), text=code, gold=None, row={"task": task})
            for i, task, code in rows
        ]
        verdicts = pool.gather(tickets)
    return {
        row[0]: v.reason
        for row, v in zip(rows, verdicts, strict=True)
        if v.kind is not Kind.CORRECT
    }


@needs_bubblewrap
@pytest.mark.slow
def test_reference_solutions_of_humaneval_pass():
    rows = [
        (r["task_id"], humaneval_task(r), r["prompt"] + r["canonical_solution"])
        for r in shared("humaneval/HumanEval.jsonl.gz")
    ]
    assert len(rows) == 164
    assert failing(rows) == {}


@needs_bubblewrap
@pytest.mark.slow
def test_reference_solutions_of_mbpp_pass():
    rows = [(r["task_id"], mbpp_task(r), r["code"]) for r in shared("mbpp/mbpp.jsonl")]
    assert len(rows) == 974
    assert failing(rows) == {}


@needs_bubblewrap
@pytest.mark.slow
def test_reference_solutions_of_leetcode_pass_but_for_two_packages():
    """A box holds the standard library: 14 solutions want sortedcontainers or numpy."""
    rows = [
        (i, leetcode_task(r), r["solutions"])
        for i, r in enumerate(shared("leetcode/test.json") + shared("leetcode/train.json"))
    ]
    reasons = failing(rows)
    missing = ("No module named 'sortedcontainers' (of 1)", "No module named 'numpy' (of 1)")
    assert [i for i, why in reasons.items() if not why.endswith(missing)] == []
    wanting = [
        i
        for i, _, code in rows
        if "import" in code and ("sortedcontainers" in code or "numpy" in code)
    ]
    assert sorted(reasons) == wanting


@needs_bubblewrap
def test_a_sample_of_each_benchmark_passes_and_its_mutants_do_not():
    """Twelve reference solutions, and the same with every returned value wrapped in a list."""
    rows = [
        (r["task_id"], humaneval_task(r), r["prompt"] + r["canonical_solution"])
        for r in shared("humaneval/HumanEval.jsonl.gz")[:164:30]
    ]
    rows += [(r["task_id"], mbpp_task(r), r["code"]) for r in shared("mbpp/mbpp.jsonl")[:974:170]]
    assert failing(rows) == {}

    class Wrap(ast.NodeTransformer):
        def visit_Return(self, node):
            return ast.Return(ast.List([node.value or ast.Constant(None)], ast.Load()))

    mutants = [
        (i, task, ast.unparse(ast.fix_missing_locations(Wrap().visit(ast.parse(code)))))
        for i, task, code in rows
    ]
    assert failing(mutants).keys() == {i for i, _, _ in rows}


def test_all_rows_of_the_contest_sets_are_read():
    rows = shared("code_contests/test.json") + shared("codeforces/test.json")
    tasks = [read_task({"task": contest_task(r)}) for r in rows]
    assert len(tasks) == 165 + 408
    assert min(task.declared for task in tasks) >= 1
