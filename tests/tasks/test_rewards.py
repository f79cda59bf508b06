"""Reward sources: what each pays, what it must never look at, and what it refuses."""

import math

import pytest

from brorl.errors import ConfigError
from brorl.tasks.problem import Problem
from brorl.tasks.reward_sources import LabelVerifier
from brorl.tasks.rewards import build_reward, label_verifier, majority_labels, needs_labels
from brorl.verify.exact import ExactMatch
from brorl.verify.math import MathVerifier
from brorl.verify.reasoning_gym import ReasoningGymVerifier
from brorl.verify.verdict import correct, grader_error, no_answer, ungradable, wrong

MATH = MathVerifier("lenient")
PROBLEMS = [Problem(f"p{i}", f"q{i}", str(i)) for i in range(6)]
RIGHT, WRONG = correct("1", ""), wrong("2", "")


def build(source, options=None, labels=None, verifier=MATH, problems=PROBLEMS, seed=3):
    return build_reward(
        source, options or {}, seed=seed, verifier=verifier, problems=problems, labels=labels
    )


def paid(source, problem, text, true=WRONG):
    """The reward of one text, with the second grading done as a trainer does it."""
    extra = source.extra(problem)
    verdict = None
    if extra is not None:
        found = extra.verifier.extract(text, problem.row)
        verdict = (
            no_answer("none")
            if found is None
            else extra.verifier.grade(found, gold=extra.gold, row=problem.row)
        )
    return source.score(problem, "g", 0, true, verdict)


def test_ground_truth_is_the_true_score():
    source = build("ground_truth")
    assert source.extra(PROBLEMS[0]) is None
    scores = [
        source.score(PROBLEMS[0], "g", 0, v, None) for v in (RIGHT, WRONG, wrong("x", "", 0.4))
    ]
    assert scores == [1.0, 0.0, 0.4]


def test_format_pays_any_answer_and_only_answers():
    source = build("format")
    verdicts = (RIGHT, WRONG, ungradable("?", ""), no_answer(""), grader_error(""))
    assert [source.score(PROBLEMS[0], "g", 0, v, None) for v in verdicts] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("gamma", [0.0, 0.25, 0.5, 1.0])
def test_random_pays_gamma_whatever_the_answer(gamma):
    """Statistical: 4,000 draws, 4 sigma of a binomial share."""
    source = build("random", {"gamma": gamma})
    draws = [
        source.score(PROBLEMS[0], f"g{i // 100}", i % 100, v, None)
        for i in range(2000)
        for v in (RIGHT, WRONG)
    ]
    assert draws[::2] == draws[1::2]  # right and wrong are paid alike
    sigma = math.sqrt(gamma * (1 - gamma) / 2000)
    assert abs(sum(draws[::2]) / 2000 - gamma) <= 4 * sigma


def test_random_streams_are_named_by_run_group_and_sample():
    def row(seed, group):
        source = build("random", seed=seed)
        return [source.score(PROBLEMS[0], group, i, WRONG, None) for i in range(64)]

    assert row(3, "p0#0") == row(3, "p0#0")
    assert len({tuple(row(s, g)) for s in (3, 4) for g in ("p0#0", "p0#1", "p1#0")}) == 6


def test_incorrect_pays_one_fixed_wrong_answer_and_never_the_gold():
    source = build("incorrect")
    again = build("incorrect")
    for p in PROBLEMS:
        label = source.labels[p.id]
        assert label != p.gold
        assert label == again.labels[p.id]
        assert paid(source, p, rf"\boxed{{{label}}}") == 1.0
        assert paid(source, p, rf"\boxed{{{p.gold}}}", RIGHT) == 0.0
    assert build("incorrect", seed=4).labels != source.labels


def test_incorrect_never_takes_another_spelling_of_the_gold():
    """Attack: 0.5 is no wrong label for 1/2."""
    problems = [Problem("a", "q", "1/2"), Problem("b", "q", "0.5"), Problem("c", "q", "0.50")]
    with pytest.raises(ConfigError, match="no problem has a wrong label"):
        build("incorrect", problems=problems)


def test_incorrect_from_majority_labels_keeps_only_the_wrong_ones():
    source = build("incorrect", labels={"p0": "0.0", "p1": "7"})
    assert source.labels == {"p1": "7"}
    assert [source.covers(p) for p in PROBLEMS[:3]] == [False, True, False]
    assert paid(source, PROBLEMS[0], r"\boxed{0}") == 0.0


def test_majority_by_hand():
    """Three of five say 4, in boxes; the two without a box count for nothing."""
    texts = {
        "p0": [r"\boxed{4}", r"\boxed{5}", "none", r"\boxed{4}", r"\boxed{ 4 }"],
        "p1": [r"\boxed{b}", r"\boxed{a}"],  # a tie: the first in the alphabet
        "p2": ["none"],
    }
    labels = majority_labels(texts, PROBLEMS, MATH)
    assert labels == {"p0": "4", "p1": "a"}
    source = build("majority", labels=labels)
    assert paid(source, PROBLEMS[0], r"\boxed{4.0}") == 1.0
    assert paid(source, PROBLEMS[0], r"\boxed{0}", RIGHT) == 0.0
    assert paid(source, PROBLEMS[2], r"\boxed{2}", RIGHT) == 0.0


def test_labels_for_verifiers_that_do_not_judge_by_the_gold():
    """Reasoning Gym knows the right answer from the item: a label must not be judged by it."""
    gym = ReasoningGymVerifier("gcd", {}, False, "threshold")
    assert label_verifier(gym) == LabelVerifier(gym)
    assert label_verifier(MATH) is MATH
    row = {"seed": 7, "index": 0}
    assert LabelVerifier(gym).grade("zzz", gold="zzz", row=row).score == 1.0


def test_proxies_have_the_hole_they_say():
    p = Problem("p", "q", "42")
    first = build("proxy", {"kind": "first_number"})
    assert paid(first, p, "I start with 42. The answer is 7.") == 1.0
    assert paid(first, p, r"7, so \boxed{42}", RIGHT) == 0.0
    part = build("proxy", {"kind": "substring"})
    assert paid(part, p, "it is 1423") == 1.0
    assert paid(part, p, "it is 7") == 0.0
    for source in (first, part):
        assert paid(source, Problem("p", "q", None), "42") == 0.0
        assert paid(source, p, "") == 0.0


def test_visible_tests_are_the_first_ones():
    class Count(ExactMatch):
        def grade(self, extracted, *, gold, row):
            tests = row.get("task", row)["tests"]
            seen = len(tests["inputs"]) if isinstance(tests, dict) else len(tests)
            return wrong(extracted, str(seen))

    source = build("proxy", {"kind": "visible_tests", "tests": 2}, verifier=Count())
    for row in (
        {"task": {"kind": "function", "tests": ["a", "b", "c"]}},
        {"kind": "stdin", "tests": {"inputs": ["1", "2", "3"], "outputs": ["1", "2", "3"]}},
    ):
        verifier, gold = source.extra(Problem("p", "q", None, row=row))
        assert verifier.grade("x", gold=gold, row=row).reason == "2"


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("ground_thruth", {}, "reward.source 'ground_thruth'; nearest: ground_truth"),
        ("random", {"gama": 0.5}, "nearest: gamma"),
        ("random", {"gamma": 1.5}, r"must be in \[0, 1\], got 1.5"),
        ("random", {"gamma": True}, r"must be in \[0, 1\], got True"),
        ("format", {"gamma": 0.5}, "option of reward.source format 'gamma'; there is none"),
        ("majority", {}, "needs labels"),
        ("proxy", {"kind": "first"}, "known: first_number, substring"),
        ("proxy", {"kind": "visible_tests", "tests": 0}, "integer >= 1, got 0"),
        ("proxy", {"tests": 2}, "is for kind visible_tests"),
    ],
)
def test_refused(source, options, message):
    with pytest.raises(ConfigError, match=message):
        build(source, options)


def test_who_needs_labels():
    assert needs_labels("majority", {}) == 64
    assert needs_labels("majority", {"samples": 8}) == 8
    assert needs_labels("random", {}) == 0
    assert needs_labels("incorrect", {}) == needs_labels("incorrect", {"labels": "other"}) == 0
    assert needs_labels("incorrect", {"labels": "majority"}) == 64
    with pytest.raises(
        ConfigError, match=r"unknown reward\.options\.labels 'minority'; nearest: maj"
    ):
        needs_labels("incorrect", {"labels": "minority"})
    with pytest.raises(ConfigError, match="samples goes with labels: majority"):
        needs_labels("incorrect", {"samples": 8})
    with pytest.raises(ConfigError, match="integer >= 1, got 0"):
        needs_labels("majority", {"samples": 0})
