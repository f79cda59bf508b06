r"""The verifier for mathematics against truth tables, its own golds, and a red team."""

import json
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.verify.math import MathVerifier
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind, Verdict

from .math_cases import HEAVY, RIGHT, WRONG

LENIENT, STRICT = MathVerifier("lenient"), MathVerifier("strict")
SHARED = os.environ.get("BRORL_SHARED")
needs_shared = pytest.mark.skipif(SHARED is None, reason="BRORL_SHARED is not set")


def judge(text: str, gold: str, verifier: MathVerifier = LENIENT) -> Verdict | None:
    """Both steps on a whole text, None where there is nothing to grade."""
    extracted = verifier.extract(text, {})
    return None if extracted is None else verifier.grade(extracted, gold=gold, row={})


def flat(cases):
    return [
        pytest.param(gold, answer, id=f"{kind}: {gold[:20]} | {answer[:20]}")
        for kind, pairs in cases.items()
        for gold, answer in pairs
    ]


@pytest.mark.parametrize(("gold", "answer"), flat(RIGHT))
def test_pays_what_is_right(gold, answer):
    verdict = judge(rf"\boxed{{{answer}}}", gold)
    assert verdict is not None
    assert verdict.kind is Kind.CORRECT, verdict.reason
    assert verdict.extracted == answer


@pytest.mark.parametrize(("gold", "answer"), flat(WRONG))
@pytest.mark.parametrize("verifier", [LENIENT, STRICT], ids=["lenient", "strict"])
def test_pays_nothing_for(gold, answer, verifier):
    verdict = judge(rf"\boxed{{{answer}}}", gold, verifier)
    assert verdict is None or (verdict.kind, verdict.score) in (
        (Kind.WRONG, 0.0),
        (Kind.UNGRADABLE, 0.0),
    )


def rows():
    if SHARED is None:
        return []
    lines = Path(SHARED, "truth", "math_verdicts.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if not row["policy"]]


@needs_shared
def test_every_row_of_the_truth_table():
    """Oracle: verdicts collected from public reports; 83 rows that are no matter of policy."""
    table = rows()
    assert len(table) == 83
    wrong = [r["id"] for r in table if _paid(r, LENIENT) != r["verdict"]]
    assert wrong == []
    assert [r["id"] for r in table if _paid(r, STRICT) and not r["verdict"]] == []


def _paid(row, verifier):
    verdict = judge(row["answer"], row["gold"], verifier)
    return verdict is not None and verdict.score == 1.0


def golds():
    """(set, gold) of the six test sets, read by file layout as their SOURCES page says."""
    root = Path(SHARED, "data")

    def lines(path):
        return [json.loads(line) for line in (root / path).read_text().splitlines()]

    out = [("aime24", r["answer"]) for r in lines("aime24/test.jsonl")]
    out += [("aime25", r["expected_answer"]) for r in lines("aime25/test.jsonl")]
    out += [
        ("amc", repr(r["answer"])) for r in json.loads((root / "amc_rllm/amc.json").read_text())
    ]
    out += [("math500", r["answer"]) for r in lines("math500/test.jsonl")]
    out += [
        ("minerva", LENIENT.extract(r["solution"], {})) for r in lines("minerva_math/test.jsonl")
    ]
    out += [("olympiad", r["final_answer"][0]) for r in lines("olympiadbench/test.jsonl")]
    return out


# Golds that no rule understands: only the same text is right. Everything else is a value.
TEXT_ONLY = {
    r"$t(0,4]$",
    r"$f(x)=a x+b$, where $b$ is an arbitrary integer, and $a$ is an arbitrary positive integer "
    r"with $\mho(a)=0$",
}


@needs_shared
def test_all_golds_of_six_sets_equal_themselves_and_are_understood():
    """Identity, on 1,590 golds, and what stays text is named above."""
    table = golds()
    assert len(table) == 30 + 30 + 83 + 500 + 272 + 675
    assert [g for _, g in table if judge(LENIENT.write(g, {}), g).kind is not Kind.CORRECT] == []
    assert [g for _, g in table if LENIENT.unreadable(g, {})] == []
    assert {g for _, g in table if LENIENT.text_only(g)} == TEXT_ONLY


@needs_shared
def test_golds_of_one_set_are_not_each_others_answers():
    """Oracle: in a set of distinct plain numbers only equal numbers are equal."""
    numbers = sorted({g for s, g in golds() if s in ("aime24", "aime25")}, key=int)
    for gold in numbers:
        paid = [a for a in numbers if LENIENT.grade(a, gold=gold, row={}).score == 1.0]
        assert [int(a) for a in paid] == [int(gold)]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"35\text{ cm}", "35"),  # a unit dropped
        ("42", "42 cm"),
        (r"28\%", "28"),
        (r"\pi", "3.14159265"),
        (r"\frac13", "0.3333333"),
    ],
)
def test_strict_does_without_indulgence(gold, answer):
    text = rf"\boxed{{{answer}}}"
    assert judge(text, gold, LENIENT).kind is Kind.CORRECT
    assert judge(text, gold, STRICT).kind is Kind.WRONG


def test_strict_wants_a_box():
    assert judge("The final answer is 42", "42", LENIENT).kind is Kind.CORRECT
    assert STRICT.extract("The final answer is 42", {}) is None


@pytest.mark.parametrize(
    "text",
    [
        "There are 42 apples in the question, but the result cannot be found from this.",
        "<think>42, surely. \\boxed{42}",
        "",
        "42",
        "I start with 42.\nThe answer is unclear.",
        r"We start with 42 apples. \boxed{The number cannot be found}",
        r"42 42 42 \boxed{\text{forty-seven}}",
        r"\boxed{40} or \boxed{41} or \boxed{42}",
        r"\boxed{42} or \boxed{43}",
        r"Example: \boxed{42}. My own result: \boxed{17}",
        r"\boxed{42} is wrong. So we get \boxed{17",
    ],
)
def test_the_value_in_the_text_is_not_the_answer(text):
    """Attack: the cheapest hack of all, naming the gold without committing to it."""
    for verifier in (LENIENT, STRICT):
        verdict = judge(text, "42", verifier)
        assert verdict is None or verdict.score == 0.0


@pytest.mark.parametrize("answer", HEAVY)
def test_heavy_answers_cost_nothing(answer):
    """Attack: in this process, where nothing could kill a hang; 5 s is for a loaded machine."""
    began = time.process_time()
    for gold in ("7", r"\sqrt{2}", "x+1", r"\{1,2\}", "x=5", "(1,2)"):
        assert LENIENT.grade(answer, gold=gold, row={}).score == 0.0
    assert time.process_time() - began < 5.0


def test_equal_text_is_right_however_heavy():
    for answer in HEAVY[:6]:
        assert LENIENT.grade(answer, gold=answer, row={}).kind is Kind.CORRECT


def test_a_gold_that_is_missing_is_our_fault():
    assert LENIENT.grade("42", gold="", row={}).kind is Kind.GRADER_ERROR
    assert LENIENT.grade("42", gold=None, row={}).kind is Kind.GRADER_ERROR
    assert LENIENT.unreadable("  ", {}) == "the gold is empty"
    assert LENIENT.grade("$$", gold="42", row={}).kind is Kind.NO_ANSWER


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.text(alphabet="42 143x=,.\\{}()[]^_+-*/!|&%$<>:;'\"~@#\n", max_size=24))
def test_no_junk_around_another_number_is_paid(text):
    """Attack: 4242 can only be paid if it stands there, and never with a different one beside."""
    verdict = LENIENT.grade(f"43 {text}", gold="4242", row={})
    assert verdict.score == 0.0 or "43 4242" not in f"43 {text}"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(
        st.sampled_from(
            [
                "42",
                "43",
                "x",
                "=",
                ",",
                "\\text{ or }",
                "\\",
                "{",
                "}",
                "\\pm",
                "_",
                "^",
                "\\cup",
                "(",
                ")",
                "[",
                "\\ldots",
                "\\approx",
                "|",
                "\\frac",
                ":",
            ]
        ),
        max_size=8,
    )
)
def test_a_list_of_two_guesses_is_never_paid(tokens):
    """Attack: whatever joins 42 and 43 in one box, it is not the number 42.

    One meaning is left out: "42 = 42", and a value before an "approximately".
    """
    answer = " ".join(["42", *tokens, "43"])
    verdict = LENIENT.grade(answer, gold="42", row={})
    assert verdict.score == 0.0 or "\\approx" in answer


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=60))
def test_total_on_any_text(text):
    """Attack: no text raises, in a box or out of it."""
    for verifier in (LENIENT, STRICT):
        judge(text, "42", verifier)
        judge(rf"\boxed{{{text}}}", r"\frac{x}{2}", verifier)
        verifier.grade(text, gold=text, row={})


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.fractions(max_denominator=10**12), st.text(alphabet="ab c.\n", max_size=20))
def test_a_gold_verifies_itself_after_any_prose(gold, prose):
    text = f"{gold.numerator}/{gold.denominator}"
    assert judge(rf"{prose}\boxed{{{text}}}", str(gold)).kind is Kind.CORRECT


PAIRS = [  # gold, prediction, right: as a mathematician reads them, in the lenient profile
    (r"\pi", "3.14159265", True),
    ("A", "The answer is A", True),
    ("71/6", r"\boxed{11 5/6}", True),
    (r"\frac13", r"\boxed{0.333333}", True),
    ("1e3", r"\boxed{1000}", True),
    (r"1-\frac{1}{\mathrm{e}}", r"\boxed{1+\frac{1}{\mathrm{e}}}", False),
    (r"\frac{1}{2^{99}}", r"\boxed{\frac{1}{2^{98}}}", False),
    (r"(3,\frac{\pi}{2})", r"\boxed{(3,\frac{\pi}{2})}", True),
    ("1010_2", r"\boxed{1010}", False),
    (r"\frac{1}{2004!}", r"\boxed{\frac{1}{2006!}}", False),
    ("(10,000)", r"\boxed{10000}", True),
    ("1,2", r"\boxed{\{1,2\}}", True),
]


@pytest.mark.parametrize(("gold", "text", "right"), PAIRS)
def test_single_pairs_that_math_verify_was_tried_on(gold, text, right):
    text = text if "boxed" in text or "answer" in text else rf"\boxed{{{text}}}"
    assert (judge(text, gold).kind is Kind.CORRECT) is right


def test_the_answer_may_stand_far_before_the_end():
    """Attack: graders that look at the last 100 or 300 characters lose it."""
    long = r"\boxed{42}" + " The steps above agree with this result." * 500
    assert judge(long, "42").kind is Kind.CORRECT


def test_grading_needs_no_main_thread_and_no_signal():
    """Attack: a grader with SIGALRM raises in a thread; ours has bounds instead of alarms."""
    with ThreadPoolExecutor(2) as threads:
        kinds = list(threads.map(lambda a: LENIENT.grade(a, gold="2", row={}).kind, ["2", *HEAVY]))
    assert kinds[0] is Kind.CORRECT
    assert Kind.CORRECT not in kinds[1:]


def test_a_gold_that_cannot_be_parsed_pays_nothing_but_itself():
    """Attack: other graders paid 1.0 where the gold could not be read."""
    for gold in (r"\text{see solution}", r"\frac{1}{", "t(0,4]", r"\foo\bar", "{"):
        for answer in ("7", "0", "x", r"\text{see}", r"\frac{1}{2}", "{}", "t(0,4)"):
            assert LENIENT.grade(answer, gold=gold, row={}).score == 0.0, (gold, answer)


def test_pickles_small_and_runs_in_the_pool():
    """The pool holds one; a heavy answer there does not cost its neighbours their verdicts."""
    assert len(pickle.dumps(LENIENT)) < 200
    texts = [r"\boxed{42}", *(rf"\boxed{{{a}}}" for a in HEAVY[:8]), r"\boxed{41}", "none"]
    with GraderPool(workers=1, deadline_s=20.0) as pool:
        tickets = pool.submit_many(LENIENT, problem_id="p", texts=texts, gold="42", row={})
        verdicts = pool.gather(tickets)
    assert verdicts[0].kind is Kind.CORRECT
    assert (verdicts[-2].kind, verdicts[-1].kind) == (Kind.WRONG, Kind.NO_ANSWER)
    assert all(v.score == 0.0 for v in verdicts[1:])
