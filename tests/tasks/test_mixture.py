"""Mixtures: shares by hand, every problem kept, and each verifier judging its own rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import ConfigError
from brorl.tasks.mixture import MixtureTask, MixtureVerifier, Part, epoch, shares
from brorl.tasks.problem import Problem
from brorl.verify.exact import ExactMatch
from brorl.verify.math import MathVerifier
from brorl.verify.verdict import Kind


class Fixed:
    def __init__(self, name, train, held=0, verifier=None):
        self.name = name
        self.verifier = verifier or ExactMatch()
        self._problems = {
            "train": [Problem(f"t{i}", f"{name} q{i}", str(i), str(i)) for i in range(train)],
            "eval": [Problem(f"e{i}", f"{name} e{i}", str(i)) for i in range(held)],
            "warmstart": [],
        }

    def problems(self, split):
        return self._problems[split]


@pytest.mark.parametrize(
    ("weights", "floors", "wanted"),
    [
        ([1, 1], [0, 0], [0.5, 0.5]),
        ([3, 1], [0, 0], [0.75, 0.25]),
        ([9, 1], [0, 0.25], [0.75, 0.25]),  # the floor takes 0.15 from the other
        ([8, 1, 1], [0, 0.2, 0], [0.8 * 8 / 9, 0.2, 0.8 / 9]),
        ([1, 1, 98], [0.1, 0.1, 0], [0.1, 0.1, 0.8]),
        (
            [10, 5, 1],
            [0.0, 0.33, 0.2],
            [0.47, 0.33, 0.2],
        ),  # the second floor follows from the third
    ],
)
def test_shares_by_hand(weights, floors, wanted):
    assert shares(weights, floors) == pytest.approx(wanted)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 0.2)), min_size=2, max_size=5))
def test_shares_sum_to_one_and_respect_floors(parts):
    weights, floors = zip(*parts, strict=True)
    got = shares(weights, floors)
    assert sum(got) == pytest.approx(1.0)
    assert all(s >= f - 1e-12 for s, f in zip(got, floors, strict=True))
    free = [(s, w) for s, w, f in zip(got, weights, floors, strict=True) if s > f + 1e-9]
    ratios = [s / w for s, w in free]
    assert ratios == pytest.approx([ratios[0]] * len(ratios)) if ratios else True


def test_an_epoch_holds_every_problem_and_stands_in_the_shares():
    """10 and 40 problems at equal weight: the 10 come four times each, the 40 once."""
    mixed = MixtureTask([Part(Fixed("a", 10), 1.0, 0.0), Part(Fixed("b", 40), 1.0, 0.0)])
    problems = mixed.problems("train")
    assert len(problems) == len({p.id for p in problems}) == 80
    golds = [p.prompt for p in problems if p.prompt.startswith("a ")]
    assert {golds.count(g) for g in golds} == {4}
    assert "a:t0@4" in {p.id for p in problems}
    assert sum(p.prompt.startswith("b ") for p in problems) == 40


def test_rows_find_their_verifier():
    mixed = MixtureTask(
        [
            Part(Fixed("a", 2, 1), 1.0, 0.0),
            Part(Fixed("m", 2, 1, MathVerifier("lenient")), 1.0, 0.0),
        ]
    )
    a, m = mixed.problems("eval")
    v = mixed.verifier
    assert (v.extract("0", a.row), v.extract("0", m.row)) == ("0", None)
    assert v.extract(v.write("0", m.row), m.row) == "0"
    assert v.grade("0.0", gold="0", row=a.row).kind is Kind.WRONG
    assert v.grade("0.0", gold="0", row=m.row).kind is Kind.CORRECT
    assert v.grade("0", gold="0", row={}).kind is Kind.GRADER_ERROR
    assert v.deadline_s is None


def test_the_longest_deadline_counts():
    class Slow(ExactMatch):
        deadline_s = 40.0

    assert MixtureVerifier((("a", ExactMatch()), ("b", Slow()))).deadline_s == 40.0


def test_a_training_question_that_another_task_holds_out_is_dropped():
    """Attack: the same question in two tasks, trained on in one, tested in the other."""
    a, b = Fixed("a", 3), Fixed("b", 3, 1)
    b._problems["eval"] = [Problem("e0", "a q1", "1")]
    mixed = MixtureTask([Part(a, 1.0, 0.0), Part(b, 1.0, 0.0)])
    assert "a q1" not in {p.prompt for p in mixed.problems("train")}
    assert mixed.equal_to_eval == 1


@pytest.mark.parametrize(
    ("weights", "floors", "message"),
    [
        ([1, 0], [0, 0], "weights must be > 0"),
        ([1, -1], [0, 0], "weights must be > 0"),
        ([1, float("nan")], [0, 0], "weights must be > 0"),
        ([1, 1], [0.6, 0.6], "sum to at most 1"),
        ([1, 1], [0, 1.0], r"floors must be in \[0, 1\)"),
    ],
)
def test_refused(weights, floors, message):
    with pytest.raises(ConfigError, match=message):
        shares(weights, floors)


def test_epochs_that_cannot_be():
    problem = Problem("p", "q", "a")
    with pytest.raises(ConfigError, match="task b has no training problems"):
        epoch({"a": [problem], "b": []}, {"a": 0.5, "b": 0.5})
    with pytest.raises(ConfigError, match="raise the smallest weight"):
        epoch({"a": [problem], "b": [problem]}, {"a": 1 - 1e-9, "b": 1e-9})
