"""What a piece of mathematics denotes: numbers, lists, intervals, relations, words."""

from dataclasses import dataclass

from brorl.verify.math_number import Number


@dataclass(frozen=True, slots=True)
class Words:
    """Text that is no formula, lower case, without brackets and full stop.

    `latex` keeps what was written where it was not marked as text: "ab" may be a product.
    """

    text: str
    latex: str = ""


@dataclass(frozen=True, slots=True)
class Expr:
    """A formula, squeezed. `opaque` ones (sums, limits, "...") are compared as text only."""

    latex: str
    unit: str = ""
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a stated base, such as 52_8."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Infinity:
    """Plus or minus infinity."""

    negative: bool


@dataclass(frozen=True, slots=True)
class Bracket:
    """A pair, tuple or interval: order and kind of bracket count. `name` is x of "x > 3"."""

    left: str
    items: tuple["Value", ...]
    right: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Many:
    """Several values without order: a set in braces, a list, both signs of a plus-minus."""

    items: tuple["Value", ...]
    braces: bool


@dataclass(frozen=True, slots=True)
class Union:
    """A union of intervals and sets."""

    parts: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain a op b op c; `texts` are the members as written, `members` what they denote."""

    texts: tuple[str, ...]
    members: tuple["Value", ...]
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple["Value", ...], ...]
    determinant: bool  # vmatrix: bars instead of brackets


Value = Number | Words | Expr | Based | Infinity | Bracket | Many | Union | Relation | Matrix
