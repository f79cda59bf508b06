"""Equality of formulas against sympy's algebra, which the code under test does not use."""

import random

import pytest
import sympy

from brorl.verify.math_number import TooLarge
from brorl.verify.math_symbolic import constant_value, readable, same_function, same_up_to_factor
from brorl.verify.math_text import clean

X, Y = sympy.symbols("x y", positive=True)


def random_expression(rng, depth):
    if depth == 0:
        return rng.choice([X, Y, sympy.Integer(rng.randint(1, 9)), sympy.pi, sympy.sqrt(2)])
    a, b = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    return rng.choice(
        [a + b, a * b, a - b, a / (b**2 + 1), sympy.sin(a) + b, sympy.sqrt(a**2 + 1), a**2]
    )


@pytest.mark.parametrize("seed", range(12))
def test_rewritten_formulas_are_equal_and_changed_ones_are_not(seed):
    """Oracle: sympy rewrites (expand, factor, together), and adds something that is not zero."""
    rng = random.Random(seed)
    original = random_expression(rng, 2)
    rewritten = rng.choice([sympy.expand, sympy.factor, sympy.together])(original)
    changed = rewritten + rng.choice([sympy.Rational(1, 10**9), X**-2, sympy.sin(Y) / 10**6])
    first, second, third = (clean(sympy.latex(e)) for e in (original, rewritten, changed))
    assert same_function(first, second) is True
    assert same_function(first, third) is False


def test_cancellation_is_not_a_value():
    assert same_function(r"\sin(x)^2+\cos(x)^2-1", "0") is True
    assert same_function(r"\sin(x)^2+\cos(x)^2-1", "10^{-100}") is False


@pytest.mark.parametrize("exponent", [20, 99, 150, 290])
def test_tiny_differences_are_seen(exponent):
    """Attack: six decimals, or an absolute bound, would call these equal."""
    assert same_function("x", rf"x + 10^{{-{exponent}}}") is False
    assert same_function("x", rf"x \cdot (1 + 10^{{-{exponent}}})") is False
    assert (
        same_function(
            rf"\frac{{\pi}}{{2^{{{exponent}}}}}", rf"\frac{{\pi}}{{2^{{{exponent + 1}}}}}"
        )
        is False
    )


def test_equations_up_to_a_factor_only():
    assert same_up_to_factor(("34x+45y+100", "20z"), ("40z", "68x+90y+200")) is True
    assert same_up_to_factor(("y", "2x+1"), ("y", "2x-1")) is False
    assert same_up_to_factor(("y", "2x"), ("y^2", "4x^2")) is False
    assert same_up_to_factor(("0", "1"), ("1", "2")) is None  # nothing to compare
    assert same_up_to_factor(("x", "x"), ("y", "y")) is None  # always true is no equation


def test_unknown_functions_are_told_apart_by_name_and_argument():
    assert same_function("f(t)+1", "1+f(t)") is True
    assert same_function("f(t)", "f(s)") is False
    assert same_function("f(t)", "g(t)") is False
    assert same_function("f(x)", "f(t)", rename={"t": "x"}) is True


def test_constants_to_sixty_digits():
    assert str(constant_value(r"\sqrt{2}"))[:52] == str(sympy.sqrt(2).evalf(60))[:52]
    assert constant_value("x") is None


@pytest.mark.parametrize("latex", [r"42_{43}", r"42 \foo", "4 2", r"\text{or} x", "'x'_2", "x ? y"])
def test_what_the_parser_would_drop_is_refused(latex):
    """Attack: latex2sympy reads 42_{43} as 42 and skips commands it does not know."""
    assert not readable(latex)
    assert same_function("42", latex) is None


@pytest.mark.parametrize(
    "latex",
    ["x^{10^{9}}", "(10^{9})!", r"e^{e^{e^{9}}}", r"9^{9^{9}} x", "x" * 601, r"\sin" * 40 + "x"],
)
def test_large_formulas_are_refused_not_worked_out(latex):
    try:
        outcome = same_function(latex, "x")
    except TooLarge:
        outcome = None
    assert outcome is None
