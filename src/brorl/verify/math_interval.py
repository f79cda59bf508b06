"""Inequalities about one name are intervals: x > 3, a < x <= b, "x > 3 and x < 5"."""

from brorl.verify.math_structure import is_name
from brorl.verify.math_text import squeeze
from brorl.verify.math_value import Bracket, Infinity, Union, Value

_LESS = {"<": "(", r"\leq": "["}
_MORE = {">": "(", r"\geq": "["}


def interval(texts: list[str], members: tuple[Value, ...], ops: list[str]) -> Bracket | None:
    """x < a, a > x, a < x < b and the like, with x a name, as intervals."""
    if len(texts) == 2:
        if is_name(texts[1]) and not is_name(texts[0]):  # a < x is x > a
            flip = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"}
            return interval(texts[::-1], members[::-1], [flip.get(ops[0], "")])
        if not is_name(texts[0]) or is_name(texts[1]):
            return None
        name = squeeze(texts[0])
        if ops[0] in _LESS:
            right = {"(": ")", "[": "]"}[_LESS[ops[0]]]
            return Bracket("(", (Infinity(True), members[1]), right, name)
        if ops[0] in _MORE:
            return Bracket(_MORE[ops[0]], (members[1], Infinity(False)), ")", name)
        return None
    if len(texts) == 3 and is_name(texts[1]):
        if ops[0] in _MORE and ops[1] in _MORE:
            flip = {">": "<", r"\geq": r"\leq"}
            return interval(texts[::-1], members[::-1], [flip[op] for op in reversed(ops)])
        if ops[0] in _LESS and ops[1] in _LESS:
            right = {"(": ")", "[": "]"}[_LESS[ops[1]]]
            return Bracket(_LESS[ops[0]], (members[0], members[2]), right, squeeze(texts[1]))
    return None


def joined_inequalities(items: tuple[Value, ...], joints: list[str]) -> Value | None:
    """ "x > 3 and x < 5" is one interval, "x < 3 or x > 5" a union of two."""
    named = [item for item in items if isinstance(item, Bracket) and item.name]
    if len(items) != 2 or len(named) != 2 or named[0].name != named[1].name:
        return None
    first, second = named
    if "or" in joints[0].lower():
        return Union((first, second))
    low, high = (first, second) if isinstance(first.items[1], Infinity) else (second, first)
    if isinstance(low.items[1], Infinity) and isinstance(high.items[0], Infinity):
        return Bracket(low.left, (low.items[0], high.items[1]), high.right, low.name)
    return None
