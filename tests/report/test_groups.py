"""Aggregates of a step against loops over its rows, and look-ups of single rows."""

from collections import Counter

import numpy as np
import pytest

from brorl.errors import DataError
from brorl.record.rollouts import read_rollouts, write_rollouts
from brorl.report.groups import Step

from .recorded import group, new_run, row

VERDICTS = ("correct", "wrong", "no_answer", "ungradable", "timeout", "grader_error")


def random_rows(seed, n=600):
    """Shuffled rows of groups with every kind of verdict, ties and answers that are not graded."""
    rng = np.random.default_rng(seed)
    seen = Counter()
    rows = []
    for _ in range(n):
        name = f"p{rng.integers(9)}"
        verdict = VERDICTS[rng.choice(6, p=[0.3, 0.4, 0.1, 0.08, 0.06, 0.06])]
        if name == "p8":
            verdict = "grader_error"
        has_text = verdict not in ("no_answer", "grader_error")
        right = float(verdict == "correct")
        kept = bool(rng.random() < 0.4)
        rows.append(
            row(
                problem_id=name,
                group_id=f"{name}#1",
                sample_index=seen[name],
                verdict=verdict,
                extracted=f"a{rng.integers(5)}" if has_text else None,
                raw_score=right,
                true_score=right if rng.random() < 0.9 else 1 - right,
                stop="length" if rng.random() < 0.2 else "eos",
                advantage=float(rng.normal()) if kept else None,
                kept=kept,
                fate="kept" if kept else "cut_from_group",
                text=f"text {len(rows)}",
            )
        )
        seen[name] += 1
    return [rows[i] for i in rng.permutation(n)]


def answer_of(r):
    return r.extracted if r.extracted is not None else f"<{r.verdict}>"


def oracle(rows, name):
    """Everything a Group says, by loops."""
    mine = [r for r in rows if r.group_id == name]
    graded = [r for r in mine if r.verdict != "grader_error"]
    counts = Counter(answer_of(r) for r in graded)
    first = {}
    for r in graded:
        first[answer_of(r)] = min(r.sample_index, first.get(answer_of(r), r.sample_index))
    top = min(counts, key=lambda a: (-counts[a], first[a]), default=None)
    return {
        "problem_id": mine[0].problem_id,
        "n": len(mine),
        "graded": len(graded),
        "right": sum(r.raw_score == 1 for r in graded),
        "kept": sum(r.kept for r in mine),
        "fates": dict(Counter(r.fate for r in mine)),
        "truncated": sum(r.stop == "length" for r in mine),
        "disputed": sum(r.raw_score != r.true_score for r in graded),
        "unread": sum(r.verdict in ("ungradable", "timeout", "grader_error") for r in mine),
        "distinct": len(counts),
        "top_answer": top,
        "top_share": counts[top] / len(graded) if graded else 0.0,
        "top_right": any(r.raw_score == 1 for r in graded if answer_of(r) == top),
        "first_row": rows.index(mine[0]),
    }


@pytest.mark.parametrize("seed", range(4))
def test_groups_match_loops_over_the_rows(tmp_path, seed):
    rows = random_rows(seed)
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, rows)
    groups = Step(run, 1).groups()
    assert [g.group_id for g in groups] == list(dict.fromkeys(r.group_id for r in rows))
    for found in groups:
        want = oracle(rows, found.group_id)
        assert {name: getattr(found, name) for name in want} == want
    assert next(g for g in groups if g.problem_id == "p8").outcome == "ungraded"


@pytest.mark.parametrize("seed", range(4))
def test_answers_match_loops_over_the_rows(tmp_path, seed):
    """Votes, verdicts, mean advantage and first sample of every distinct answer, in order."""
    rows = random_rows(seed)
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, rows)
    found = Step(run, 1).answers(["p3#1", "p8#1"])
    assert found.keys() == {"p3#1", "p8#1"}
    for name, answers in found.items():
        by_answer = {}
        for r in rows:
            if r.group_id == name:
                by_answer.setdefault(answer_of(r), []).append(r)
        for rs in by_answer.values():
            rs.sort(key=lambda r: r.sample_index)
        order = sorted(by_answer.values(), key=lambda rs: (-len(rs), rs[0].sample_index))
        assert [a.answer for a in answers] == [answer_of(rs[0]) for rs in order]
        for answer, rs in zip(answers, order, strict=True):
            seen = [r.advantage for r in rs if r.advantage is not None]
            assert answer.votes == len(rs)
            assert answer.verdicts == dict(Counter(r.verdict for r in rs))
            assert answer.right == sum(r.raw_score == 1 for r in rs)
            assert answer.row == rows.index(rs[0])
            assert answer.sample_index == rs[0].sample_index
            if seen:
                assert answer.advantage == pytest.approx(np.mean(seen), rel=1e-12)
            else:
                assert answer.advantage is None


def test_rows_are_found_across_batches_of_the_file(tmp_path):
    """Oracle: the whole table. Batches hold 2,048 rows; both sides of their borders are asked."""
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, [row(sample_index=i, text=f"text {i}") for i in range(5000)])
    wanted = [4999, 0, 2047, 2048, 4095, 4096, 2048]
    found = Step(run, 1).rows(wanted, ["text", "sample_index"])
    table = read_rollouts(run, 1, ("text", "sample_index")).to_pylist()
    assert found == {i: table[i] for i in set(wanted)}


def test_a_carried_group_keeps_the_step_that_sampled_it(tmp_path):
    run = new_run(tmp_path / "run")
    rows = group("old", ["cba", "abc"], step=7, born=6) + group("new", ["abc", "cba"], step=7)
    write_rollouts(run, 7, rows)
    assert [(g.problem_id, g.born) for g in Step(run, 7).groups()] == [("old", 6), ("new", 7)]


@pytest.mark.parametrize(
    ("kept", "fates", "why"),
    [
        ([True, True], ["kept", "kept"], "kept"),
        ([True, False], ["kept", "cut_from_group"], "kept 1 of 2"),
        (
            [False, False],
            ["group_without_spread", "grader_error"],
            "grader error, group without spread",
        ),
    ],
)
def test_says_why_a_group_was_kept_or_not(tmp_path, kept, fates, why):
    run = new_run(tmp_path / "run")
    rows = [
        row(sample_index=i, kept=k, fate=f)
        for i, (k, f) in enumerate(zip(kept, fates, strict=True))
    ]
    write_rollouts(run, 1, rows)
    assert Step(run, 1).groups()[0].why == why


def test_answers_with_strange_characters_are_counted_apart(tmp_path):
    """Attack: answers that differ in a NUL, a quote, case or a trailing space are not equal, and
    an answer that is spelt like the mark of a missing one is no missing one."""
    run = new_run(tmp_path / "run")
    texts = ["a", "a\x00", "a'--", "A", "a ", "", "<no_answer>", None, "\ud800"]
    write_rollouts(run, 1, group("p", texts))
    step = Step(run, 1)
    answers = step.answers(["p#0"])["p#0"]
    assert len(answers) == len(texts)
    assert step.groups()[0].distinct == len(texts)


def test_names_the_file_that_is_not_a_rollout_file(tmp_path):
    run = new_run(tmp_path / "run")
    (run / "rollouts" / "step-000001.parquet").write_text("not parquet")
    with pytest.raises(DataError, match=r"step-000001\.parquet: not a rollout file"):
        Step(run, 1)
