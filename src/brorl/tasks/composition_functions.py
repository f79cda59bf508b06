"""Functions from text to text, to be nested: what a policy is to learn and then to compose.

Our own selection and wording, after the setting of Yuan et al. 2025, arXiv:2509.25123. A fixed half
is for training; the other half is seen in evaluation only.
"""

from collections.abc import Callable
from typing import NamedTuple

_VOWELS = "aeiou"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class TextFunction(NamedTuple):
    """A total function on lower-case text and a sentence that defines it."""

    apply: Callable[[str], str]
    meaning: str


def _shift(text: str, by: int) -> str:
    return "".join(_ALPHABET[(_ALPHABET.index(c) + by) % 26] if c in _ALPHABET else c for c in text)


def _runs(text: str) -> str:
    """aab becomes 2a1b."""
    out, i = [], 0
    while i < len(text):
        j = i
        while j < len(text) and text[j] == text[i]:
            j += 1
        out.append(f"{j - i}{text[i]}")
        i = j
    return "".join(out)


TRAIN = {
    "reverse": TextFunction(lambda s: s[::-1], "writes the text backwards"),
    "double": TextFunction(lambda s: s + s, "writes the text twice in a row"),
    "rotate": TextFunction(lambda s: s[1:] + s[:1], "moves the first character to the end"),
    "sort": TextFunction(lambda s: "".join(sorted(s)), "sorts the characters"),
    "novowels": TextFunction(
        lambda s: "".join(c for c in s if c not in _VOWELS), "removes the letters a, e, i, o and u"
    ),
    "bracket": TextFunction(lambda s: f"[{s}]", "puts the text between square brackets"),
    "prefix": TextFunction(lambda s: "za" + s, "puts za in front"),
    "next": TextFunction(
        lambda s: _shift(s, 1), "replaces each letter by the next one in the alphabet, z by a"
    ),
    "stutter": TextFunction(lambda s: "".join(c + c for c in s), "writes every character twice"),
    "head": TextFunction(lambda s: s[: (len(s) + 1) // 2], "keeps the first half, rounded up"),
    "dashes": TextFunction("-".join, "puts a dash between neighbouring characters"),
    "mirror": TextFunction(lambda s: s + s[::-1], "adds the text backwards"),
    "swap": TextFunction(
        lambda s: "".join(s[i : i + 2][::-1] for i in range(0, len(s), 2)),
        "swaps the characters of each pair, from the left",
    ),
}
HELD_OUT = {
    "suffix": TextFunction(lambda s: s + "xo", "puts xo at the end"),
    "back": TextFunction(
        lambda s: _shift(s, -1), "replaces each letter by the one before it, a by z"
    ),
    "unique": TextFunction(
        lambda s: "".join(dict.fromkeys(s)), "keeps the first of equal characters"
    ),
    "tail": TextFunction(lambda s: s[len(s) // 2 :], "keeps the second half, rounded up"),
    "odd": TextFunction(lambda s: s[::2], "keeps the 1st, 3rd, 5th ... character"),
    "ends": TextFunction(
        lambda s: s[-1:] + s[1:-1] + s[:1] if len(s) > 1 else s,
        "swaps the first and the last character",
    ),
    "count": TextFunction(_runs, "replaces each run of equal characters by its length and it"),
    "vowels": TextFunction(
        lambda s: "".join(str(_VOWELS.index(c) + 1) if c in _VOWELS else c for c in s),
        "replaces a, e, i, o, u by 1, 2, 3, 4, 5",
    ),
    "thrice": TextFunction(lambda s: s * 3, "writes the text three times in a row"),
    "down": TextFunction(
        lambda s: "".join(sorted(s, reverse=True)), "sorts the characters from last to first"
    ),
    "weave": TextFunction(
        lambda s: "".join(a + b for a, b in zip(s, s[::-1], strict=True)),
        "takes turns between the text and the text backwards",
    ),
    "inner": TextFunction(lambda s: s[1:-1] or s, "drops both ends of a text of three or more"),
}
