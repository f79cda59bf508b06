"""What a run says on the terminal: its line a step, its notes as they are, its table at the end."""

import json

import pytest

from brorl.cli.console import Console, step_line
from brorl.cli.summary import summary
from brorl.record.metrics import append_metrics

METRICS = {
    "step": 7, "reward/mean": 0.25, "groups/solved_none": 0.5, "groups/solved_some": 0.25,
    "groups/solved_all": 0.25, "dynamic_sampling/pass_rate": 0.25, "policy/entropy": 1.5,
    "policy/lr": 3e-4, "samples/generated": 800, "time/generate": 1.0, "time/grade": 0.5,
    "time/update": 2.0, "time/eval": 0.0, "time/other": 0.5,
}  # fmt: skip


def test_a_line_a_step_by_hand():
    """800 samples in 1 + 0.5 + 2 + 0 + 0.5 = 4 s: 200 a second."""
    assert step_line(METRICS).split() == [
        "7", "0.250", "0.50", "0.25", "0.25", "0.25", "1.500", "3.0e-04", "200",
        "1.00s", "0.50s", "2.00s", "0.00s",
    ]  # fmt: skip


def test_a_step_without_samples_or_update_shows_dashes():
    bare = METRICS | {"reward/mean": None, "samples/generated": 0, "time/generate": None}
    del bare["policy/entropy"], bare["policy/lr"]
    words = step_line(bare).split()
    assert (words[1], words[6], words[7], words[8]) == ("-", "-", "-", "0")


@pytest.mark.parametrize("text", ["[red]x[/red] [bold]", ":key: :smile:", "x" * 300, "a\\[b"])
def test_notes_are_printed_as_they_are(capsys, text):
    """Attack: what a terminal library would read as colours, pictures or line ends."""
    with Console() as console:
        console.note(text)
    out, err = capsys.readouterr()
    assert (out, err) == ("", text + "\n")


def test_the_head_comes_again_every_twenty_steps(capsys):
    with Console() as console:
        console.step(METRICS | {"step": 0})
        console.begin(0, 50)
        for step in range(1, 42):
            console.step(METRICS | {"step": step})
    lines = capsys.readouterr().err.splitlines()
    heads = [i for i, line in enumerate(lines) if "reward" in line]
    assert heads == [0, 21, 42]
    assert len(lines) == 41 + 3


def test_the_table_at_the_end(tmp_path):
    for step, one in ((0, 0.25), (5, 0.5)):
        append_metrics(tmp_path, {
            "step": step, "eval/problems": 12, "eval/pass@1": one, "eval/pass@1_low": one - 0.125,
            "eval/pass@1_high": one + 0.125, "eval/pass@4": 0.75, "eval/pass@4_low": 0.5,
            "eval/pass@4_high": 1.0,
        })  # fmt: skip
    seconds = {
        "generate": 1.25,
        "grade": 0.0,
        "update": 2.0,
        "eval": 0.5,
        "other": 0.25,
        "total": 4.0,
    }
    result = {"steps": 5, "samples_generated": 12345, "samples_kept": 678, "seconds": seconds}
    text = summary(tmp_path, json.loads(json.dumps(result)))
    assert "12,345 generated, 678 kept" in text
    assert "4.0 (generate 1.2, grade 0.0, update 2.0, eval 0.5, other 0.2)" in text
    assert "held-out, 12 problems" in text
    (one,) = [line.split() for line in text.splitlines() if line.lstrip().startswith("pass@1")]
    assert one == ["pass@1", "0.250", "[0.125,", "0.375]", "0.500", "[0.375,", "0.625]"]
    assert "best held-out pass@1 0.500 after step 5" in text
    assert "report" not in text
    (tmp_path / "report.html").write_text("x")
    assert str(tmp_path / "report.html") in summary(tmp_path, result)


def test_a_run_without_held_out_problems_has_no_table(tmp_path):
    append_metrics(tmp_path, {"step": 0})
    result = {"steps": 0, "samples_generated": 0, "samples_kept": 0, "seconds": {"total": 0.0}}
    assert "held-out" not in summary(tmp_path, result)
