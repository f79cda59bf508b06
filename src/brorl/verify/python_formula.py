"""Formulas in Python's spelling (3*x**2 + sin(x)/2), parsed but never evaluated as code.

The text becomes a syntax tree of arithmetic, names and known functions, or nothing; the tree is
worked out with mpmath node by node, with a bound on every power.
"""

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from brorl.verify.math_number import TooLarge

MAX_LENGTH = 600  # characters
MAX_POWER = 10_000  # absolute value of an exponent
FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "sinh", "cosh"}
    | {"tanh", "asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs"}
)
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_RENAMED = {"ln": "log", "Abs": "fabs"}


def parse(text: str) -> ast.expr | None:
    """The tree of a formula; None for anything else that Python would understand, or would not."""
    if len(text) > MAX_LENGTH or "\n" in text:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_formula(tree) else None


def _is_formula(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        known = type(node.op) in _OPERATORS or isinstance(node.op, ast.Pow)
        return known and _is_formula(node.left) and _is_formula(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.UAdd) and _is_formula(node.operand)
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        return known and len(node.args) == 1 and not node.keywords and _is_formula(node.args[0])
    return isinstance(node, ast.Name) and (len(node.id) == 1 or node.id == "pi")


def is_expanded(node: ast.expr) -> bool:
    """Whether no sum stands inside of a product or under a power: (x + 1)*x is not expanded."""
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and not isinstance(each.op, ast.Add | ast.Sub):
            for side in (each.left, each.right):
                if any(
                    isinstance(below, ast.BinOp) and isinstance(below.op, ast.Add | ast.Sub)
                    for below in ast.walk(side)
                ):
                    return False
    return True


@functools.lru_cache(maxsize=4)
def context(digits: int) -> Any:
    """An mpmath context of its own, so that the library's global one stays as it is."""
    import mpmath  # type: ignore[import-untyped]

    own = mpmath.MPContext()
    own.dps = digits
    return own


def value(node: ast.expr, names: Mapping[str, Any], mp: Any) -> Any:
    """The value of a tree from `parse`.

    Raises:
        TooLarge: an exponent beyond MAX_POWER.
        ZeroDivisionError, ValueError, KeyError: not defined here, or a name without a value.
    """
    if isinstance(node, ast.BinOp):
        left, right = value(node.left, names, mp), value(node.right, names, mp)
        if not isinstance(node.op, ast.Pow):
            return _OPERATORS[type(node.op)](left, right)
        if abs(right) > MAX_POWER or abs(left) > mp.mpf(10) ** MAX_POWER:
            raise TooLarge
        return mp.power(left, right)
    if isinstance(node, ast.UnaryOp):
        inside = value(node.operand, names, mp)
        return -inside if isinstance(node.op, ast.USub) else inside
    if isinstance(node, ast.Constant):
        return mp.mpf(repr(node.value))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inside = value(node.args[0], names, mp)
        if abs(inside) > mp.mpf(10) ** 6:
            raise TooLarge
        return getattr(mp, _RENAMED.get(node.func.id, node.func.id))(inside)
    assert isinstance(node, ast.Name)
    return mp.pi if node.id == "pi" else names[node.id]


def is_antiderivative(answer: ast.expr, integrand: ast.expr, variable: str) -> bool | None:
    """Whether d answer / d variable = integrand, by a central difference to 60 digits.

    (F(x + h) - F(x - h)) / 2h with h = 1e-50 at 160 digits is right to about 1e-95; other letters
    (the constant C) get fixed values. None if there are fewer than three points to look at.
    """
    mp = context(160)
    step = mp.mpf(10) ** -50
    agreed = 0
    for point in ("0.37", "0.91", "1.83", "2.71", "-0.43", "-1.29"):
        x = mp.mpf(point)
        try:
            rest = {name: mp.mpf(ord(name)) / 71 for name in _letters(answer) | _letters(integrand)}
            sides = [value(answer, rest | {variable: x + h}, mp) for h in (step, -step)]
            slope = (sides[0] - sides[1]) / (2 * step)
            wanted = value(integrand, rest | {variable: x}, mp)
        except (ZeroDivisionError, ValueError, KeyError, OverflowError):
            continue
        if not (mp.isfinite(slope) and mp.isfinite(wanted)):
            continue
        if abs(slope - wanted) > mp.mpf(10) ** -40 * (1 + abs(wanted)):
            return False
        agreed += 1
    return True if agreed >= 3 else None


def same_polynomial(answer: ast.expr, gold: ast.expr) -> bool:
    """Equal at five points to 50 digits; all letters get independent values."""
    mp = context(160)
    for point in range(1, 6):
        names = {
            name: mp.mpf(ord(name) * point * point + 7) / 101
            for name in _letters(answer) | _letters(gold)
        }
        left, right = value(answer, names, mp), value(gold, names, mp)
        if abs(left - right) > mp.mpf(10) ** -50 * (1 + abs(right)):
            return False
    return True


def _letters(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and len(n.id) == 1}
