"""Exact match: identities, and the two empties that must never be equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.verify.exact import ExactMatch
from brorl.verify.verdict import Kind

V = ExactMatch()


@given(st.text(min_size=1).filter(str.strip), st.sampled_from(["", " ", "\n\t"]))
def test_a_text_equals_itself_with_white_space_around(text, space):
    assert V.grade(V.extract(space + text + space, {}), gold=text, row={}).kind is Kind.CORRECT


@pytest.mark.parametrize("text", ["Ab", "a b", "ab.", "abc", "xab", "ａｂ"])
def test_anything_else_is_wrong(text):
    assert V.grade(V.extract(text, {}), gold="ab", row={}).kind is Kind.WRONG


@pytest.mark.parametrize("gold", ["", "  ", None])
def test_two_empties_never_match(gold):
    """Attack: an empty gold against an empty answer, which other graders pay in full."""
    assert V.extract(" \n", {}) is None
    assert V.grade("", gold=gold, row={}).kind is Kind.GRADER_ERROR
    assert V.grade("", gold="a", row={}).kind is Kind.NO_ANSWER
