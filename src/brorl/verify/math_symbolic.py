r"""Whether two formulas are the same function: read by latex2sympy, compared by value.

The parser is that of math-verify. Its comparison is not used: it rounds to six decimals, so that
1/2^99 = 1/2^98, takes the last member of any chain of equations, and may hang. Instead both
formulas are worked out with mpmath at pseudo-random points, to hundreds of digits, by a walk over
the tree that refuses anything large. Nothing is simplified, solved, or evaluated as code.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from brorl.verify.math_number import TooLarge
from brorl.verify.math_walk import POINTS, PRECISIONS, SCALES, Undefined, Walk, is_real

MAX_FORMULA = 600  # characters
DEEP_POINTS = 2  # points that are worked out to every precision
_TOLERANCES = {1: 1e-45, 3: 1e-300}  # relative, by how many precisions there are

_TOO_COMPLEX = re.compile(r"\^[^{}]?\{[^{}]*\^[^{}]*\{[^{}]*\^|(?:[({\[][^(){}\[\]]*){25}")
# What may stand in a formula at all: the parser drops some of what it does not know.
_ALLOWED = re.compile(r"[A-Za-z0-9 +\-*/^_(){}\[\]|.,!'\\]+")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)")
_KNOWN = re.compile(
    r"[Aa]lpha|[Bb]eta|[Gg]amma|[Dd]elta|(?:var)?[Ee]psilon|[Zz]eta|[Ee]ta|(?:var)?[Tt]heta|[Ii]ota"
    r"|[Kk]appa|[Ll]ambda|[Mm]u|[Nn]u|[Xx]i|[Pp]i|(?:var)?rho|[Ss]igma|[Tt]au|[Uu]psilon"
    r"|(?:var)?[Pp]hi|[Cc]hi|[Pp]si|[Oo]mega|hbar|ell|prime|odot|infty|mathcal|mathbb|circ"
    r"|frac|sqrt|binom|cdot|times|div|text|[lr]floor|[lr]ceil|max|min|gcd|lcm|det|ln|log|exp"
    r"|(?:arc)?(?:sin|cos|tan|cot|sec|csc)|(?:sin|cos|tan|cot)h|d?dot|hat|bar|tilde|vec|Re|Im|arg"
)
# An index or a prime on something that is no name: the parser drops it, and 42_{43} is no 42.
_INDEXED_NUMBER = re.compile(r"(?:^|[^A-Za-z_^{0-9.])[0-9.]+\s*[_']|[)!|'\s]\s*[_']|^'")
_TEXT_LETTER = re.compile(r"\\text\{([A-Za-z])\}")
_ENERGY = re.compile(r"(?<![A-Za-z\\])E_")  # the parser takes E for e, and then chokes on E_1
_TEXT = re.compile(r"(?<!_\{)\\text\{[^{}]*\}")  # words; those in a subscript are part of a name
_TWO_NUMBERS = re.compile(r"[0-9.]\s+[0-9.]")


class Unreadable(Exception):
    """The formula is not one that the parser knows."""


@functools.lru_cache(maxsize=4096)
def parse_formula(latex: str) -> Any:
    """A sympy tree, unevaluated.

    Raises:
        Unreadable: the parser does not know it.
        TooLarge: longer than MAX_FORMULA, or nested beyond reason.
    """
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    if len(latex) > MAX_FORMULA or _TOO_COMPLEX.search(latex):
        raise TooLarge
    if not _ALLOWED.fullmatch(latex) or _INDEXED_NUMBER.search(latex):
        raise Unreadable
    if not all(_KNOWN.fullmatch(name) for name in _COMMAND.findall(latex)):
        raise Unreadable
    latex = _TEXT_LETTER.sub(r" \1 ", latex).replace(r"\odot", "o")
    latex = _ENERGY.sub(r"\\Upsilon_", latex)
    if _TEXT.search(latex) or _TWO_NUMBERS.search(latex):
        raise Unreadable
    try:
        return latex2sympy(
            latex,
            conversion_config=ConversionConfig(
                interpret_as_mixed_fractions=False,
                interpret_simple_eq_as_assignment=False,
                interpret_contains_as_eq=False,
                lowercase_symbols=False,
            ),
        )
    except (RecursionError, MemoryError) as error:
        raise TooLarge from error
    except Exception as error:  # the parser raises bare Exceptions, and sympy's own on odd trees
        raise Unreadable from error


def readable(latex: str) -> bool:
    """Whether the parser knows a formula of this size."""
    try:
        parse_formula(latex)
    except (Unreadable, TooLarge):
        return False
    return True


def same_function(
    gold: str, answer: str, *, rename: Mapping[str, str] | None = None
) -> bool | None:
    """Whether two formulas agree wherever both are real; None if that cannot be told.

    Args:
        gold: squeezed LaTeX.
        answer: squeezed LaTeX.
        rename: symbols of the answer that stand for symbols of the gold.

    Raises:
        TooLarge: working one of them out would take too long.
    """
    try:
        trees = parse_formula(gold), parse_formula(answer)
    except Unreadable:
        return None
    renames: tuple[Mapping[str, str], Mapping[str, str]] = ({}, rename or {})
    constant = not any(_symbols(tree) for tree in trees)
    agreed = 0
    for point in range(1 if constant else POINTS):
        same = None
        # Where few digits say no, it may be cancellation: then, and at first, all are asked.
        for digits in (PRECISIONS[:1], PRECISIONS)[point < DEEP_POINTS :]:
            values = [_values(t, point, r, digits) for t, r in zip(trees, renames, strict=True)]
            if values[0] is None or values[1] is None:
                break
            if point >= len(SCALES) and not all(is_real(v) for v in (*values[0], *values[1])):
                break  # branches of roots differ where neither formula is real
            same = _agree(values[0], values[1])
            if same:
                break
        if same is False:
            return False
        agreed += same is True
    return True if agreed >= (1 if constant else 3) else None


def same_up_to_factor(gold: tuple[str, str], answer: tuple[str, str]) -> bool | None:
    """Whether lhs - rhs of two equations differ by a constant factor; None if unknown.

    Both must depend on something: 0 = 0 and 1 = 2 are not compared.
    """
    try:
        trees = [parse_formula(side) for side in (*gold, *answer)]
    except Unreadable:
        return None
    if not (_symbols(trees[0]) | _symbols(trees[1])) or not (
        _symbols(trees[2]) | _symbols(trees[3])
    ):
        return None
    ratios = []
    for point in range(POINTS):
        sides = [_values(tree, point, {}, PRECISIONS[:1]) for tree in trees]
        high = [side[0] for side in sides if side is not None]
        if len(high) < len(sides):
            continue
        below = high[2] - high[3]
        if below == 0 or high[0] == high[1]:
            return None
        ratios.append((high[0] - high[1]) / below)
    if len(ratios) < 4:
        return None
    return all(abs(r / ratios[0] - 1) < 1e-40 for r in ratios)


def constant_value(latex: str) -> Any:
    """The value of a formula without symbols, 60 digits (mpmath); None if it has none."""
    try:
        tree = parse_formula(latex)
    except Unreadable:
        return None
    if _symbols(tree):
        return None
    values = _values(tree, 0, {}, PRECISIONS[:1])
    return None if values is None else values[0]


def _agree(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    """Equal to (almost) all digits, or a difference that shrinks as the digits grow in number.

    The second is rounding left over where large terms cancel; the first alone would call
    sin(x)^2 + cos(x)^2 - 1 another function than 0, and an absolute bound 1/2^99 equal to 1/2^98.
    """
    gaps = [abs(a - b) for a, b in zip(gold, answer, strict=True)]
    size = max(abs(gold[-1]), abs(answer[-1]))
    if gaps[-1] <= size * _TOLERANCES[len(gaps)]:
        return True
    return len(gaps) > 1 and bool(gaps[-1] <= max(gaps[:-1]) * 1e-60)


def _symbols(tree: Any) -> frozenset[str]:
    names = {str(s) for s in getattr(tree, "free_symbols", ())}
    return frozenset(names - {"i"})


def _values(
    tree: Any, point: int, rename: Mapping[str, str], digits: Sequence[int]
) -> tuple[Any, ...] | None:
    """The value at one point to each of the precisions, None where it has none."""
    try:
        return tuple(Walk(d, point, rename).value(tree) for d in digits)
    except Undefined:
        return None
    except TooLarge:
        if point % len(SCALES) == len(SCALES) - 1 and _symbols(tree):
            return None  # e to the e to the 9000 is no fault of the formula
        raise
