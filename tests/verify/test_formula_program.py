"""One-line programs by unit tests: by hand, against Python itself, and what must not be paid."""

import pytest

from brorl.errors import VerifierError
from brorl.verify.formula_program import FormulaProgram
from brorl.verify.verdict import Kind

TESTS = ["assert f(3) == 7", "assert f(0) == 1", "assert f(-2) == -3"]  # 2 x + 1


def judged(text, tests=TESTS):
    verifier = FormulaProgram()
    extracted = verifier.extract(text, {})
    assert extracted is not None
    return verifier.grade(extracted, gold=None, row={"tests": tests}).kind


@pytest.mark.parametrize(
    "text",
    ["f=lambda x:2*x+1", "f=lambda x:1+x+x", "f=lambda x: -(-2*x) + 1", " f=lambda x:x*2+1\n"],
)
def test_right_programs(text):
    assert judged(text) is Kind.CORRECT


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("f=lambda x:7", Kind.WRONG),  # the first test alone
        ("f=lambda x:2*x-1", Kind.WRONG),
        ("2*x+1", Kind.UNGRADABLE),
        ("f=lambda y:2*y+1", Kind.UNGRADABLE),
        ("f=lambda x:2*y+1", Kind.UNGRADABLE),
        ("f=lambda x:2x+1", Kind.UNGRADABLE),
        ("f=lambda x:2*x+1;f=0", Kind.UNGRADABLE),
        ("f=lambda x:2.0*x+1", Kind.UNGRADABLE),  # Python would pass it; a policy need not
        ("f=lambda x:True", Kind.UNGRADABLE),
        ("f=lambda x:__import__('os')", Kind.UNGRADABLE),
        ("f=lambda x:9**9**9", Kind.UNGRADABLE),
        ("f=lambda x:" + "(" * 300 + "x" + ")" * 300, Kind.UNGRADABLE),
        ("f=lambda x:" + "9*" * 290 + "9", Kind.WRONG),
        ("f=lambda x:2*x+1\nf=lambda x:0", Kind.UNGRADABLE),
        ("assert f(3) == 7", Kind.UNGRADABLE),
    ],
)
def test_attacks_and_mistakes(text, kind):
    assert judged(text) is kind


def test_what_passes_here_passes_in_python():
    """Oracle: every formula of two signs over small terms, by eval."""
    terms = ["x", "2", "-3", "(x+1)"]
    for a in terms:
        for b in terms:
            for c in terms:
                for body in (f"{a}*{b}+{c}", f"{a}-{b}*{c}", f"-{a}*({b}-{c})"):
                    f = eval(f"lambda x:{body}")
                    tests = [f"assert f({x}) == {f(x)}" for x in (-4, 0, 11)]
                    assert judged(f"f=lambda x:{body}", tests) is Kind.CORRECT
                    off = [*tests, f"assert f(5) == {f(5) + 1}"]
                    assert judged(f"f=lambda x:{body}", off) is Kind.WRONG


@pytest.mark.parametrize("tests", [[], None, ["assert f(3) > 7"], ["import os"]])
def test_other_rows_are_refused(tests):
    with pytest.raises(VerifierError, match="needs tests like"):
        judged("f=lambda x:x", tests)
