"""Own data: what is read, what is dropped and counted, and what is refused with file and line."""

import gzip
import json
import os
import sys
import warnings
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from brorl.errors import ConfigError, DataError
from brorl.tasks.build import build_task
from brorl.tasks.files import FileTask, plain
from brorl.verify.choice import ChoiceVerifier
from brorl.verify.exact import ExactMatch
from brorl.verify.instruction import InstructionVerifier
from brorl.verify.math import MathVerifier
from brorl.verify.user import UserVerifier
from brorl.verify.verdict import Kind

SHARED = os.environ.get("BRORL_SHARED")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def task(train=None, evaluation=None, **changes):
    values = {"held_out": 0.0, "prompt": "q", "answer": "a", "verifier": MathVerifier("lenient")}
    return FileTask("mine", train=train, evaluation=evaluation, **(values | changes))


def rows(n, start=0):
    return [{"q": f"What is {i} + {i}?", "a": 2 * i} for i in range(start, start + n)]


def test_rows_become_problems(tmp_path):
    t = task(write(tmp_path / "t.jsonl", rows(3)))
    first = t.problems("train")[0]
    assert (first.id, first.prompt, first.gold) == ("mine/train/1", "What is 0 + 0?", "0")
    assert first.worked == r"\boxed{0}"
    assert first.row == {"q": "What is 0 + 0?", "a": 0}
    assert t.verifier.grade("0.0", gold=first.gold, row=first.row).kind is Kind.CORRECT


def test_training_rows_equal_to_held_out_ones_are_dropped_and_counted(tmp_path):
    """Attack: a test question in the training file, with other spacing."""
    train = write(tmp_path / "t.jsonl", [*rows(5), {"q": "What  is 100 + 100? ", "a": 200}])
    held = write(tmp_path / "e.jsonl", rows(3, start=100))
    t = task(train, held)
    assert {p.prompt for p in t.problems("train")} == {r["q"] for r in rows(5)}
    c = t.counts
    assert (c.read, c.train, c.evaluated, c.equal_to_eval) == (9, 5, 3, 1)
    assert c.read == c.train + c.evaluated + c.set_aside + c.duplicates + c.equal_to_eval


def test_the_held_out_share_is_decided_by_the_question_alone(tmp_path):
    """Adding rows moves none; about a third is held out (4 sigma of 300 coin flips: 33)."""
    small = task(write(tmp_path / "a.jsonl", rows(200)), held_out=1 / 3)
    large = task(write(tmp_path / "b.jsonl", rows(300)), held_out=1 / 3)
    held = {p.prompt for p in small.problems("eval")}
    assert held <= {p.prompt for p in large.problems("eval")}
    assert abs(len(large.problems("eval")) - 100) <= 33
    assert not held & {p.prompt for p in large.problems("train")}


def test_repeated_questions_are_dropped_with_a_warning(tmp_path):
    path = write(tmp_path / "t.jsonl", [*rows(3), *rows(2)])
    with pytest.warns(UserWarning, match="2 of 5 rows repeat a question"):
        t = task(path)
    assert (len(t.problems("train")), t.counts.duplicates) == (3, 2)
    assert len({p.id for p in t.problems("train")}) == 3


def test_unreadable_golds_are_set_aside_and_counted(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"q": "q1", "a": "$$"}, {"q": "q2", "a": "2"}])
    with pytest.warns(UserWarning, match=r"1 of 2 rows set aside.*t\.jsonl:1: the gold is empty"):
        t = task(path)
    assert ([p.prompt for p in t.problems("train")], t.counts.set_aside) == (["q2"], 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.jsonl: no rows"),
        ("\n \n", r"t\.jsonl: no rows"),
        ('{"q": "x", "a": 1}\n{"q": "y"}', r"t\.jsonl:2: no field 'a'; it has q"),
        ('{"q": "x", "a": 1}\n\nnot json', r"t\.jsonl:3: not JSON"),
        ("[1]", r"t\.jsonl:1: need a JSON object, got list"),
        ('{"q": 3, "a": 1}', r"t\.jsonl:1: field 'q' must be text, got 3"),
        ('{"q": " ", "a": 1}', r"t\.jsonl:1: field 'q' must be text"),
        ('{"q": "x", "a": null}', r"t\.jsonl:1: field 'a' must be text or a number, got None"),
        ('{"q": "x", "a": [1, 2]}', r"must be text or a number, got \[1, 2\]"),
        ('{"q": "x", "a": true}', r"must be text or a number, got True"),
        ('{"q": "x", "a": ""}', r"must be text or a number, got ''"),
        ('{"q": "x", "a": NaN}', r"must be text or a number, got nan"),
        ("[" * 100_000, r"t\.jsonl:1: not JSON"),
        ('{"q": "x", "a": 1, "q": "y"}', r"t\.jsonl:1: not JSON: key 'q' twice in one object"),
        ('{"q": "x", "a": 1, "r": {"b": 1, "b": 1}}', r"t\.jsonl:1: .*key 'b' twice"),
        ('{"q": "x", "a": ' + "9" * 5000 + "}", r"t\.jsonl:1: not JSON: .*4300"),
        ('{"q": "x", "a": 1e999}', r"must be text or a number, got inf"),
        ('{"q": "x\\ud800", "a": 1}', r"t\.jsonl:1: need whole Unicode text"),
        ('{"q": {"a": 1}, "a": 1}', r"field 'q' must be text, got {'a': 1}"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, text, message):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        task(str(path))


def test_a_key_twice_in_a_json_array_is_refused_too(tmp_path):
    (tmp_path / "t.json").write_text('[{"q": "x", "a": 1}, {"q": "x", "a": 1, "a": 2}]')
    with pytest.raises(DataError, match=r"t\.json: not JSON: key 'a' twice in one object"):
        task(str(tmp_path / "t.json"))


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([10**400, "\ud800", "\0", "\u2028", "$" * 50, "\\boxed{"])
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


made_up_rows = st.dictionaries(st.sampled_from(["q", "a", "r"]), anything) | st.fixed_dictionaries(
    {"q": st.text(min_size=1, max_size=20), "a": scalars, "r": anything}
)


def outcome(path, **changes):
    """Problems, or the one line that refuses them; anything else that is raised fails a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return task(str(path), **changes).problems("train")
        except DataError as error:
            line = str(error)
    assert "\n" not in line
    assert len(line) < 1000
    return line


@examples(max_examples=200, deadline=None, derandomize=True)
@given(made_up=st.lists(made_up_rows, max_size=4),
       verifier=st.sampled_from([MathVerifier("lenient"), ExactMatch(), ChoiceVerifier("r")]))  # fmt: skip
def test_made_up_rows_are_problems_or_one_line(tmp_path_factory, made_up, verifier):
    """Attack: numbers beyond every range, half surrogates, NUL, nesting, for three verifiers."""
    path = tmp_path_factory.mktemp("rows") / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in made_up))
    found = outcome(path, verifier=verifier)
    assert found.startswith(str(path)) if isinstance(found, str) else len(found) <= len(made_up)


@examples(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_made_up_bytes_are_rows_or_one_line(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "t.jsonl"
    path.write_bytes(content)
    found = outcome(path)
    assert found.startswith(str(path)) if isinstance(found, str) else found


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "t.csv").write_text("a,b")
    (tmp_path / "t.parquet").write_bytes(b"no")
    (tmp_path / "t.json").write_text('{"q": 1}')
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    for name, message in [
        ("none.jsonl", "need a data file, there is none"),
        ("t.csv", "need .jsonl, .json or .parquet, got '.csv'"),
        ("t.parquet", "not Parquet"),
        ("t.json", "need a JSON array"),
        ("b.jsonl", "need UTF-8"),
    ]:
        with pytest.raises(DataError, match=message):
            task(str(tmp_path / name))
    with pytest.raises(ConfigError, match=r"need data\.train or data\.eval"):
        task()


def test_one_table_in_four_formats(tmp_path):
    """Identity: the same rows whatever they are stored in."""
    write(tmp_path / "t.jsonl", rows(3))
    (tmp_path / "t.json").write_text(json.dumps(rows(3)))
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(3)), tmp_path / "t.parquet")
    tables = [
        [(p.prompt, p.gold) for p in task(str(tmp_path / name)).problems("train")]
        for name in ("t.jsonl", "t.json", "t.jsonl.gz", "t.parquet")
    ]
    assert tables[0] == tables[1] == tables[2] == tables[3]
    assert len(tables[0]) == 3


def test_line_separators_inside_of_strings_do_not_split_lines(tmp_path):
    """Attack: U+2028 in a question; str.splitlines would cut the row in two."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"q": "a\u2028b", "a": "1"}\n', encoding="utf-8")
    assert task(str(path)).problems("train")[0].prompt == "a\u2028b"


def test_rows_are_plain_and_travel_to_a_grader():
    assert plain({"a": (1, {"b": b"x"}), 3: None}) == {"a": [1, {"b": "b'x'"}], "3": None}


def test_instructions_need_no_answer_field(tmp_path):
    good = {"q": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    bad = {"q": "y", "instruction_id_list": ["no_such:kind"], "kwargs": [{}]}
    with pytest.warns(UserWarning, match="unknown instruction 'no_such:kind'"):
        t = task(
            write(tmp_path / "t.jsonl", [good, bad]), verifier=InstructionVerifier("strict", "all")
        )
    assert [(p.gold, p.worked) for p in t.problems("train")] == [(None, None)]


def test_a_verifier_that_writes_nothing_gives_no_worked_answers(tmp_path):
    """A user's function judges but does not know how an answer should be written."""
    t = task(write(tmp_path / "t.jsonl", rows(2)), verifier=UserVerifier("some.module:function"))
    assert [p.worked for p in t.problems("train")] == [None, None]
    assert t.problems("warmstart") == ()


def test_a_hub_data_set_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="needs the package `datasets`: pip install datasets"):
        task("hub:owner/name")


def test_a_hub_data_set_through_the_package(monkeypatch):
    """A stand-in for the package: names and split are passed on, its errors become one line."""

    class Package:
        @staticmethod
        def load_dataset(name, split):
            if name == "owner/gone":
                raise RuntimeError("404")
            assert (name, split) == ("owner/name", "test")
            return rows(2)

    monkeypatch.setitem(sys.modules, "datasets", Package)
    assert len(task("hub:owner/name@test").problems("train")) == 2
    with pytest.raises(DataError, match="RuntimeError: 404"):
        task("hub:owner/gone")


def test_gold_from_the_last_box_of_a_solution(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"q": "x", "s": r"\boxed{1} so \boxed{2}"}])
    assert task(path, answer="boxed(s)").problems("train")[0].gold == "2"
    bad = write(tmp_path / "u.jsonl", [{"q": "x", "s": "none"}])
    with pytest.raises(DataError, match=r"u\.jsonl:1: field 's' has no \\boxed"):
        task(bad, answer="boxed(s)")


@pytest.mark.skipif(SHARED is None, reason="BRORL_SHARED is not set")
@pytest.mark.parametrize(
    ("path", "prompt", "answer", "count"),
    [
        ("aime24/test.jsonl", "problem", "answer", 30),
        ("aime25/test.jsonl", "problem", "expected_answer", 30),
        ("amc_rllm/amc.json", "problem", "answer", 83),
        ("math500/test.jsonl", "problem", "answer", 500),
        ("minerva_math/test.jsonl", "problem", "boxed(solution)", 272),
        ("olympiadbench/test.jsonl", "question", "final_answer", 675),
    ],
)
@pytest.mark.filterwarnings("ignore:.*repeat a question.*")
def test_the_six_math_sets_read(path, prompt, answer, count):
    t = build_task(
        {},
        {
            "eval": str(Path(SHARED, "data", path)),
            "prompt": prompt,
            "answer": answer,
            "verifier": "math",
        },
    )
    assert t.counts.read == count
    assert t.counts.set_aside == 0
    for p in t.problems("eval"):
        extracted = t.verifier.extract(p.worked, p.row)
        assert t.verifier.grade(extracted, gold=p.gold, row=p.row).kind is Kind.CORRECT, p


@pytest.mark.skipif(SHARED is None, reason="BRORL_SHARED is not set")
@pytest.mark.filterwarnings("ignore:.*repeat a question.*")
def test_overlap_of_two_shared_sets_is_dropped():
    """Oracle: the shared SOURCES page counts 6 AIME training problems that MATH-500 holds too."""
    t = build_task(
        {},
        {
            "train": str(Path(SHARED, "data", "train_math", "aime_train.json")),
            "eval": str(Path(SHARED, "data", "math500", "test.jsonl")),
            "prompt": "problem",
            "answer": "answer",
            "verifier": "math",
        },
    )
    assert t.counts.equal_to_eval == 6


def test_exact_match_by_name(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"prompt": "x", "answer": "y"}])
    t = build_task({}, {"train": path, "verifier": "exact"})
    assert t.verifier == ExactMatch()
