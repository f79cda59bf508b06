"""The 25 kinds of instruction: one text that follows and one that does not, made by hand."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import DataError
from brorl.verify.instruction import InstructionVerifier, read_instructions, variants
from brorl.verify.instruction_kinds import KINDS
from brorl.verify.instruction_text import highlight_count, language, sentence_count
from brorl.verify.verdict import Kind

STRICT, LOOSE = InstructionVerifier("strict", "all"), InstructionVerifier("loose", "all")
SHARED = os.environ.get("BRORL_SHARED")

ENGLISH = "this is a plain english sentence about the weather in the north of the country"
# kind: (arguments, a response that follows, responses that do not)
CASES = {
    "change_case:capital_word_frequency": (
        {"capital_relation": "at least", "capital_frequency": 2},
        "Go NOW, please, GO!",
        ["Go now, GO!"],
    ),
    "change_case:english_capital": (
        {},
        ENGLISH.upper() + ".",
        [ENGLISH, "!!! 123", ENGLISH.title()],
    ),
    "change_case:english_lowercase": ({}, ENGLISH + ".", [ENGLISH.upper(), "!!! 123"]),
    "combination:repeat_prompt": (
        {"prompt_to_repeat": "Write a song."},
        "Write a song.\n\nLa la.",
        ["La la.", "So: Write a song. La la."],
    ),
    "combination:two_responses": (
        {},
        "One.\n******\nTwo.",
        ["One.", "One.\n******\nOne.", "One.\n******\nTwo.\n******\nThree.", "One.\n******\n"],
    ),
    "detectable_content:number_placeholders": (
        {"num_placeholders": 2},
        "Dear [name], see you in [place].",
        ["Dear [name].", "Dear [] of []."],
    ),
    "detectable_content:postscript": (
        {"postscript_marker": "P.S."},
        "Bye.\nP.S. Write soon.",
        ["Bye.", "Bye.\nP.S.", "The UPS. parcel"],
    ),
    "detectable_format:constrained_response": (
        {},
        "My answer is yes.",
        ["Yes.", "My answer is yes. My answer is no. My answer is maybe."],
    ),
    "detectable_format:json_format": ({}, '```json\n{"a": 1}\n```', ["{a: 1}", 'Sure: {"a": 1}']),
    "detectable_format:multiple_sections": (
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        ["SECTION 1\na", "SECTION\nSECTION"],
    ),
    "detectable_format:number_bullet_lists": (
        {"num_bullets": 2},
        "* one\n* two",
        ["* one", "* one\n* two\n* three", "**one**\n**two**"],
    ),
    "detectable_format:number_highlighted_sections": (
        {"num_highlights": 2},
        "*one* and **two**",
        ["*one*", "** ** and * *", "*one\ntwo*"],
    ),
    "detectable_format:title": ({}, "<<Joy>>\ntext", ["Joy", "<<>>", "<< >>", "<<Joy\n>>"]),
    "keywords:existence": ({"keywords": ["sun", "rain"]}, "Rain and sun.", ["Only sun."]),
    "keywords:forbidden_words": (
        {"forbidden_words": ["rock"]},
        "Rocky roads.",
        ["A Rock.", "rock-solid"],
    ),
    "keywords:frequency": (
        {"keyword": "war", "relation": "less than", "frequency": 2},
        "No war.",
        ["War, war."],
    ),
    "keywords:letter_frequency": (
        {"letter": "q", "let_relation": "at least", "let_frequency": 2},
        "Quick queen",
        ["Quick"],
    ),
    "language:response_language": (
        {"language": "de"},
        "Das ist ein ganz gewöhnlicher deutscher Satz über das Wetter.",
        [ENGLISH, "!!!", "123"],
    ),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weekend"},
        'One.\n\n"Weekend" fun.',
        ["Weekend.\n\nTwo.", "One.\n\nTwo.\n\nweekend.", "One.\n\nWeekends."],
    ),
    "length_constraints:number_paragraphs": (
        {"num_paragraphs": 2},
        "One.\n***\nTwo.",
        ["One.", "One.\n***\n***\nTwo.", "One.\n***\nTwo.\n***\nThree."],
    ),
    "length_constraints:number_sentences": (
        {"relation": "less than", "num_sentences": 3},
        "Dr. Who came at 3.5 p.m. today. He left.",
        ["One. Two. Three."],
    ),
    "length_constraints:number_words": (
        {"relation": "at least", "num_words": 4},
        "one two three four",
        ["one two three", "... ,,, !!! ???"],
    ),
    "punctuation:no_comma": ({}, "No comma here.", ["A comma, here."]),
    "startend:end_checker": (
        {"end_phrase": "That is all."},
        "Text. That is all.",
        ["That is all. Or is it?"],
    ),
    "startend:quotation": ({}, '"Q"', ["Not quoted.", '"Half.', '"', '""']),
}


def row(kind, arguments):
    return {"instruction_id_list": [kind], "kwargs": [arguments]}


def test_there_is_a_case_for_each_of_the_25_kinds():
    assert CASES.keys() == KINDS.keys()
    assert len(KINDS) == 25


@pytest.mark.parametrize("kind", CASES)
def test_follows_and_does_not(kind):
    arguments, good, bad = CASES[kind]
    for verifier in (STRICT, LOOSE):
        assert verifier.grade(good, gold=None, row=row(kind, arguments)).kind is Kind.CORRECT
    for text in bad:
        assert STRICT.grade(text, gold=None, row=row(kind, arguments)).kind is Kind.WRONG, text


def test_empty_is_no_answer_whatever_is_asked():
    """Attack: an empty text has no comma, no forbidden word and fewer than three sentences."""
    for text in ("", "  \n", "<think>hm"):
        assert STRICT.extract(text, {}) is None
    assert STRICT.grade(" ", gold=None, row=row("punctuation:no_comma", {})).kind is Kind.NO_ANSWER
    only_stars = row("keywords:forbidden_words", {"forbidden_words": ["x"]})
    assert LOOSE.grade("Sure, x", gold=None, row=only_stars).kind is Kind.WRONG


def test_loose_forgives_the_first_line_and_asterisks():
    quoted = row("startend:quotation", {})
    assert STRICT.grade('Sure:\n"Quoted."', gold=None, row=quoted).kind is Kind.WRONG
    assert LOOSE.grade('Sure:\n"Quoted."', gold=None, row=quoted).kind is Kind.CORRECT
    assert LOOSE.grade('**"Quoted."**', gold=None, row=quoted).kind is Kind.CORRECT


def test_eight_variants_by_hand():
    assert set(variants("a*\nb\nc")) == {"a*\nb\nc", "a\nb\nc", "b\nc", "a*\nb", "a\nb", "b"}


def test_share_is_part_credit_and_all_is_not():
    """Two of three followed: 2/3 in one mode, 0 in the other."""
    three = {
        "instruction_id_list": [
            "punctuation:no_comma",
            "detectable_format:title",
            "startend:quotation",
        ],
        "kwargs": [{}, {}, {}],
    }
    text = '"<<Joy>> is here, friend"'
    share = InstructionVerifier("strict", "share").grade(text, gold=None, row=three)
    assert (share.kind, share.score) == (Kind.WRONG, pytest.approx(2 / 3))
    assert share.reason == "instructions: not followed: punctuation:no_comma"
    assert STRICT.grade(text, gold=None, row=three).score == 0.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "need lists"),
        ({"instruction_id_list": [], "kwargs": []}, "at least one"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "1 instructions but 0"),
        (row("punctuation:no_commas", {}), "unknown instruction 'punctuation:no_commas'"),
        (row("keywords:existence", {}), "keywords must be list, got None"),
        (row("keywords:existence", {"keywords": []}), "keywords must be list, got []"),
        (row("length_constraints:number_words", {"relation": "over", "num_words": 3}), "'over'"),
        (
            row("length_constraints:number_words", {"relation": "at least", "num_words": True}),
            "True",
        ),
    ],
)
def test_a_row_that_cannot_be_checked_is_our_fault(bad, message):
    with pytest.raises(DataError, match=message.replace("[", r"\[")):
        read_instructions(bad)
    assert STRICT.grade("text", gold=None, row=bad).kind is Kind.GRADER_ERROR
    assert STRICT.unreadable(None, bad) is not None


@pytest.mark.skipif(SHARED is None, reason="BRORL_SHARED is not set")
@pytest.mark.parametrize("name", ["ifeval_original", "ifeval_original_fix"])
def test_all_541_rows_parse(name):
    lines = Path(SHARED, "data", "ifeval", f"{name}.jsonl").read_text().splitlines()
    table = [json.loads(line) for line in lines]
    assert len(table) == 541
    assert {kind for r in table for kind, _ in read_instructions(r)} == KINDS.keys()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(max_size=200), st.sampled_from(sorted(set(CASES) - {"language:response_language"})))
def test_total_on_any_text(text, kind):
    """Attack: no text raises. Language detection is left out for time, see the next test."""
    LOOSE.grade(text, gold=None, row=row(kind, CASES[kind][0]))


def test_language_is_a_function_of_the_text():
    """Identity: the answer does not depend on global random state or on what came before."""
    text = "la casa e il gatto sono qui"
    assert len({language(text) for _ in range(5)}) == 1
    assert language("1234 !!!") is None


def test_counts_by_hand():
    assert sentence_count("Hello there. How are you? Fine!") == 3
    assert sentence_count("Mr. Fox paid 3.50 to e.g. J. Smith") == 1
    assert sentence_count("1. One.\n2. Two.") == 2
    assert sentence_count("नमस्ते। आप कैसे हैं।") == 2
    assert sentence_count("") == 0
    assert highlight_count("**a** *b* ** ** ***") == 2
