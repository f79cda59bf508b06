"""Honest programs of every kind, what is told of the others, and how a program is found."""

import pickle
import textwrap

import pytest

from brorl.errors import VerifierError
from brorl.verify.code import CodeVerifier, extract_code
from brorl.verify.code_runner import runner
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind

from .boxes import BUBBLEWRAP, needs_bubblewrap
from .code_programs import HONEST, TOLD, function, stdin

VERIFIER = CodeVerifier(timeout_s=5.0, total_s=10.0)


@pytest.fixture(scope="module", autouse=True)
def _boxes_end_with_the_module():
    yield
    if BUBBLEWRAP and runner.cache_info().currsize:  # without it no test here opened a box
        runner(VERIFIER.limits, unsafe_local=False).close()


def grade(code, task, verifier=VERIFIER):
    return verifier.grade(textwrap.dedent(code), gold=None, row={"task": task})


@needs_bubblewrap
@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(name):
    verdict = grade(*HONEST[name])
    assert verdict.kind is Kind.CORRECT, verdict


@needs_bubblewrap
@pytest.mark.parametrize("name", TOLD)
def test_what_is_told_of_other_programs(name):
    code, task, kind, reason = TOLD[name]
    verdict = grade(code, task)
    assert (verdict.kind, verdict.score) == (kind, 0.0)
    # A message of Python's own compiler differs between versions: only its beginning is held to.
    assert verdict.reason.startswith(reason) if reason.endswith(": ") else verdict.reason == reason
    assert verdict.extracted == code


@needs_bubblewrap
@pytest.mark.parametrize(
    ("code", "task", "score"),
    [
        ("def f(x): return x", function(*(f"assert f({i}) == {i % 2}" for i in range(8))), 2 / 8),
        # Ends in the third test: the other five are declared, so they count, and as failed.
        (
            "import os\ndef f(x): return x if x < 2 else os._exit(0)",
            function(*(f"assert f({i}) == {i}" for i in range(8))),
            2 / 8,
        ),
        (
            "n = int(input())\nprint(n if n != 1 else 0)",
            stdin(("0", "0"), ("1", "1"), ("2", "2")),
            2 / 3,
        ),
        ("import sys\nsys.exit()", function("assert f()", "assert f()"), 0.0),
    ],
)
def test_partial_credit_is_a_share_of_the_declared_tests(code, task, score):
    """Hand-computed: passed tests over declared ones."""
    partial = CodeVerifier(partial=True, timeout_s=5.0, total_s=10.0)
    verdict = grade(code, task, partial)
    assert (verdict.kind, verdict.score) == (Kind.WRONG, score)
    assert grade(code, task).score == 0.0


@needs_bubblewrap
@pytest.mark.parametrize(
    ("task", "message"),
    [
        (function(), "at least one test, got none"),
        (stdin(), "at least one test, got none"),
        (function("assert f( =="), "the tests do not compile"),
        (function("import numpy\nassert f()"), "the tests cannot import what they need"),
        (
            function("assert f(lambda: 1)"),
            "an argument of type function cannot be sent to a program",
        ),
        (
            {"kind": "shell", "tests": ["true"]},
            "task.kind must be one of function, stdin, got 'shell'",
        ),
    ],
)
def test_broken_tests_are_no_wrong_answer(task, message):
    with pytest.raises(VerifierError, match=message):
        grade("def f(*a): return 1", task)
    assert grade("def f(): return 1", function("assert f() == 1")).kind is Kind.CORRECT


@needs_bubblewrap
def test_one_verdict_from_every_way_of_running():
    """Identity: in this process, in a pool of one, in a pool of three, and from a copy."""
    tasks = [HONEST["generator"], HONEST["big_input"], HONEST["works_in_place"]]
    tasks += [(code, task) for code, task, *_ in list(TOLD.values())[:8]]
    want = [grade(code, task) for code, task in tasks]
    for workers in (1, 3):
        with GraderPool(workers=workers, deadline_s=1.0) as pool:
            verifier = pickle.loads(pickle.dumps(VERIFIER))
            tickets = [
                pool.submit(
                    verifier,
                    problem_id=str(i),
                    text=textwrap.dedent(code),
                    gold=None,
                    row={"task": task},
                )
                for i, (code, task) in enumerate(tasks)
            ]
            assert pool.gather(tickets) == want


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1\n", "x = 1\n"),
        ("", None),
        (" \n", None),
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\n```text\nPASSED\n```", "x = 1\n"),
        ("```python\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```", "def f(): pass\n"),
        ("```python\nclass f: pass\n```\n```python\nx = f\n```", "class f: pass\n"),
        ("```python\nx = 1\n```\n```python\n\n```", "x = 1\n"),
        ("```text\nPASSED\n```", None),
        ("```python\nx = 1", None),  # cut off
        ("```python\nx = 1\n```\n```python\nx = 2", "x = 1\n"),
        ("<think>\n```python\nx = 1\n```\n</think>\n```python\nx = 2\n```", "x = 2\n"),
        ("<think>\n```python\nx = 1\n```", None),  # never finished thinking
        (
            'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
            'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
        ),
        ("~ ```python x = 1``` in the line", "~ ```python x = 1``` in the line"),
    ],
)
def test_which_part_of_a_text_is_the_program(text, found):
    assert extract_code(text, "f") == found


@needs_bubblewrap
def test_rows_that_cannot_be_used_are_named_beforehand():
    assert VERIFIER.unreadable(None, {"task": function("assert f()")}) is None
    assert "at least one test" in VERIFIER.unreadable(None, {"task": function()})
    assert "task.kind" in VERIFIER.unreadable(None, {"task": {}})
