"""Attacks on the reader's terminal and eyes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.report.text import one_line, printable, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[31mcorrect", "\\x1b[2J\\x1b[31mcorrect"),  # clears the screen
        ("wrong\rright", "wrong\\x0dright"),  # writes over the line
        ("a\u202ecorrect", "a\\u202ecorrect"),  # right to left from here
        ("1\u200b2", "1\\u200b2"),  # looks like 12
        ("a\x00b\x9bm", "a\\x00b\\x9bm"),  # NUL and the one-byte escape
        ("x\ud800y", "x\\ud800y"),  # no character at all
        ("t\U000e0041", "t\\U000e0041"),  # a tag: invisible text
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # Persian is spelt with a joiner
    ],
)
def test_invisible_characters_are_written_out(text, shown):
    assert printable(text) == shown


@given(st.text())
def test_no_control_or_direction_is_left(text):
    left = {unicodedata.category(c) for c in printable(text) if c not in "\n\t\u200c\u200d"}
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(c) for c in printable(text)} & {
        "RLO",
        "LRO",
        "RLE",
        "LRE",
        "PDF",
        "RLI",
        "LRI",
        "FSI",
        "PDI",
    }


@given(st.text(min_size=1, max_size=300), st.integers(3, 200))
def test_shortening_says_how_much_it_left_out(text, limit):
    """Identity: what is kept and what is said to be left out add up to the text."""
    got = shorten(text, limit)
    if len(text) <= limit:
        assert got == text
        return
    tail = limit // 3
    marker = got[limit - tail : len(got) - tail]
    assert got.startswith(text[: limit - tail])
    assert got.endswith(text[-tail:])
    assert int("".join(c for c in marker if c.isascii() and c.isdecimal())) == len(text) - limit


def test_one_line_is_one_line():
    assert one_line("a\n\x1bb\u2028c\td", 100) == "a⏎\\x1bb\\u2028c d"
