"""Multiple choice: hand-made cases, and attacks that hedge."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.verify.choice import ChoiceVerifier, read_options
from brorl.verify.verdict import Kind

V = ChoiceVerifier("options")
CITIES = {"options": ["Rome", "Paris", "Bern"]}


def judge(text, gold, row):
    extracted = V.extract(text, row)
    return Kind.NO_ANSWER if extracted is None else V.grade(extracted, gold=gold, row=row).kind


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("B", {}),
        ("(B)", {}),
        ("The answer is B.", {}),
        ("**Answer: (b)**", {}),
        (r"so \boxed{\text{(B)}}", {}),
        (r"\boxed{B}", CITIES),
        ("Answer: B) Paris", CITIES),
        ("Answer: paris", CITIES),
        (r"\boxed{\text{Paris}}", CITIES),
        ("<think>A? No.</think>\nAnswer: B", CITIES),
    ],
)
def test_right(text, row):
    assert judge(text, "B", row) is Kind.CORRECT
    if row:
        assert judge(text, "Paris", row) is Kind.CORRECT  # a gold may be the option's text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "A or B",
        "A, B",
        r"\boxed{A, B}",
        r"\boxed{A} or \boxed{B}",
        r"\boxed{\text{A, B, C}}",
        "Answer: A) Paris",  # letter and text disagree
        "Answer: Paris or Rome",
        "Answer: E",
        "B is tempting.\nI do not know.",
        "Paris is the capital of France.",
        "Answer: the one that is right",
        "<think>B",
    ],
)
def test_nothing_for_hedges_and_mentions(text):
    """Attack: every way to name two options, or to name the right one without choosing it."""
    assert judge(text, "B", CITIES) is not Kind.CORRECT


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="ABCab()., \\{}orboxed$", max_size=30), st.sampled_from(["A", "C"]))
def test_no_text_is_right_for_two_golds(text, other):
    """Identity: one text, one choice."""
    right = [g for g in ("B", other) if judge(text, g, {}) is Kind.CORRECT]
    assert len(right) < 2


def test_gold_must_be_an_option():
    assert judge("B", "Berlin", CITIES) is Kind.GRADER_ERROR
    assert V.unreadable("Berlin", CITIES) == "gold 'Berlin' is no letter and no option"
    assert V.unreadable("D", CITIES) is not None
    assert V.unreadable("Bern", CITIES) is None


def test_options_by_hand():
    assert read_options(["A) one", "B) two"]) == {"A": "one", "B": "two"}
    assert read_options({"a": "one"}) == {"A": "one"}
    assert read_options(["one", "two"]) == {"A": "one", "B": "two"}
    assert read_options("one, two") == {}


def test_write_is_the_inverse_of_extract():
    for gold in ("B", "Paris"):
        assert judge(V.write(gold, CITIES), gold, CITIES) is Kind.CORRECT
