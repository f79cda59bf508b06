"""A user's verifier: what it may return, what it may not, and whose fault a failure is."""

import pickle

import pytest

from brorl.errors import ConfigError, VerifierError
from brorl.verify.pool import GraderPool
from brorl.verify.user import UserVerifier, as_verdict, load_verifier
from brorl.verify.verdict import Kind, no_answer

CODE = """
from dataclasses import dataclass
from brorl.verify.verdict import correct, wrong

def same(*, gold, answer, row):
    return answer == gold

def part(gold, answer, row):
    return len(set(answer) & set(gold)) / len(set(gold))

def swapped(*, gold, answer, row):
    return correct(answer, "is the answer") if answer == "A" and gold == "G" else wrong(answer, "-")

def broken(*, gold, answer, row):
    return 1 / 0

def nothing(*, gold, answer, row):
    pass

def not_a_number(*, gold, answer, row):
    return float("nan")

def two(gold, answer):
    return True

@dataclass
class Own:
    def extract(self, text, row):
        return text.partition("=")[2] or None
    def grade(self, extracted, *, gold, row):
        return correct(extracted, "own") if extracted == gold else wrong(extracted, "own")

class Needy(Own):
    def __init__(self, level):
        self.level = level

class Silly(Own):
    def extract(self, text, row):
        return 3

five = 5
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


def grade(file, name, answer="ab", gold="ab"):
    return load_verifier(f"{file}:{name}").grade(answer, gold=gold, row={})


def test_bool_score_and_verdict_by_hand(file):
    assert grade(file, "same").kind is Kind.CORRECT
    assert grade(file, "same", "x").kind is Kind.WRONG
    half = grade(file, "part", "a")
    assert (half.kind, half.score) == (Kind.WRONG, 0.5)
    assert grade(file, "part").kind is Kind.CORRECT  # 1.0 is right


def test_gold_and_answer_are_not_swapped(file):
    """Attack: the argument order that other people's graders got wrong; keywords cannot."""
    assert grade(file, "swapped", answer="A", gold="G").kind is Kind.CORRECT
    assert grade(file, "swapped", answer="G", gold="A").kind is Kind.WRONG


def test_an_exception_is_ours_and_named(file):
    verdict = grade(file, "broken")
    assert verdict.kind is Kind.GRADER_ERROR
    assert "mine.py:broken raised ZeroDivisionError" in verdict.reason


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (float("nan"), "nan"),
        (1.5, "1.5"),
        (-0.1, "-0.1"),
        ("1", "'1'"),
        ([1], r"\[1\]"),
    ],
)
def test_a_wrong_return_is_refused_by_name(value, shown):
    with pytest.raises(VerifierError, match=rf"mine:f: must return .* got {shown}"):
        as_verdict(value, "x", "mine:f")


@pytest.mark.parametrize("name", ["nothing", "not_a_number"])
def test_wrong_returns_of_a_function_name_it(file, name):
    with pytest.raises(VerifierError, match=f"mine.py:{name}"):
        grade(file, name)


def test_a_verifier_class_extracts_for_itself(file):
    own = load_verifier(f"{file}:Own")
    assert own.extract("x=ab", {}) == "ab"
    assert own.extract("ab", {}) is None
    assert own.grade("ab", gold="ab", row={}).reason == "own"
    with pytest.raises(VerifierError, match="extract must return str or None, got 3"):
        load_verifier(f"{file}:Silly").extract("x", {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "has no 'missing'"),
        ("five", "need a function, got int"),
        ("two", "must take keyword arguments gold, answer and row"),
        ("Needy", "cannot be made without arguments"),
    ],
)
def test_refused_before_anything_runs(file, name, message):
    with pytest.raises(ConfigError, match=message):
        load_verifier(f"{file}:{name}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("/nowhere/at/all.py:f", "no such file"),
        ("no_such_module_here:f", "cannot import no_such_module_here"),
        ("justaname", "need module:name"),
        (":f", "need module:name"),
    ],
)
def test_specs_that_lead_nowhere(spec, message):
    with pytest.raises(ConfigError, match=message):
        load_verifier(spec)


def test_a_file_that_does_not_run(tmp_path):
    (tmp_path / "bad.py").write_text("1 +")
    with pytest.raises(ConfigError, match=r"bad\.py raised SyntaxError"):
        load_verifier(f"{tmp_path}/bad.py:f")


def test_dotted_paths_both_ways():
    for spec in ("brorl.verify.exact:ExactMatch", "brorl.verify.exact.ExactMatch"):
        assert load_verifier(spec).grade("a", gold="a", row={}).kind is Kind.CORRECT


def test_verdicts_pass_through():
    assert as_verdict(no_answer("none"), "x", "f") == no_answer("none")


def test_graded_in_another_process_by_name_only(file, monkeypatch):
    """A function from a file cannot be pickled; its name can, whatever the working directory."""
    monkeypatch.chdir(file.parent)
    verifier = load_verifier("mine.py:same")
    assert verifier == UserVerifier(f"{file}:same")
    assert len(pickle.dumps(verifier)) < 500
    with GraderPool(workers=1, deadline_s=20.0) as pool:
        tickets = pool.submit_many(verifier, problem_id="p", texts=["ab", "x"], gold="ab", row={})
        assert [v.kind for v in pool.gather(tickets)] == [Kind.CORRECT, Kind.WRONG]
