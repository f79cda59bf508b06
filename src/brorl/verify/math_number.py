r"""Exact rational numbers from cleaned LaTeX: no floats, no library, nothing evaluated as code.

A small grammar of digits, + - * / ^ !, brackets, \frac and \binom. What it cannot read is None;
what it reads is exact, with bounds on the size of every intermediate result.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_BITS = 60_000  # of a numerator or denominator: 2006! has 19,000
MAX_FACTORIAL = 3_000
MAX_LENGTH = 12_000  # characters of an expression
MAX_DEPTH = 40  # nested brackets

_DECIMAL = re.compile(r"[+-]?\s*(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)")
_THOUSANDS = re.compile(r"([+-]?)\s*([0-9]{1,3}(?:,[0-9]{3})+)((?:\.[0-9]+)?)")
_MIXED = re.compile(
    r"([+-]?)\s*([0-9]{1,40})\s*"
    r"(?:(?<=\s)([0-9]{1,40})\s*/\s*([0-9]{1,40})"
    r"|\\frac\s*\{\s*([0-9]{1,40})\s*\}\s*\{\s*([0-9]{1,40})\s*\})"
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5}(?![0-9]))?)"
    r"|(?P<command>\\(?:frac|binom|cdot|times|div))|(?P<symbol>[-+*/^!(){}]))"
)


class TooLarge(Exception):
    """A number that would need more than MAX_BITS bits, or brackets beyond MAX_DEPTH."""


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational number and how it was written.

    Attributes:
        value: exact; of "28%" it is 28/100.
        digits: significant digits of a plain decimal fraction such as 3.1416, else None.
        places: its digits after the point.
        percent: whether it was written with a percent sign.
        unit: canonical unit, "" if there was none.
    """

    value: Fraction
    digits: int | None = None
    places: int = 0
    percent: bool = False
    unit: str = ""


def read_number(text: str) -> Number | None:
    """The number that the whole of a cleaned text is, None if it is none.

    Raises:
        TooLarge: a number all right, but not one to be worked out.
    """
    text = text.strip()
    if not text or len(text) > MAX_LENGTH or not any(c.isdigit() for c in text):
        return None
    if grouped := _THOUSANDS.fullmatch(text):
        text = grouped[1] + grouped[2].replace(",", "") + grouped[3]
    elif mixed := _MIXED.fullmatch(text):
        return _mixed(mixed)
    try:
        value = _Reader(text).whole()
    except _NotANumber:
        return None
    return Number(value, *_decimal(text))


def terminates(value: Fraction) -> bool:
    """Whether a decimal fraction can be equal to `value`: only 2 and 5 divide the denominator."""
    rest = value.denominator
    rest >>= (rest & -rest).bit_length() - 1
    while rest % 5 == 0:
        rest //= 5
    return rest == 1


def _mixed(match: re.Match[str]) -> Number | None:
    """Seven and a half: an integer and a proper fraction side by side."""
    whole = int(match[2])
    upper = int(match[3] or match[5])
    lower = int(match[4] or match[6])
    if not 0 < upper < lower:
        return None
    value = whole + Fraction(upper, lower)
    return Number(-value if match[1] == "-" else value)


def _decimal(text: str) -> tuple[int | None, int]:
    """(significant digits, places) of a plain decimal fraction; (None, 0) of anything else."""
    if "." not in text or not _DECIMAL.fullmatch(text):
        return None, 0
    digits = re.sub(r"[^0-9]", "", text).lstrip("0")
    return len(digits), len(text.strip().partition(".")[2])


class _NotANumber(Exception):
    """The text is something else."""


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _NotANumber
            self._tokens.append(match[0].strip())
            position = match.end()
        self._next = 0
        self._depth = 0

    def whole(self) -> Fraction:
        value = self._sum()
        if self._next != len(self._tokens):
            raise _NotANumber
        return value

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1] if self._next <= len(self._tokens) else ""

    def _sum(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge
        value = self._signed()
        while self._peek() in ("+", "-"):
            sign = self._take()
            term = self._product()
            value = _bounded(value + term if sign == "+" else value - term)
        self._depth -= 1
        return value

    def _signed(self) -> Fraction:
        if self._peek() in ("+", "-"):
            sign = self._take()
            value = self._product()
            return -value if sign == "-" else value
        return self._product()

    def _product(self) -> Fraction:
        value = self._power()
        while True:
            token = self._peek()
            if token in ("*", r"\cdot", r"\times"):
                self._take()
                value = _bounded(value * self._factor())
            elif token in ("/", r"\div"):
                self._take()
                value = _bounded(_divide(value, self._factor()))
            elif token == "(" or (token in (r"\frac", r"\binom") and self._after_bracket()):
                value = _bounded(value * self._power())
            else:
                return value

    def _after_bracket(self) -> bool:
        return self._tokens[self._next - 1] in (")", "}")

    def _factor(self) -> Fraction:
        """After an operator a sign may follow: 3 * -2."""
        if self._peek() == "-":
            self._take()
            return -self._power()
        return self._power()

    def _power(self) -> Fraction:
        value = self._postfix()
        if self._peek() != "^":
            return value
        self._take()
        return _power(value, self._exponent())

    def _postfix(self) -> Fraction:
        value = self._atom()
        if self._peek() != "!":
            return value
        self._take()
        if self._peek() == "!":  # n!! is the double factorial, not (n!)!
            raise _NotANumber
        return _factorial(value)

    def _exponent(self) -> Fraction:
        token = self._peek()
        if token == "-":
            self._take()
            return -self._exponent()
        if token in ("{", "("):
            return self._power() if token == "(" else self._postfix()
        if token[:1].isdigit():  # without braces LaTeX takes one digit, people mean the number
            return self._atom()
        raise _NotANumber

    def _atom(self) -> Fraction:
        token = self._take()
        if token in ("(", "{"):
            value = self._sum()
            if self._take() != {"(": ")", "{": "}"}[token]:
                raise _NotANumber
            return value
        if token == r"\frac":
            upper = self._argument()
            return _bounded(_divide(upper, self._argument()))
        if token == r"\binom":
            upper = self._argument()
            return _binomial(upper, self._argument())
        if token[:1].isdigit() or token[:1] == ".":
            return _literal(token)
        raise _NotANumber

    def _argument(self) -> Fraction:
        r"""A group, or as in \frac12 one digit: the rest of the number stays for the next."""
        token = self._peek()
        if token in ("{", r"\frac"):
            return self._atom()
        if token.isdigit():
            if len(token) > 1:
                self._tokens[self._next] = token[1:]
            else:
                self._next += 1
            return Fraction(int(token[0]))
        raise _NotANumber


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLarge
    return value


def _literal(token: str) -> Fraction:
    mantissa, _, exponent = token.lower().partition("e")
    if len(mantissa) > 4_000 or (exponent and abs(int(exponent)) > MAX_BITS // 4):
        raise TooLarge
    return Fraction(f"{mantissa.rstrip('.') or '0'}{'e' + exponent if exponent else ''}")


def _divide(upper: Fraction, lower: Fraction) -> Fraction:
    if lower == 0:
        raise _NotANumber
    return upper / lower


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or (base == 0 and exponent <= 0):
        raise _NotANumber
    power = exponent.numerator
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and base != 0 and abs(power) * size > MAX_BITS:
        raise TooLarge
    if abs(base) == 1:
        return base if power % 2 else base * base
    return base**power


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise _NotANumber
    if value > MAX_FACTORIAL:
        raise TooLarge
    return Fraction(math.factorial(value.numerator))


def _binomial(upper: Fraction, lower: Fraction) -> Fraction:
    if upper.denominator != 1 or lower.denominator != 1 or not 0 <= lower <= upper:
        raise _NotANumber
    if upper > MAX_FACTORIAL:
        raise TooLarge
    return Fraction(math.comb(upper.numerator, lower.numerator))
