"""Programs of one line, `f=lambda x:FORMULA`, judged by unit tests without running anything.

The formula is parsed and worked out in integers, so that a task can have unit tests, some of them
hidden, at thousands of answers a second and without a sandbox. Any other Python is for
`brorl.verify.code`; what passes here passes there.
"""

import ast
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brorl.errors import VerifierError
from brorl.verify.python_formula import parse
from brorl.verify.verdict import Verdict, correct, ungradable, wrong

_PROGRAM = re.compile(r"f=lambda x:(.+)")
_TEST = re.compile(r"assert f\((-?[0-9]{1,9})\) == (-?[0-9]{1,18})")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


@dataclass(frozen=True, slots=True)
class FormulaProgram:
    """Takes the whole text as the program; integers, x, + - * and parentheses are all it knows."""

    needs_gold = False  # the tests are in the row

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        return text.strip() or None

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        """All tests of the row, `assert f(3) == 7` each. `gold` has no part in it.

        Raises:
            VerifierError: the row holds no tests, or others.
        """
        tests = [_TEST.fullmatch(test) for test in row.get("tests") or ()]
        if not tests or not all(tests):
            raise VerifierError(
                f"needs tests like 'assert f(3) == 7', got {row.get('tests')!r:.80}"
            )
        found = _PROGRAM.fullmatch(extracted)
        tree = parse(found[1]) if found else None
        try:
            passed = tree is not None and sum(
                value(tree, int(test[1])) == int(test[2]) for test in tests if test
            )
        except ValueError as error:
            return ungradable(extracted, str(error))
        if tree is None:
            return ungradable(extracted, "not f=lambda x: and a formula")
        if passed == len(tests):
            return correct(extracted, f"passed all of {passed} tests")
        return wrong(extracted, f"passed {passed} of {len(tests)} tests")


def value(node: ast.expr, x: int) -> int:
    """Of a formula at x. Raises ValueError where there is more than integers, x and + - *."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found: int = _OPERATORS[type(node.op)](value(node.left, x), value(node.right, x))
        return found
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inside = value(node.operand, x)
        return -inside if isinstance(node.op, ast.USub) else inside
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id == "x":
        return x
    raise ValueError("a formula of integers, x, + - * and parentheses is needed")
