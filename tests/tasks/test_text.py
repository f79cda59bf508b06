"""When two questions are the same: hand-made pairs."""

import pytest

from brorl.tasks.text import leak_key, question_key

LONG = "A farmer walks from his house to the nearest market town every single morning. He needs "


@pytest.mark.parametrize(
    ("a", "b"), [("rev ab=", "rev  ab= "), ("e\u0301", "\u00e9"), ("a\nb", "a b")]
)
def test_same_question(a, b):
    assert question_key(a) == question_key(b)
    assert leak_key(a) == leak_key(b)


@pytest.mark.parametrize(
    ("a", "b"), [("rev Ab=", "rev ab="), ("3 - 4", "3 + 4"), ("1.2", "12"), ("a.b", "ab")]
)
def test_short_questions_differ_by_any_character(a, b):
    assert question_key(a) != question_key(b)
    assert leak_key(a) != leak_key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("$x^2,$ steps.", "x^2 steps"),
        (r"\[x^{2}\] steps", "$x^2$ steps"),
        ("TWO steps", "two steps"),
    ],
)
def test_long_questions_match_through_typesetting(a, b):
    assert question_key(LONG + a) != question_key(LONG + b)
    assert leak_key(LONG + a) == leak_key(LONG + b)


@pytest.mark.parametrize(
    ("a", "b"), [("3 - 4", "3 + 4"), ("1.2", "12"), ("X.X", "XX."), ("a", "b")]
)
def test_long_questions_still_differ_by_what_they_ask(a, b):
    assert leak_key(LONG + a) != leak_key(LONG + b)
