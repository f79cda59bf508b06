"""Whether an answer's value is the gold's. Not symmetric: the gold says what kind is asked for."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from brorl.verify.math_number import Number, terminates
from brorl.verify.math_structure import is_name
from brorl.verify.math_symbolic import constant_value, same_function, same_up_to_factor
from brorl.verify.math_value import (
    Based,
    Bracket,
    Expr,
    Infinity,
    Many,
    Matrix,
    Relation,
    Union,
    Value,
    Words,
)

APPROXIMATE_DIGITS = 6  # significant digits from which a decimal may stand for pi or 1/3


class Outcome(NamedTuple):
    """What comparing gave: equal, different, or None if the answer cannot be read, and the rule."""

    equal: bool | None
    rule: str


def compare(gold: Value, answer: Value, *, strict: bool) -> Outcome:
    """Compare two values.

    Args:
        gold: what the reference denotes.
        answer: what the answer denotes.
        strict: no approximations, no dropped units, no dropped percent sign.

    Raises:
        TooLarge: a formula that cannot be worked out within bounds.
    """
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _relations(gold, answer, strict)
    if isinstance(gold, Many) or isinstance(answer, Many):
        return _lists(gold, answer, strict)
    if isinstance(gold, Number) and isinstance(answer, Number):
        return _numbers(gold, answer, strict)
    if isinstance(gold, Bracket) and isinstance(answer, Bracket):
        return _brackets(gold, answer, strict)
    if isinstance(gold, Union) and isinstance(answer, Union):
        return _matching(gold.parts, answer.parts, strict, "union of the same parts")
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        return _matrices(gold, answer, strict)
    if isinstance(gold, Based) and isinstance(answer, Based):
        same = (gold.digits.lstrip("0"), gold.base) == (answer.digits.lstrip("0"), answer.base)
        return Outcome(same, "digits and base")
    if isinstance(gold, Based) or isinstance(answer, Based):
        return Outcome(False, "one has a base, the other has none")
    if isinstance(gold, Infinity) and isinstance(answer, Infinity):
        return Outcome(gold == answer, "infinity")
    return _leaves(gold, answer, strict)


def _leaves(gold: Value, answer: Value, strict: bool) -> Outcome:
    """Numbers, formulas and words against each other."""
    if isinstance(gold, Words) and isinstance(answer, Words) and gold.text == answer.text:
        return Outcome(True, "same words")
    if isinstance(gold, Words) and not gold.latex:
        letter = answer.latex if isinstance(answer, Expr) else ""
        if len(gold.text) == 1 and letter.lower() == gold.text:
            return Outcome(True, "same letter")
        return Outcome(False, "not the gold's words")
    if isinstance(answer, Words) and not answer.latex:
        if isinstance(gold, Expr) and len(answer.text) == 1:
            return Outcome(gold.latex.lower() == answer.text, "letter")
        return Outcome(None, "words, but the gold is a value")
    left, right = _formula(gold), _formula(answer)
    if left is None or right is None:
        return Outcome(False, f"{_kind(answer)} against {_kind(gold)}")
    if not _units_agree(_unit(gold), _unit(answer), strict):
        return Outcome(False, "other unit")
    if left == right:
        return Outcome(True, "equal formula")
    if any(isinstance(v, Expr) and v.opaque for v in (gold, answer)):
        return Outcome(None, "sums, limits, dots and quantifiers count only as equal text")
    same = same_function(left, right)
    if same is False and not strict and _approximates(gold, answer):
        return Outcome(True, f"decimal right to at least {APPROXIMATE_DIGITS} digits")
    if same is None:
        return Outcome(None, "cannot be read as a formula")
    return Outcome(same, "equal at all points" if same else "another value")


def _numbers(gold: Number, answer: Number, strict: bool) -> Outcome:
    if not _units_agree(gold.unit, answer.unit, strict):
        return Outcome(False, "other unit")
    if gold.value == answer.value:
        return Outcome(True, "equal number")
    if not strict and gold.percent != answer.percent:
        hundredfold = [n.value * 100 if n.percent else n.value for n in (gold, answer)]
        if hundredfold[0] == hundredfold[1]:
            return Outcome(True, "equal number, percent sign dropped on one side")
    if not strict:
        for decimal, exact in ((gold, answer), (answer, gold)):
            if _enough_digits(decimal) and not terminates(exact.value):
                close = abs(decimal.value - exact.value) < Fraction(1, 10**decimal.places)
                return Outcome(close, f"decimal to at least {APPROXIMATE_DIGITS} digits")
    return Outcome(False, "another number")


def _enough_digits(value: Value) -> bool:
    return isinstance(value, Number) and (value.digits or 0) >= APPROXIMATE_DIGITS


def _approximates(gold: Value, answer: Value) -> bool:
    """A long decimal within one unit of its last place of a formula without symbols."""
    for decimal, formula in ((answer, gold), (gold, answer)):
        if isinstance(decimal, Number) and _enough_digits(decimal) and isinstance(formula, Expr):
            value = constant_value(formula.latex)
            if value is None or getattr(value, "imag", 0) != 0:
                return False
            scaled = abs(value * 10**decimal.places - int(decimal.value * 10**decimal.places))
            return bool(scaled < 1)
    return False


def _brackets(gold: Bracket, answer: Bracket, strict: bool) -> Outcome:
    if (gold.left, gold.right) != (answer.left, answer.right):
        return Outcome(False, "other brackets")
    if gold.name and answer.name and gold.name != answer.name:
        return Outcome(False, "about another variable")
    return _in_order(gold.items, answer.items, strict, "same entries in order")


def _in_order(gold: Sequence[Value], answer: Sequence[Value], strict: bool, rule: str) -> Outcome:
    if len(gold) != len(answer):
        return Outcome(False, f"{len(answer)} entries, not {len(gold)}")
    for g, a in zip(gold, answer, strict=True):
        outcome = compare(g, a, strict=strict)
        if not outcome.equal:
            return outcome
    return Outcome(True, rule)


def _matrices(gold: Matrix, answer: Matrix, strict: bool) -> Outcome:
    if gold.determinant != answer.determinant or len(gold.rows) != len(answer.rows):
        return Outcome(False, "matrix of another kind or shape")
    for g, a in zip(gold.rows, answer.rows, strict=True):
        outcome = _in_order(g, a, strict, "")
        if not outcome.equal:
            return outcome
    return Outcome(True, "same matrix")


def _lists(gold: Value, answer: Value, strict: bool) -> Outcome:
    """Several values count only against a gold that has several."""
    golds = gold.items if isinstance(gold, Many) else (gold,)
    answers = answer.items if isinstance(answer, Many) else (answer,)
    if not isinstance(gold, Many) and isinstance(answer, Many):
        if len(answers) == 1 and answer.braces and not strict:
            return compare(gold, answers[0], strict=strict)
        return Outcome(False, f"{len(answers)} values where one is asked for")
    both_sets = all(isinstance(v, Many) and v.braces for v in (gold, answer))
    if both_sets:
        golds, answers = _distinct(golds, strict), _distinct(answers, strict)
    return _matching(golds, answers, strict, "same values in any order")


def _distinct(items: Sequence[Value], strict: bool) -> tuple[Value, ...]:
    kept: list[Value] = []
    for item in items:
        if not any(compare(other, item, strict=strict).equal for other in kept):
            kept.append(item)
    return tuple(kept)


def _matching(golds: Sequence[Value], answers: Sequence[Value], strict: bool, rule: str) -> Outcome:
    """Every gold has one answer of its own and none is left over."""
    if len(golds) != len(answers):
        return Outcome(False, f"{len(answers)} values, not {len(golds)}")
    left = list(answers)
    for g in golds:
        found = next((a for a in left if compare(g, a, strict=strict).equal), None)
        if found is None:
            return Outcome(False, "a value of the gold is missing")
        left.remove(found)
    return Outcome(True, rule)


def _relations(gold: Value, answer: Value, strict: bool) -> Outcome:
    """x = 5 against 5, f(x) = 2x against f(t) = 2t, equations up to a factor."""
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        if gold.texts == answer.texts and gold.operators == answer.operators:
            return Outcome(True, "equal relation")
        sides = _definition(gold), _definition(answer)
        if sides[0] and sides[1]:
            return _definitions(sides[0], sides[1], strict)
        return _equations(gold, answer)
    if isinstance(answer, Relation):
        value = _definition(answer)
        if value is None:
            return Outcome(False, "a relation that does not say what one thing is")
        return compare(gold, value[1], strict=strict)
    assert isinstance(gold, Relation)
    value = _definition(gold)
    if value is None:
        return Outcome(False, "not the relation asked for")
    return compare(value[1], answer, strict=strict)


def _definition(relation: Relation) -> tuple[str, Value] | None:
    """(name, value) of "x = ... = value"; None if the chain is false or defines nothing.

    After an "approximately" nothing counts, unless nothing came before it but the name. Numbers
    in the chain must all be equal: "43 = 42" says nothing.
    """
    pairs = list(zip(relation.texts, relation.members, strict=True))
    if r"\approx" in relation.operators:
        cut = relation.operators.index(r"\approx") + 1
        if any(not is_name(text) for text, _ in pairs[:cut]):
            if not _roughly(pairs[cut - 1][1], pairs[cut][1]):
                return None
            pairs = pairs[:cut]
    if any(op not in ("=", r"\approx") for op in relation.operators):
        return None
    names = [text for text, _ in pairs if is_name(text)]
    values = [member for text, member in pairs if not is_name(text)]
    if not values:
        return (names[0], pairs[-1][1]) if len(names) == len(pairs) else None
    ends = is_name(pairs[0][0]) or is_name(pairs[-1][0])
    numbers = [v for v in values if isinstance(v, Number)]
    if not ends and len(numbers) != len(values) and len(pairs) > 1:
        return None
    if any(n.value != numbers[0].value for n in numbers):
        return None
    return (names[0] if names else ""), values[-1]


def _roughly(exact: Value, rounded: Value) -> bool:
    """Whether a chain may go on with this number: to within a tenth, where both are numbers."""
    if not isinstance(rounded, Number):
        return False
    if not isinstance(exact, Number):
        return True
    return abs(exact.value - rounded.value) <= abs(exact.value) / 10


def _definitions(gold: tuple[str, Value], answer: tuple[str, Value], strict: bool) -> Outcome:
    if gold[0] and answer[0] and gold[0] != answer[0]:
        renamed = _renaming(gold[0], answer[0])
        if renamed is None:
            return Outcome(False, "about another name")
        left, right = _formula(gold[1]), _formula(answer[1])
        same = same_function(left, right, rename=renamed) if left and right else None
        return Outcome(same, "same function of another argument")
    return compare(gold[1], answer[1], strict=strict)


_FUNCTION_OF = re.compile(r"(\\?[A-Za-z]+)\(([A-Za-z])\)")


def _renaming(gold: str, answer: str) -> dict[str, str] | None:
    """f(x) and f(t): the answer's t stands for x."""
    g, a = _FUNCTION_OF.fullmatch(gold), _FUNCTION_OF.fullmatch(answer)
    return {a[2]: g[2]} if g and a and g[1] == a[1] else None


def _equations(gold: Relation, answer: Relation) -> Outcome:
    """lhs = rhs up to a constant factor; other relations only as equal text."""
    if gold.operators == answer.operators == ("=",):
        same = same_up_to_factor((gold.texts[0], gold.texts[1]), (answer.texts[0], answer.texts[1]))
        if same is not None:
            return Outcome(same, "equations up to a factor")
    return Outcome(False, "not the relation asked for")


def _formula(value: Value) -> str | None:
    if isinstance(value, Number):
        value_text = str(value.value.numerator)
        if value.value.denominator != 1:
            return rf"\frac{{{value_text}}}{{{value.value.denominator}}}"
        return value_text
    if isinstance(value, Expr):
        return value.latex
    return value.latex or None if isinstance(value, Words) else None


def _unit(value: Value) -> str:
    return value.unit if isinstance(value, Number | Expr) else ""


def _units_agree(gold: str, answer: str, strict: bool) -> bool:
    return gold == answer or (not strict and not (gold and answer))


def _kind(value: Value) -> str:
    return type(value).__name__.lower()
