"""Formulas in Python's spelling against sympy's calculus, and as an attack surface."""

import pytest
import sympy

from brorl.verify import python_formula as pf
from brorl.verify.math_number import TooLarge

X = sympy.Symbol("x")


@pytest.mark.parametrize(
    "integrand",
    ["x**3 - 2*x", "cos(3*x)", "exp(x)*x", "1/(1+x**2)", "x*sin(x)", "1/x", "sqrt(x)"],
)
def test_antiderivatives_against_sympy(integrand):
    """Oracle: sympy integrates; anything added that is no constant is noticed."""
    F = sympy.integrate(sympy.sympify(integrand), X)
    wanted = pf.parse(integrand)
    assert pf.is_antiderivative(pf.parse(f"{F} + C"), wanted, "x") is True
    for wrong in (f"{F} + x/10**9", f"2*({F})", integrand, "0"):
        assert pf.is_antiderivative(pf.parse(wrong), wanted, "x") is False, wrong


def test_polynomials_against_sympy():
    gold = pf.parse(str(sympy.expand((X + 2) ** 3 * (X - 5))))
    assert pf.same_polynomial(pf.parse("(x+2)**3*(x-5)"), gold)
    assert not pf.same_polynomial(pf.parse("(x+2)**3*(x-5) + x**9/10**12"), gold)


def test_expanded_by_hand():
    expanded = ["x**2 + 3*x + 2", "-152*y**5 - 2907*y**4", "3*(-x)", "x*(2*y)"]
    products = ["(x+1)*(x+2)", "(x+1)**2", "x*(x+1) + 2", "2*(x-1)", "3/(x+1)"]
    assert [pf.is_expanded(pf.parse(t)) for t in expanded] == [True] * 4
    assert [pf.is_expanded(pf.parse(t)) for t in products] == [False] * 5


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "open('/etc/passwd')",
        "x.__class__",
        "Integral(x, x)",
        "(lambda: 1)()",
        "[x]",
        "x if x else x",
        "x; x",
        "x\nx",
        "f'{x}'",
        "'x'",
        "True",
        "1j",
        "sin(x, x)",
        "sin(x=1)",
        "sin",
        "xy",
        "x := 3",
        "x or 1",
        "x % 2",
        "x // 2",
        "x @ x",
        "(" * 300 + "x" + ")" * 300,
        "x" + "+x" * 400,
        "",
    ],
)
def test_only_formulas_are_formulas(text):
    """Attack: what Python would run, and what it would choke on."""
    assert pf.parse(text) is None


@pytest.mark.parametrize("text", ["9**9**9**9", "x**99999999", "exp(exp(exp(x*99)))", "10**10**6"])
def test_powers_are_bounded(text):
    with pytest.raises(TooLarge):
        pf.is_antiderivative(pf.parse(text), pf.parse("x"), "x")
