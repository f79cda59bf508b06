"""Whether what a program printed is what was expected. Total on any bytes."""

import math
import re

_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
)


def same_output(printed: bytes, expected: str, *, compare: str, tolerance: float | None) -> bool:
    """Compare as the task says; see CodeTask for `compare` and `tolerance`.

    A number against a number may differ by `tolerance`, absolutely or relative to the expected
    one, whichever is larger. nan and inf are no numbers here: they equal their own text only.
    """
    text = printed.decode("utf-8", "surrogateescape")
    if compare == "exact":
        return text == expected
    if compare == "tokens":
        got, want = [text.split()], [expected.split()]
    else:
        got, want = _lines(text), _lines(expected)
    return len(got) == len(want) and all(
        len(a) == len(b) and all(_same_token(x, y, tolerance) for x, y in zip(a, b, strict=True))
        for a, b in zip(got, want, strict=True)
    )


def _lines(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_token(got: str, want: str, tolerance: float | None) -> bool:
    if got == want:
        return True
    if tolerance is None or not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(want)):
        return False
    a, b = float(got), float(want)
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(1.0, abs(b))
