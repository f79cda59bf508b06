"""Attacks and hand-made cases: what a text commits to, and what it only mentions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.verify.extract import boxed_answer, closing_answer, final_part, find_boxes


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\fbox{42}", "42"),
        (r"\boxed {42}", "42"),
        (r"the set {1, 2 and \boxed{42}", "42"),  # a brace of the prose is never closed
        (r"\boxed{41}. No, that fails: \boxed{42}", "42"),
        (r"\boxed{35 cm} first. What is asked: \boxed{4}", "4"),
        (r"\boxed{41} + 1 = \boxed{42}", "42"),  # a calculation, not a list
        (r"\boxed{42} \boxed{42} \boxed{42}", "42"),
        (r"\boxed{41} or \boxed{42}", r"41 \text{ or } 42"),
        (r"$\boxed{41}$, $\boxed{42}$ and $\boxed{43}$", r"41 \text{ or } 42 \text{ or } 43"),
        (r"\boxed{41} (or maybe it is \boxed{42})", r"41 \text{ or } 42"),
        ("\\boxed{41}\n\n\\boxed{42}", r"41 \text{ or } 42"),
        (r"\boxed{41}, alternatively \boxed{42}", r"41 \text{ or } 42"),
    ],
)
def test_last_box_and_joined_boxes(text, answer):
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 42.",
        r"\boxed{42",  # cut
        r"\boxed{41} and so \boxed{42",  # cut in the box that would replace the first
        r"\boxed{}",
        r"\boxed{   }",
        r"\boxed 42",
        r"\boxed{" + "9" * 20_000 + "}",
    ],
)
def test_no_box_no_answer(text):
    assert boxed_answer(text) is None


def test_nested_boxes_are_one():
    assert [b.content for b in find_boxes(r"\boxed{a \boxed{b} c} \boxed{d}").complete] == [
        r"a \boxed{b} c",
        "d",
    ]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: **73**", "73"),
        ("Answer: $13$", "$13$"),
        ("steps\n#### 42\n", "42"),
        ("So, the final answer is 42.", "42"),
        ("The final answer is $x$. I hope it is correct.", "$x$"),
        ("**Answer:** 42", "42"),
    ],
)
def test_closing_line(text, answer):
    assert closing_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "I doubt that the answer is 42",
        "It is not true that the final answer is 42",
        "The answer is 42.\nBut let me check that again",  # no longer the last line
        "#### 42\nThe steps above agree with this result.",
        "There are 42 apples.",
        "Answer:",
        "answer 42",
        "42",
    ],
)
def test_a_mention_is_no_closing_line(text):
    assert closing_answer(text) is None


def test_thinking_is_not_answering():
    assert final_part(r"<think>\boxed{42}</think> hm") == " hm"
    assert final_part(r"\boxed{42}</think> hm") == " hm"  # the prompt opened it
    assert final_part(r"<think>\boxed{42}") is None
    assert final_part(r"<think>a</think> b <think> \boxed{42}") is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet="\\boxed{}fab 1\n$or", max_size=80))
def test_total_and_never_from_outside_a_box(text):
    """Attack: whatever is extracted stands in the text, inside complete boxes."""
    answer = boxed_answer(text)
    if answer is not None:
        contents = {box.content.strip() for box in find_boxes(text).complete}
        assert set(answer.split(r" \text{ or } ")) <= contents | {answer}
    closing_answer(text)
    final_part(text)


def test_linear_in_hostile_texts():
    """Attack: depth and count in the ten thousands; quadratic code would take minutes here."""
    for text in (
        r"\boxed{" * 7_000,
        r"\boxed{" * 3_500 + "}" * 3_500,
        r"\boxed{42} " * 5_000,
        "{" * 50_000,
        "\\" * 50_000,
        "answer is " * 5_000,
    ):
        boxed_answer(text)
        closing_answer(text)
