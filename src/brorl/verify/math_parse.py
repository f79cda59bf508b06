r"""From cleaned text to what it denotes.

Only the structure is read here; what is inside a leaf is a Number, Words or an Expr that
`math_symbolic` may look at. A text is one value or none: nothing is ever picked out of it.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from brorl.verify.math_interval import interval, joined_inequalities
from brorl.verify.math_number import MAX_DEPTH, Number, TooLarge, read_number
from brorl.verify.math_structure import LISTING, closes_at_end, is_name, split_top, wraps
from brorl.verify.math_text import squeeze
from brorl.verify.math_units import split_unit
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

_RELATION = re.compile(r"<|>|=|\\(?:leq|geq|neq|approx|equiv|sim|in)(?![A-Za-z])")
_OPAQUE = re.compile(
    r"\\(?:ldots|vdots|ddots|forall|exists|sum|prod|i*int|oint|lim(?:sup|inf)?|partial|nabla|bmod"
    r"|pmod|mod|setminus|cap|Rightarrow|Leftrightarrow|to|rightarrow|implies|iff|overline|begin"
    r"|subset|subseteq|notin|not|neg|perp|parallel|cong|triangle)(?![A-Za-z])|\.\.\."
)
_MATRIX = re.compile(
    r"\\begin\s*\{([pbvB]?matrix|array)\}\s*(?:\{[clr|\s]*\})?(.*)\\end\s*\{\1\}", re.DOTALL
)
_BASED = re.compile(
    r"([+-]?[0-9A-F]+(?:\.[0-9A-F]+)?)\s*_\s*(?:\{\s*([0-9]{1,2})\s*\}|([0-9]{1,2}))"
)
_INFINITY = re.compile(r"([+-]?)\s*(?:\\infty|inf|infinity|oo)")
_WORD_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LISTED_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}")
_PLAIN_WORDS = re.compile(r"[A-Za-z]+(?:[ '’-][A-Za-z]+)*")
_REPEATING = re.compile(r"([+-]?)([0-9]{1,9})\.([0-9]{0,40})\\overline\{([0-9]{1,40})\}")


@functools.lru_cache(maxsize=4096)
def readings(text: str) -> tuple[Value, ...]:
    """What a cleaned text may denote; empty if nothing. "100,200" is a number and a list.

    Raises:
        TooLarge: brackets nested too deeply, or a number beyond all bounds.
    """
    value = _value(text)
    if value is None:
        return ()
    parts = text.strip().split(",")
    if isinstance(value, Number) and len(parts) > 1:
        numbers = [_value(part) for part in parts if not part.startswith("0")]
        known = tuple(n for n in numbers if isinstance(n, Number))
        if len(known) == len(parts):
            return value, Many(known, braces=False)
    return (value,)


def _value(text: str, depth: int = 0) -> Value | None:
    text = text.strip()
    if depth > MAX_DEPTH:
        raise TooLarge
    while wraps(text, "{", "}"):
        text = text[1:-1].strip()
    text = text.removeprefix(r"\approx").strip()
    if not text:
        return None
    if (listed := _LISTED_WORDS.fullmatch(text)) and LISTING.search(f" {listed[1]} "):
        parts, _ = split_top(f" {listed[1]} ", LISTING)
        text = ", ".join(rf"\text{{{part}}}" for part in parts if part)
        if not text:
            return None
    if (number := _number(text)) is not None:
        return number
    if matrix := _MATRIX.fullmatch(text):
        return _matrix(matrix, depth)
    if _OPAQUE.search(text):
        return Expr(squeeze(text), opaque=True)
    for read in (_many, _union, _relation, _enclosed, _ratio, _plus_minus):
        if (value := read(text, depth + 1)) is not None:
            return value
    return _leaf(text)


def _number(text: str) -> Number | None:
    if match := _REPEATING.fullmatch(text):  # 0.1\overline{6} = (16 - 1) / 90
        fixed, period = match[2] + match[3], match[4]
        scale = 10 ** len(match[3]) * (10 ** len(period) - 1)
        value = Fraction(int(fixed + period) - int(fixed), scale)
        return Number(-value if match[1] == "-" else value)
    if (number := read_number(text)) is not None:
        return number
    bare, unit = split_unit(text)
    if unit and (number := read_number(bare)) is not None:
        if unit == "percent":
            return replace(number, value=number.value / 100, places=number.places + 2, percent=True)
        return replace(number, unit=unit)
    if wraps(text, "(", ")"):  # (10,000) is a number in brackets, (1,2) is none
        inner = read_number(text[1:-1])
        return inner if inner is not None and text[1:-1].strip().endswith("000") else None
    return None


def _many(text: str, depth: int) -> Value | None:
    """A list at top level: commas, semicolons, "and", "or"."""
    parts, joints = split_top(text, LISTING)
    pieces = [(part, joint) for part, joint in zip(parts, [*joints, ""], strict=True) if part]
    if len(pieces) < 2:
        return None
    items = [_value(part, depth) for part, _ in pieces]
    if any(item is None for item in items):
        return None
    joined = _flat(item for item in items if item is not None)
    return joined_inequalities(joined, joints) or Many(joined, braces=False)


def _flat(items: Iterable[Value]) -> tuple[Value, ...]:
    """A list inside a list, such as the two values of a plus-minus, is part of the list."""
    flat: list[Value] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Many) and not item.braces else [item])
    return tuple(flat)


def _union(text: str, depth: int) -> Value | None:
    parts, _ = split_top(text, re.compile(r"\\cup(?![A-Za-z])"))
    if len(parts) < 2:
        return None
    values = [_value(part, depth) for part in parts]
    known = tuple(v for v in values if v is not None)
    return Union(known) if len(known) == len(values) else None


def _relation(text: str, depth: int) -> Value | None:
    texts, operators = split_top(text, _RELATION)
    if len(texts) < 2 or not all(texts):
        return None
    members = tuple(_value(part, depth) for part in texts)
    if any(member is None for member in members):
        return None
    known = tuple(m for m in members if m is not None)
    operators = [r"\approx" if op == r"\sim" else op for op in operators]
    if operators == [r"\in"] and isinstance(known[1], Bracket) and is_name(texts[0]):
        b = known[1]
        return Bracket(b.left, b.items, b.right, squeeze(texts[0]))
    return interval(texts, known, operators) or Relation(
        tuple(squeeze(t) for t in texts), known, tuple(operators)
    )


def _enclosed(text: str, depth: int) -> Value | None:
    r"""\{...\}, (a, b), [a, b); brackets around a single value are dropped."""
    if text.startswith(r"\{") and text.endswith(r"\}") and closes_at_end(text, 1):
        inner = text[2:-2].strip()
        if not inner:
            return Expr(r"\emptyset", opaque=True)
        if re.search(r"[|:]", inner):
            return Expr(squeeze(text), opaque=True)
        value = _value(inner, depth)
        if isinstance(value, Many):
            return Many(value.items, braces=True)
        return None if value is None else Many((value,), braces=True)
    if text[0] in "([" and text[-1] in ")]" and closes_at_end(text, 0):
        parts, _ = split_top(text[1:-1], re.compile(r"[,;]"))
        items = tuple(_value(part, depth) for part in parts)
        if len(items) > 1 and all(item is not None for item in items):
            return Bracket(text[0], tuple(i for i in items if i is not None), text[-1])
        if len(items) == 1 and (text[0], text[-1]) in (("(", ")"), ("[", "]")):
            return items[0]
    return None


def _ratio(text: str, depth: int) -> Bracket | None:
    """a : b : c, as a tuple of its own kind."""
    parts, _ = split_top(text, re.compile(":"))
    if len(parts) < 2:
        return None
    items = tuple(_value(part, depth) for part in parts)
    if any(item is None for item in items):
        return None
    return Bracket(":", tuple(item for item in items if item is not None), ":")


def _plus_minus(text: str, depth: int) -> Value | None:
    """Both values of a plus-minus, where it stands once or together with minus-plus."""
    count = len(re.findall(r"\\pm(?![A-Za-z])", text))
    if count == 0 or (count > 1 and r"\mp" not in text):
        return None
    upper = _value(text.replace(r"\pm", "+").replace(r"\mp", "-"), depth)
    lower = _value(text.replace(r"\pm", "-").replace(r"\mp", "+"), depth)
    if upper is None or lower is None:
        return None
    return Many((upper, lower), braces=False)


def _matrix(match: re.Match[str], depth: int) -> Matrix | None:
    rows = [row for row in match[2].split("\\\\") if row.strip()]
    values = tuple(tuple(_value(cell, depth + 1) for cell in row.split("&")) for row in rows)
    if not values or any(cell is None for row in values for cell in row):
        return None
    known = tuple(tuple(cell for cell in row if cell is not None) for row in values)
    return Matrix(known, match[1] == "vmatrix")


def _leaf(text: str) -> Value:
    if match := _INFINITY.fullmatch(text):
        return Infinity(match[1] == "-")
    if (match := _BASED.fullmatch(text)) and _in_base(match[1], int(match[2] or match[3])):
        return Based(match[1].lstrip("+"), int(match[2] or match[3]))
    words = _WORD_TEXT.sub(lambda m: f" {m[1]} ", text)
    plain = " ".join(words.replace(r"\ ", " ").split()).strip("()[].!? ")
    marked = words != text
    if _PLAIN_WORDS.fullmatch(plain) and (marked or any(len(w) > 1 for w in plain.split())):
        return Words(plain.lower(), "" if marked else squeeze(text))
    bare, unit = split_unit(text)
    if unit == "percent":
        return Expr(squeeze(rf"\frac{{{bare}}}{{100}}"))
    return Expr(squeeze(bare), unit)


def _in_base(digits: str, base: int) -> bool:
    return digits.lstrip("+-")[0].isdigit() and all(
        int(d, 36) < base <= 36 for d in digits if d.isalnum()
    )
