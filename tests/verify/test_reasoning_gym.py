"""Reasoning Gym through the strict wrapper: every data set, its own gold, and a red team."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from brorl.verify.reasoning_gym import (
    ReasoningGymVerifier,
    generate_dataset,
    generate_item,
    registered_names,
)
from brorl.verify.reasoning_gym_rules import FORM, OWN, REFUSED
from brorl.verify.verdict import Kind

NAMES = registered_names()
# Without a gold text only the scorer knows what is right.
NO_GOLD = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
SEED = 20_000

JUNK = [
    *("zzz", "something", "nan", "NaN", "inf", "-inf", "[NaN]", "True", "False", "yes", "no", "No"),
    *("0", "1", "-1", "[]", "{}", "null", "None", "[[]]", "()", ".", ",", "-", '""', "0/1", "1e5"),
    *("A", "(A)", "1 0", "x", "C", "a=1", "$", "#", "24", "Integral(x, x)", "oo", "I"),
    *("1, 2", "A+1", "R" * 3000, "9" * 3000, "((((", "\\", "\u2192", "1e999999999", "R1000000000"),
]


def verifier(name, *, tagged=False, score="threshold"):
    return ReasoningGymVerifier(name, {}, tagged, score)


def row(index):
    return {"seed": SEED, "index": index}


def around(gold):
    """The right answer, and something else beside it."""
    return [
        f"{gold} or something else",
        f"{gold}\nor something else",
        f"something else or {gold}",
        f"The answer is {gold}",
        f"{gold} {gold}",
        f"{gold}, {gold}1",
    ]


def same_value(answer, gold):
    """0.0 for 0 is no hack: both texts are the same number."""
    try:
        return float(answer) == float(gold)
    except (TypeError, ValueError):
        return False


def attack(name, items):
    """All the texts of this file against some items of one data set."""
    plain, tagged = verifier(name), verifier(name, tagged=True, score="continuous")
    for index in range(items):
        try:
            gold = generate_item(name, "{}", SEED, index)["answer"]
        except IndexError:  # a generator that ran out
            return
        if gold == "" or (gold and "Integral(" in gold):
            continue  # not offered as a problem: no answer, or one the library could not work out
        texts = list(JUNK)
        if gold is not None:
            for each in (plain, tagged):
                extracted = each.extract(each.write(gold, row(index)), row(index))
                verdict = each.grade(extracted, gold=gold, row=row(index))
                assert verdict.kind is Kind.CORRECT, (name, index, gold, verdict)
            texts += around(gold)
        for text in texts:
            verdict = plain.grade(text.strip(), gold=gold, row=row(index))
            fair = gold is not None and (
                text.strip().lower() == gold.strip().lower() or same_value(text, gold)
            )
            assert verdict.score == 0.0 or fair, (name, index, gold, text, verdict)
            assert verdict.kind is not Kind.GRADER_ERROR, (name, text, verdict)
        for text in ("zzz", ""):  # the floor of junk is taken off the continuous score too
            assert tagged.grade(text, gold=gold, row=row(index)).score == 0.0, (name, index, text)


def test_every_data_set_is_covered():
    """105 of them in 0.1.25; which have no gold text is stated above."""
    assert len(NAMES) == 105
    without = {n for n in NAMES if generate_item(n, "{}", SEED, 0)["answer"] is None}
    assert without == NO_GOLD
    assert OWN.keys() | FORM.keys() | REFUSED.keys() <= set(NAMES)


@pytest.mark.parametrize("name", sorted(set(NAMES) - REFUSED.keys()))
def test_gold_junk_and_gold_or_something_else(name):
    """Attack, on two items of each data set."""
    attack(name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - REFUSED.keys()))
def test_the_same_on_more_items(name):
    attack(name, 6 if name == "knight_swap" else 25)


def integral(item):
    m = item["metadata"]
    return f"Integral({m['integrand']}, {m['variable']})"


def target_to_box(item):
    """boxnet: each target is carried to its box, square by square, which no agent may do."""
    place = {x: k for k, v in item["metadata"]["initial_state"].items() for x in v}
    plan = []
    for box in (x for x in place if x.startswith("box_")):
        target = "target_" + box[4:]
        row, column = map(float, place[box].split("_"))
        y, x = map(float, place[target].split("_"))
        while (y, x) != (row, column):
            to = (y + (1 if row > y else -1), x) if y != row else (y, x + (1 if column > x else -1))
            plan.append({f"Agent[{y}, {x}]": f"move({target}, square[{to[0]}, {to[1]}])"})
            y, x = to
        plan.append({f"Agent[{row}, {column}]": f"move({box}, {target})"})
    return json.dumps(plan) if any("move(target" in str(step) for step in plan) else "zzz"


HACKS = {
    "boxnet": target_to_box,
    "coin_flip": lambda item: "0",
    "complex_arithmetic": lambda item: "nan",
    "game_of_life": lambda item: item["answer"][:-1] + ", [1, 1, 1]]",
    "game_of_life_halting": lambda item: "zzz",
    "gsm_symbolic": lambda item: item["answer"] + " or perhaps 7",
    "intermediate_integration": integral,
    "knights_knaves": lambda item: item["answer"] + " Or the other way round.",
    "letter_jumble": lambda item: item["answer"] + " and more",
    "number_sorting": lambda item: "[" + ", ".join(["NaN"] * len(item["answer"].split(","))) + "]",
    "pool_matrix": lambda item: item["answer"] + " # or something else",
    "propositional_logic": lambda item: item["metadata"]["premises"][0],
    "puzzle24": lambda item: "6*4*1*1" if item["metadata"]["numbers"] != [1, 1, 4, 6] else "24",
    "quantum_lock": lambda item: "".join(c for c in item["answer"] if c in "ABC").join("<>"),
    "simple_integration": integral,
    "sokoban": lambda item: item["answer"] + "zzz",
    "survo": lambda item: item["answer"].replace(" ", " x "),
    "time_intervals": lambda item: item["answer"] + " or so",
    "word_sorting": lambda item: item["answer"] + ", and, more",
}


@pytest.mark.parametrize("name", sorted(HACKS))
def test_hacks_that_the_library_pays_in_full(name):
    """Attack: the library's scorer is paid off on some item, so the fault is real; ours never is."""
    paid = 0
    for index in range(8):
        item = generate_item(name, "{}", SEED, index)
        hack = HACKS[name](item)
        paid += generate_dataset(name, "{}", SEED).score_answer(hack, item) == 1.0
        if name not in REFUSED:
            verdict = verifier(name).grade(hack, gold=item["answer"], row=row(index))
            assert verdict.score == 0.0, (index, item["answer"], hack)
    assert paid > 0
    assert name in OWN.keys() | FORM.keys() | REFUSED.keys()


EVALUATING = [
    *("binary_matrix", "countdown", "intermediate_integration", "n_queens", "puzzle24"),
    *("polynomial_multiplication", "simple_integration", "spiral_matrix", "string_insertion"),
]


@pytest.mark.parametrize("name", EVALUATING)
def test_no_answer_is_run_as_python(name, tmp_path):
    """Attack: the library's scorers of these data sets call eval on the answer."""
    target = tmp_path / "written"
    code = f"__import__('pathlib').Path({str(target)!r}).touch()"
    for text in (code, f"[{code}]", f"(lambda: {code})()", f"1+({code} or 0)"):
        assert verifier(name).grade(text, gold=None, row=row(0)).score == 0.0
    assert not target.exists()


def test_other_right_answers_stay_right():
    """Hand-made: the own checks do not insist on the gold's wording."""

    def right(name, rewrite):
        item = generate_item(name, "{}", SEED, 0)
        verdict = verifier(name).grade(rewrite(item), gold=item["answer"], row=row(0))
        assert verdict.kind is Kind.CORRECT, (name, rewrite(item), verdict)

    right("countdown", lambda i: f"({i['answer']})")
    right("number_sorting", lambda i: i["answer"].replace("'", ""))
    right("complex_arithmetic", lambda i: i["answer"].replace(".0", "").replace(" ", ""))
    right(
        "fraction_simplification",
        lambda i: "{}/{}".format(
            i["metadata"]["simplified_numerator"], i["metadata"]["simplified_denominator"]
        ),
    )
    right("simple_integration", lambda i: i["answer"].replace("+ C", "- 7"))
    right(
        "knights_knaves", lambda i: " and ".join(reversed(i["answer"].strip(".").split(", and ")))
    )
    right("gsm_symbolic", lambda i: f"${i['answer']}")
    right("quantum_lock", lambda i: i["answer"].replace(" → ", ", "))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>7</answer>", "7"),
        ("I think\n<answer>\n 7 \n</answer> done", "7"),
        ("<answer>6</answer> no: <answer>7</answer>", "7"),
        ("<answer>6</answer> then <answer>7", "6"),  # the last complete one
        ("<answer><answer>7</answer>", "7"),
        ("<think><answer>6</answer></think><answer>7</answer>", "7"),
        ("7", None),
        ("<answer></answer>", None),
        ("<answer>7", None),
        ("<think><answer>7</answer></think>", None),
    ],
)
def test_the_tag(text, answer):
    assert verifier("gcd", tagged=True).extract(text, {}) == answer


def test_continuous_takes_the_floor_off():
    """sentence_reordering pays 0.05 for junk and k/n for k of n words in place: (k/n - .05) / .95."""
    for index in range(10):
        item = generate_item("sentence_reordering", "{}", SEED, index)
        words = item["answer"].split()
        moved = [words[0], *reversed(words[1:])]
        share = sum(a.lower() == b.lower() for a, b in zip(moved, words, strict=True)) / len(words)
        part = verifier("sentence_reordering", score="continuous")
        got = part.grade(" ".join(moved), gold=None, row=row(index))
        assert got.score == pytest.approx(1.0 if share == 1 else max(0, (share - 0.05) / 0.95))
        if share < 1:
            strict = verifier("sentence_reordering").grade(
                " ".join(moved), gold=None, row=row(index)
            )
            assert (strict.kind, strict.score) == (Kind.WRONG, 0.0)


@pytest.mark.parametrize(
    ("rewrite", "stage"),
    [
        (r"\boxed{{{}}}", "latex"),
        (r"$\text{{{}}}$", "latex"),
        ("{}.", "full stop"),
        (r"\boxed{{{}.}}", "full stop"),
    ],
)
def test_the_cascade_is_off_by_default_and_names_its_stage(rewrite, stage):
    gold = generate_item("caesar_cipher", "{}", SEED, 0)["answer"]
    on = ReasoningGymVerifier("caesar_cipher", {}, False, "threshold", cascade=True)
    answer = rewrite.format(gold)
    assert verifier("caesar_cipher").grade(answer, gold=gold, row=row(0)).score == 0.0
    verdict = on.grade(answer, gold=gold, row=row(0))
    assert (verdict.kind, verdict.extracted) == (Kind.CORRECT, answer)
    assert verdict.reason.endswith(f"after stage {stage}")


def test_the_cascade_forgives_case_and_nothing_else():
    gold = generate_item("caesar_cipher", "{}", SEED, 0)["answer"]
    on = ReasoningGymVerifier("caesar_cipher", {}, False, "threshold", cascade=True)
    assert on.grade(gold.lower(), gold=gold, row=row(0)).reason.endswith("after stage case")
    for text in (*around(gold), *JUNK):
        assert on.grade(text.strip(), gold=gold, row=row(0)).score == 0.0


def test_a_verifier_travels_light():
    assert len(pickle.dumps(verifier("arc_agi"))) < 300


def test_nothing_is_printed_and_no_item_is_changed(capsys):
    """`bf` prints progress marks; knight_swap's scorer writes into the item it is given."""
    generate_item.cache_clear()
    generate_item("bf", "{}", 31, 0)
    assert capsys.readouterr().out == ""
    item = generate_item("knight_swap", "{}", SEED, 0)
    before = json.dumps(item, default=str, sort_keys=True)
    verifier("knight_swap").grade(item["answer"], gold=item["answer"], row=row(0))
    assert json.dumps(item, default=str, sort_keys=True) == before


DIGEST = """
import hashlib, sys
from brorl.verify.reasoning_gym import generate_item, registered_names
for name in registered_names():
    for index in range(4):
        try:
            item = generate_item(name, "{}", 31, index)
        except IndexError:
            continue
        print(name, index, hashlib.md5(repr((item["question"], item["answer"])).encode()).hexdigest())
"""


@pytest.mark.slow
def test_items_are_the_same_in_every_process():
    """Identity: a grader process generates the item that the trainer saw, whatever its hash seed."""
    outputs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout.splitlines())
    assert len(outputs[0]) > 400
    assert [a for a, b in zip(*outputs, strict=True) if a != b] == []
