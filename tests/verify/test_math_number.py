"""Exact numbers against Python's own Fraction, through expressions whose value is known."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.verify.math_number import MAX_BITS, TooLarge, read_number, terminates
from brorl.verify.math_text import clean


def expressions(depth=3):
    """(LaTeX, exact value) built together, so that the value comes from Fraction and not from us."""
    leaf = st.one_of(
        st.integers(0, 999).map(lambda n: (str(n), Fraction(n))),
        st.tuples(st.integers(0, 99), st.integers(0, 999)).map(
            lambda p: (f"{p[0]}.{p[1]:03d}", Fraction(p[0] * 1000 + p[1], 1000))
        ),
    )
    if depth == 0:
        return leaf
    below = expressions(depth - 1)

    def combine(args):
        (a, x), (b, y), how = args
        if how in ("+", "-", r"\cdot"):
            value = {"+": x + y, "-": x - y, r"\cdot": x * y}[how]
            return f"({a}) {how} ({b})", value
        if how == "frac":
            return (rf"\frac{{{a}}}{{{b}}}", x / y) if y else (a, x)
        return f"({a})^{{2}}", x * x

    ways = st.sampled_from(["+", "-", r"\cdot", "frac", "square"])
    return st.one_of(leaf, st.tuples(below, below, ways).map(combine))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions())
def test_matches_fraction_arithmetic(pair):
    latex, value = pair
    assert read_number(clean(latex)).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2^2", Fraction(-4)),  # the sign binds weaker than the power
        ("2^-3", Fraction(1, 8)),
        ("3*-2", Fraction(-6)),
        ("1-1/4", Fraction(3, 4)),
        ("1 1/4", Fraction(5, 4)),
        (r"-1\frac{1}{4}", Fraction(-5, 4)),
        ("5!/3!", Fraction(20)),
        ("2(3)(4)", Fraction(24)),
        (r"\binom{4}{2}", Fraction(6)),
        ("1,234,567", Fraction(1234567)),
        ("(-1)^{10^{20}}", Fraction(1)),
        ("1/2/3", Fraction(1, 6)),
        (r"\frac12\frac13", Fraction(1, 6)),
    ],
)
def test_by_hand(text, value):
    assert read_number(clean(text)).value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2 3",
        "1/0",
        "0^0",
        "0^{-1}",
        "2^{1/2}",
        "3!!",
        "(-3)!",
        "1.2.3",
        "1_000",
        "12 34/5",
        "2\\frac{3}{2}",
        "3 - -2",
        "(1",
        "1)",
        "1,23",
        "٣",
        "1e",
        "1e5e5",
        "0x10",
        "+",
        "-",
    ],
)
def test_what_is_no_number(text):
    assert read_number(clean(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9}}",
        "3001!",
        f"2^{{{MAX_BITS + 1}}}",
        "1e99999",
        "9" * 5000,
        "(" * 60 + "1" + ")" * 60,
        r"\binom{9999}{3}",
        "1.5^{90000}",
    ],
)
def test_too_large_says_so(text):
    """Attack: refused before anything large is worked out."""
    with pytest.raises(TooLarge):
        read_number(text)


def test_terminating_decimals_by_definition():
    """A fraction terminates if and only if some power of ten clears its denominator."""
    for lower in range(1, 200):
        value = Fraction(1, lower)
        assert terminates(value) == any((10**k) % lower == 0 for k in range(12)), lower


def test_significant_digits_by_hand():
    assert [
        (n.digits, n.places) for n in map(read_number, ("3.1416", "0.00120", "12", "-2.5"))
    ] == [
        (5, 4),
        (3, 5),
        (None, 0),
        (2, 1),
    ]
