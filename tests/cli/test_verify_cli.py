"""`brorl verify` through its function: verdicts, order, refusals, exit statuses."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from brorl.cli.verify import verify
from brorl.errors import ConfigError, DataError
from brorl.verify.code_runner import runner
from brorl.verify.sandbox import open_sandbox

app = typer.Typer()
app.command()(verify)
ADD = {"kind": "function", "entry_point": "add", "tests": ["assert add(1, 2) == 3"]}


def run(*arguments):
    """The objects printed; an error of ours is raised, as `brorl.cli.main` expects."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_one_answer_by_hand():
    (found,) = run("--gold", "\\frac{1}{2}", "--answer", "so it is \\boxed{0.5}")
    assert (found["verdict"], found["extracted"], found["score"]) == ("correct", "0.5", 1.0)
    assert set(found) == {"verdict", "extracted", "reason", "score"}
    (found,) = run("--gold", "B", "--answer", "The answer is C.", "--kind", "choice")
    assert (found["verdict"], found["extracted"], found["score"]) == ("wrong", "C", 0.0)


def test_a_line_a_row_in_the_order_of_the_rows(tmp_path):
    """300 rows, every seventh right; blank lines are no rows."""
    path = lines(
        tmp_path / "rows.jsonl",
        *({"gold": 7, "answer": f"\\boxed{{{i % 7 + 1}}}"} for i in range(300)),
    )
    path.write_text(path.read_text().replace("\n", "\n\n", 3))
    found = run(path, "--workers", 2)
    assert [f["extracted"] for f in found] == [str(i % 7 + 1) for i in range(300)]
    assert [f["score"] for f in found] == [float(i % 7 == 6) for i in range(300)]


def test_rows_may_name_their_verifier(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("def longer(*, gold, answer, row):\n    return len(answer) > row['least']\n")
    path = lines(
        tmp_path / "rows.jsonl",
        {"gold": "x", "answer": " x ", "kind": "exact"},
        {"gold": "2", "answer": "\\boxed{2}"},
        {"gold": "A", "answer": "A", "kind": "choice", "options": ["one", "two"]},
        {"gold": "", "answer": "abcd", "least": 3, "kind": f"{own}:longer"},
        {"gold": "", "answer": "ab", "least": 3, "kind": f"{own}:longer"},
        {"gold": "", "answer": "ab", "kind": f"{own}:longer"},
    )
    found = run(path)
    assert [f["verdict"] for f in found] == ["correct"] * 4 + ["wrong", "grader_error"]
    assert "KeyError" in found[-1]["reason"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "Expecting property name"),
        ("[1]", "a row must be an object, got list"),
        ('{"gold": "1"}', "answer must be a string, got NoneType"),
        ('{"answer": "1"}', "gold must be a string or a number, got NoneType"),
        ('{"gold": true, "answer": "1"}', "gold must be a string or a number, got bool"),
        ('{"gold": "1", "answer": "1", "kind": "mth"}', "unknown verifier 'mth'; nearest: math"),
        ('{"gold": "1", "answer": "1", "kind": 3}', "kind must be a string, got int"),
        ('{"task": {"kind": "function", "tests": []}}', "code must be a string, got NoneType"),
        ('{"task": {"kind": "sql"}, "code": ""}', "task.kind must be one of function, stdin"),
        ('{"task": 3, "code": ""}', "task must be an object, got int"),
        ("[" * 100_000, "recursion"),
        ("\xff", "codec can't decode"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_nothing_is_printed(bad, says, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    good = json.dumps({"gold": "1", "answer": "\\boxed{1}"}).encode()
    path.write_bytes(good + b"\n" + bad.encode("latin-1") + b"\n" + good)
    with pytest.raises(DataError) as error:
        run(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert says in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--gold", "1"],
        ["--answer", "1"],
        ["rows.jsonl", "--gold", "1", "--answer", "1"],
        ["--gold", "1", "--answer", "1", "--deadline", "0"],
        ["--gold", "1", "--answer", "1", "--kind", "nothing"],
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments):
    with pytest.raises(ConfigError):
        run(*arguments)


def test_a_file_that_is_not_there():
    with pytest.raises(DataError, match="cannot read /nowhere: No such file"):
        run("/nowhere")


def forget():
    """What this process has found out about sandboxes."""
    open_sandbox.cache_clear()
    runner.cache_clear()


def test_programs_are_refused_without_bubblewrap_and_other_rows_are_not(tmp_path, monkeypatch):
    forget()
    monkeypatch.setenv("PATH", "/nowhere")
    row = {"task": ADD, "code": "def add(a, b): return a + b"}
    with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        run(lines(tmp_path / "a.jsonl", row))
    plain = {"gold": "1", "answer": "1", "kind": "exact"}
    assert run(lines(tmp_path / "b.jsonl", plain))[0]["verdict"] == "correct"
    (found,) = run(lines(tmp_path / "a.jsonl", row), "--unsafe-local")
    assert found["verdict"] == "correct"
    forget()


def test_programs_and_answers_in_one_file(tmp_path):
    pytest.importorskip("shutil").which("bwrap") or pytest.skip("needs bubblewrap")
    stdin = {
        "kind": "stdin",
        "tests": [{"input": "1", "output": "1"}, {"input": "2", "output": "3"}],
    }
    path = lines(
        tmp_path / "rows.jsonl",
        {"task": ADD, "code": "def add(a, b): return a + b"},
        {"gold": "1", "answer": "\\boxed{1}"},
        {"task": stdin, "code": "```python\nprint(input())\n```"},
        {"task": ADD, "code": "def add(a, b):\n    while True: pass"},
        {"task": ADD | {"tests": []}, "code": "def add(a, b): return a + b"},
        {"task": ADD, "code": "```text\nPASSED\n```"},
    )
    found = run(path, "--timeout", 1, "--partial")
    assert [(f["verdict"], f["score"]) for f in found] == [
        ("correct", 1.0),
        ("correct", 1.0),
        ("wrong", 0.5),
        ("timeout", 0.0),
        ("grader_error", 0.0),
        ("no_answer", 0.0),
    ]
    assert "at least one test, got none" in found[4]["reason"]


def test_help_has_an_example():
    result = CliRunner().invoke(app, ["--help"])
    assert "Example: brorl verify --gold" in result.stdout


@pytest.mark.slow
def test_all_shared_attacks_through_the_command():
    folder = os.environ.get("BRORL_SHARED") or pytest.skip("BRORL_SHARED is not set")
    path = Path(folder) / "truth" / "code_abuse.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = run(path)
    assert len(found) == len(rows)
    for row, one in zip(rows, found, strict=True):
        if not row["expected_verdict"].startswith("policy"):
            assert (one["verdict"] == "correct") == (row["expected_verdict"] == "pass"), row["name"]
