"""The evaluation file: what was written comes back, and a bad file gets one line, not a guess."""

import json

import pytest

from brorl.errors import DataError
from brorl.evaluate.results import problem_result, read_evaluation, write_evaluation
from brorl.verify.verdict import Kind, correct, grader_error, no_answer, wrong

from .evaluations import evaluation, problem, suite


def small():
    return evaluation({"own": suite([problem("a", 3), problem("b", 0, 2, wrong=0.5)])})


def test_round_trip(tmp_path):
    """Identity."""
    path = tmp_path / "deep" / "e.json"
    write_evaluation(small(), path)
    assert read_evaluation(path) == small()
    assert [p.name for p in path.parent.iterdir()] == ["e.json"]


def test_a_failed_write_leaves_the_old_file_whole(tmp_path, monkeypatch):
    """Attack: the disk fills up while a newer result is written over an older one."""
    path = tmp_path / "e.json"
    write_evaluation(small(), path)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_evaluation(evaluation({"own": suite([problem("z", 1)])}), path)
    assert read_evaluation(path) == small()
    assert [p.name for p in tmp_path.iterdir()] == ["e.json"]


def test_samples_are_gathered_by_hand_count():
    """By hand: 5 sampled, 1 grader error leaves 4: "7" right twice, "8" half right, one without
    an answer. c counts 2 (not 2.5), the mean score is (1 + 1 + 0.5 + 0) / 4."""
    got = problem_result(
        "row-3",
        task="t",
        category="c",
        verdicts=[
            correct("7", "equal"),
            wrong("8", "near", score=0.5),
            grader_error("worker lost"),
            no_answer("no box"),
            correct("7", "equal"),
        ],
        tokens=[1, 2, 3, 4, 5],
        truncated=[False, False, True, True, False],
    )
    assert (got.n, got.c, got.grader_errors, got.truncated) == (4, 2, 1, 1)
    assert got.scores == (1.0, 0.5, 0.0, 1.0)
    assert got.tokens == (1, 2, 4, 5)
    assert got.score == 0.625
    assert got.verdicts == {Kind.CORRECT: 2, Kind.WRONG: 1, Kind.NO_ANSWER: 1}
    assert sorted(got.answers) == [(1, False), (2, True)]


def test_a_problem_without_one_graded_sample_is_no_zero():
    with pytest.raises(DataError, match="problem p: none of its 2 samples could be graded"):
        problem_result(
            "p",
            task="t",
            category="c",
            verdicts=[grader_error("x")] * 2,
            tokens=[1, 1],
            truncated=[False] * 2,
        )


def test_unequal_lengths_are_never_matched_up():
    with pytest.raises(DataError, match="got 2, 1 and 2"):
        problem_result(
            "p",
            task="t",
            category="c",
            verdicts=[correct("1", "")] * 2,
            tokens=[1],
            truncated=[False] * 2,
        )


def changed(tmp_path, edit):
    raw = json.loads(small().model_dump_json())
    edit(raw)
    path = tmp_path / "e.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(DataError) as caught:
        read_evaluation(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def first(raw):
    return raw["suites"]["own"]["problems"][0]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r: r.update(version=2), "need evaluation version 1, got 2"),
        (lambda r: r.update(version=True), "need evaluation version 1, got True"),
        (lambda r: r.pop("version"), "need evaluation version 1, got None"),
        (lambda r: r.update(format="lm-eval"), 'need "format": "brorl-evaluation"'),
        (lambda r: r.update(suites={}), "suites"),
        (lambda r: r["suites"]["own"].update(problems=[]), "empty suite"),
        (lambda r: r["protocol"].update(temperature=0), "temperature 0 is greedy: 4 samples"),
        (lambda r: r["protocol"].update(topp=1), "protocol.topp"),
        (lambda r: first(r).update(c=2), "problem a: c should count 3, got 2"),
        (lambda r: first(r).update(n=5), "problem a: scores should count 5, got 4"),
        (lambda r: first(r).update(tokens=[1]), "problem a: tokens should count 4, got 1"),
        (lambda r: first(r).update(scores=[1, 1, 1, 2]), "scores"),
        (lambda r: first(r).update(scores=["1", 1, 1, 0]), "scores"),
        (lambda r: first(r).update(truncated=9), "problem a: more answers, truncations"),
        (lambda r: first(r).update(verdicts={"correct": 4}), "verdicts.correct should count 3"),
        (lambda r: first(r).update(answers=[[9, False]]), "right votes should count 3, got 0"),
        (lambda r: first(r).update(id="b"), "problem b appears twice"),
        (lambda r: first(r).pop("tokens"), "tokens"),
    ],
)
def test_an_edited_file_is_refused_in_one_line(tmp_path, edit, message):
    assert message in changed(tmp_path, edit)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"x"', "\x00"])
def test_not_an_evaluation_at_all(tmp_path, text):
    """Attack: empty, cut off and foreign files."""
    path = tmp_path / "e.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"e\.json: need"):
        read_evaluation(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.json: no such evaluation file"):
        read_evaluation(tmp_path / "gone.json")
    with pytest.raises(DataError, match="need the JSON of an evaluation"):
        read_evaluation(tmp_path)


def test_one_greedy_sample_is_fine(tmp_path):
    greedy = evaluation({"own": suite([problem("a", 1, 1)])}, temperature=0.0, samples=1)
    write_evaluation(greedy, tmp_path / "e.json")
    assert read_evaluation(tmp_path / "e.json") == greedy


def test_settings_that_differ_are_named_and_the_seed_may():
    a = small().protocol
    assert a.differences(a.model_copy(update={"seed": 9})) == []
    b = a.model_copy(update={"seed": 9, "top_p": 1.0, "max_new_tokens": 32})
    assert a.differences(b) == ["top_p: 0.95 and 1.0", "max_new_tokens: 64 and 32"]
