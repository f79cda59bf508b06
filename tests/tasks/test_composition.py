"""The composition task: functions by hand, and prompts whose answers are worked out again here."""

import re

import pytest

from brorl.errors import ConfigError
from brorl.tasks.build import build_task
from brorl.tasks.composition_functions import HELD_OUT, TRAIN
from brorl.verify.verdict import Kind

BY_HAND = {
    "reverse": ("abc", "cba"),
    "double": ("ab", "abab"),
    "rotate": ("abc", "bca"),
    "sort": ("cab", "abc"),
    "novowels": ("axeb", "xb"),
    "bracket": ("a", "[a]"),
    "prefix": ("b", "zab"),
    "next": ("az", "ba"),
    "stutter": ("ab", "aabb"),
    "head": ("abcde", "abc"),
    "dashes": ("abc", "a-b-c"),
    "mirror": ("ab", "abba"),
    "swap": ("abcde", "badce"),
    "suffix": ("a", "axo"),
    "back": ("ba", "az"),
    "unique": ("abab", "ab"),
    "tail": ("abcde", "cde"),
    "odd": ("abcde", "ace"),
    "ends": ("abcd", "dbca"),
    "count": ("aab", "2a1b"),
    "vowels": ("axo", "1x4"),
    "thrice": ("ab", "ababab"),
    "down": ("acb", "cba"),
    "weave": ("abc", "acbbca"),
    "inner": ("abc", "b"),
}


def task(**changes):
    return build_task(
        {
            "name": "composition",
            "train_size": 40,
            "eval_size": 40,
            "warmstart_size": 20,
            "seed": 5,
            **changes,
        },
        {},
    )


def test_every_function_by_hand():
    everything = TRAIN | HELD_OUT
    assert everything.keys() == BY_HAND.keys()
    assert not TRAIN.keys() & HELD_OUT.keys()
    assert {n: everything[n].apply(x) for n, (x, _) in BY_HAND.items()} == {
        n: y for n, (_, y) in BY_HAND.items()
    }


def test_functions_are_total():
    for function in (TRAIN | HELD_OUT).values():
        for text in ("", "a", "[x-]", "zz9"):
            assert isinstance(function.apply(text), str)


def worked_out(expression):
    """Oracle: from the innermost text outwards, by the table above it all."""
    names = re.findall(r"(\w+)\(", expression)
    text = re.search(r"\((\w+)\)", expression)[1]
    for name in reversed(names):
        text = (TRAIN | HELD_OUT)[name].apply(text)
    return text


def test_golds_are_the_value_of_the_expression():
    for split in ("train", "eval", "warmstart"):
        for p in task(levels=[1, 3], prompt="{expression}=").problems(split):
            expression = p.prompt.removesuffix("=")
            assert p.gold == p.worked == worked_out(expression)
            assert expression.count("(") == p.row["level"]


def test_levels_and_functions_of_each_split():
    t = task(levels=[2], eval_levels=[1, 4], eval_functions="held_out")
    assert {p.row["level"] for p in t.problems("train")} == {2}
    levels = [p.row["level"] for p in t.problems("eval")]
    assert (levels.count(1), levels.count(4)) == (20, 20)
    assert {p.task for p in t.problems("eval")} == {"composition/level-1", "composition/level-4"}
    names = {f for p in t.problems("eval") for f in p.row["functions"]}
    assert names <= HELD_OUT.keys()
    assert {f for p in t.problems("train") for f in p.row["functions"]} <= TRAIN.keys()


def test_definitions_can_be_shown_or_not():
    shown = task(levels=[1]).problems("train")[0]
    name = shown.row["functions"][0]
    assert f"{name}(s) {TRAIN[name].meaning}." in shown.prompt
    assert (
        TRAIN[name].meaning not in task(levels=[1], prompt="{question}").problems("train")[0].prompt
    )


def test_no_prompt_is_in_two_splits_and_ids_are_unique():
    t = task(levels=[1], eval_levels=[1])
    everything = [p for s in ("eval", "train", "warmstart") for p in t.problems(s)]
    assert len({p.prompt for p in everything}) == len({p.id for p in everything}) == 100


def test_the_same_seed_gives_the_same_problems_and_another_does_not():
    assert task().problems("train") == task().problems("train")
    assert task(seed=6).problems("train") != task().problems("train")


def test_verdicts():
    t = task()
    p = t.problems("eval")[0]
    assert t.verifier.grade(p.gold, gold=p.gold, row=p.row).kind is Kind.CORRECT
    assert t.verifier.grade(p.gold + "x", gold=p.gold, row=p.row).kind is Kind.WRONG


def test_more_than_there_is():
    with pytest.raises(ConfigError, match=r"only .* different prompts"):
        task(prompt="{level}", levels=[1]).problems("train")
