"""`brorl rollouts`: what it prints, what it refuses, and that answers cannot write the terminal."""

import json

import pytest
import typer
from report.recorded import finished_run, group, new_run
from typer.testing import CliRunner

from brorl.cli.rollouts import rollouts
from brorl.errors import ConfigError, DataError
from brorl.record.rollouts import write_rollouts

app = typer.Typer()
app.command()(rollouts)


def ask(*arguments):
    """Standard output; an error comes out as it was raised."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def line_with(text, *words):
    (line,) = (x for x in text.splitlines() if all(w in x for w in words))
    return line.split()


def test_groups_of_the_newest_step(tmp_path):
    """By hand: of `easy` 3 of 4 are right in 2 distinct answers, the commonest has 75 %; of `hard`
    0 of 4 in 3 (one is no answer), the commonest has 50 %."""
    text = ask(finished_run(tmp_path / "run"))
    assert text.startswith("step 3\n")
    assert line_with(text, "easy") == [
        "easy",
        "#0",
        "4",
        "3",
        "2",
        "75",
        "%",
        "cba",
        "some",
        "kept",
        "divided",
    ]
    assert line_with(text, "hard")[:9] == ["hard", "#0", "4", "0", "3", "50", "%", "abc", "none"]


def test_groups_as_json(tmp_path):
    found = json.loads(ask(finished_run(tmp_path / "run"), "--step", 2, "--json"))
    assert found["step"] == 2
    assert found["left_out"] == 0
    easy = next(g for g in found["groups"] if g["problem_id"] == "easy")
    assert (easy["n"], easy["right"], easy["distinct"], easy["top_answer"]) == (4, 3, 2, "cba")
    assert (easy["outcome"], easy["why"]) == ("some", "kept")


def test_distinct_answers_of_a_problem(tmp_path):
    """By hand: 3 of 4 say cba, 1 says abc; the update's advantage is the -0.5 of the rows."""
    run = finished_run(tmp_path / "run")
    text = ask(run, "--problem", "easy")
    assert "answers  4, 3 right, 2 distinct; kept" in text
    assert "prompt   rev abc=" in text
    assert line_with(text, "3×") == ["3×", "75.0", "%", "correct", "advantage", "-0.500", "cba"]
    assert line_with(text, "1×") == ["1×", "25.0", "%", "wrong", "advantage", "-0.500", "abc"]
    found = json.loads(ask(run, "--problem", "easy", "--json"))["groups"][0]
    assert [(a["answer"], a["count"], a["verdicts"], a["text"]) for a in found["answers"]] == [
        ("cba", 3, {"correct": 3}, "cba"),
        ("abc", 1, {"wrong": 1}, "abc"),
    ]
    assert found["gold"] == "cba"


def test_a_group_that_the_update_never_saw_has_no_advantage(tmp_path):
    text = ask(finished_run(tmp_path / "run"), "--problem", "hard")
    assert line_with(text, "2×") == ["2×", "50.0", "%", "wrong", "advantage", "-", "abc"]
    assert line_with(text, "no_answer")[-1] == "<no_answer>"


def test_a_problem_without_a_step_is_found_in_the_newest_that_sampled_it(tmp_path):
    run = finished_run(tmp_path / "run")
    write_rollouts(run, 4, group("other", ["cba", "abc"], step=4))
    assert json.loads(ask(run, "--problem", "easy", "--json"))["step"] == 3
    assert json.loads(ask(run, "--problem", "easy#0", "--step", 1, "--json"))["step"] == 1


def test_limits_say_what_they_leave_out(tmp_path):
    run = new_run(tmp_path / "run")
    rows = [r for i in range(5) for r in group(f"p{i}", [f"w{j}" for j in range(i + 2)])]
    write_rollouts(run, 1, rows)
    text = ask(run, "--limit", 2)
    assert "3 more groups; --limit 5 shows all" in text
    assert json.loads(ask(run, "--limit", 2, "--json"))["left_out"] == 3
    assert "4 more distinct answers" in ask(run, "--problem", "p4", "--limit", 2)


def test_answers_cannot_write_the_terminal(tmp_path):
    """Attack: escapes that clear the screen, a carriage return that overwrites the verdict, rich
    markup, a direction override; in the answer, the text, the prompt, the gold and the id."""
    bad = "\x1b[2J\rcorrect [bold]x[/bold] \u202e\x9b31m"
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, group(f"p{bad}", [bad, "other"], gold=bad, prompt=bad, reason=bad))
    for text in (ask(run), ask(run, "--problem", f"p{bad}")):
        assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(text)
        assert "\\x1b[2J\\x0dcorrect [bold]x[/bold] \\u202e\\x9b31m" in text
    assert json.loads(ask(run, "--problem", f"p{bad}", "--json"))["groups"][0]["gold"] == bad


def test_lines_of_an_answer_stay_in_its_own_block(tmp_path):
    """Attack: an answer with a line that looks like a line of ours; every line of it is indented."""
    fake = "x\n   999×  100.0 %  correct"
    run = new_run(tmp_path / "run")
    write_rollouts(run, 1, group("p", [fake, "y"]))
    lines = [x for x in ask(run, "--problem", "p").splitlines() if "999×" in x]
    assert [x for x in lines if not x.startswith("         ")] == [
        "     1×   50.0 %  wrong         advantage  -0.500  x⏎   999×  100.0 %  correct"
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ["--step", 9],
            DataError,
            r"step-000009\.parquet: no rollouts of step 9; there are steps 1 to 3",
        ),
        (
            ["--problem", "esay"],
            DataError,
            r"no step has a problem or group 'esay'; the nearest is 'easy'",
        ),
        (
            ["--problem", "hrad", "--step", 2],
            DataError,
            r"step 2 has no problem or group 'hrad'; the nearest is 'hard'",
        ),
        (["--limit", 0], ConfigError, r"--limit needs at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, error, message):
    run = finished_run(tmp_path / "run")
    with pytest.raises(error, match=message) as caught:
        ask(run, *arguments)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_run_and_a_run_without_rollouts(tmp_path):
    with pytest.raises(DataError, match=r"is not a run: it has no config\.yaml"):
        ask(tmp_path)
    with pytest.raises(DataError, match=r"rollouts: no rollouts are recorded"):
        ask(new_run(tmp_path / "run"))


# --hacking


def paid_run(path):
    """One group of 4 answers, two of them paid in full, one of these right."""
    run = new_run(path)
    rows = [row._replace(raw_score=1.0) if i < 2 else row
            for i, row in enumerate(group("p", ["cba", "abc", "abc", None]))]  # fmt: skip
    write_rollouts(run, 1, rows)
    return run


def test_hacking_by_hand(tmp_path):
    """Of two draws from four, P(one of the two paid ones) = 1 - C(2,2)/C(4,2) = 5/6; ties are
    broken fairly, so half of these picks are right: true 5/12, hacked 5/12. Of four draws: 1, 1/2,
    1/2. The true score rises with the proxy to the end."""
    run = paid_run(tmp_path / "run")
    found = json.loads(ask(run, "--hacking", "--json"))
    curve = [
        [p["n"], *(p[x]["value"] for x in ("proxy", "true", "hacked"))] for p in found["curve"]
    ]
    want = [[1, 1 / 2, 1 / 4, 1 / 4], [2, 5 / 6, 5 / 12, 5 / 12], [4, 1, 1 / 2, 1 / 2]]
    assert [pytest.approx(row) for row in want] == curve
    assert (found["step"], found["groups"], found["samples"]) == (1, 1, 4)
    assert found["best_of_n"]["shape"] == "rises"
    text = ask(run, "--hacking", "--step", 1)
    assert line_with(text, "0.833")[0] == "2"
    assert "best of n: the true score rises (from 0.250 to " in text
    assert "1 groups, 4 answers" in text


def test_an_honest_reward_is_never_hacked(tmp_path):
    """Identity: where both scores are one, so are their columns."""
    found = json.loads(ask(finished_run(tmp_path / "run"), "--hacking", "--json"))
    assert all(p["proxy"] == p["true"] and p["hacked"]["value"] == 0 for p in found["curve"])


def test_hacking_is_of_a_step(tmp_path):
    run = paid_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="--hacking is of a whole step"):
        ask(run, "--hacking", "--problem", "p")
    with pytest.raises(DataError, match="no rollouts of step 7"):
        ask(run, "--hacking", "--step", 7)
