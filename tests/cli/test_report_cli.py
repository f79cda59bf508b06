"""`brorl report`: where the page goes, what is refused, and how watching ends."""

import subprocess
import sys

import pytest
import typer
from report.recorded import CONFIG, finished_run, metrics, new_run
from typer.testing import CliRunner

from brorl.cli import report as verb
from brorl.errors import ConfigError, DataError, Interrupted
from brorl.record.metrics import append_metrics

app = typer.Typer()
app.command()(verb.report)


def ask(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refreshes(path):
    return 'http-equiv="refresh" content="1"' in path.read_text()


def test_one_run_is_written_into_its_folder_and_the_path_printed(tmp_path):
    run = finished_run(tmp_path / "run")
    assert ask(run) == f"{run}/report.html\n"
    assert "3 of 3 steps" in (run / "report.html").read_text()


def test_several_runs_are_written_beside_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b = finished_run(tmp_path / "a"), finished_run(tmp_path / "b")
    assert ask(a, b) == "report.html\n"
    assert "<h1>a · b</h1>" in (tmp_path / "report.html").read_text()
    ask(a, b, "--out", "c.html")
    assert (tmp_path / "c.html").read_bytes() == (tmp_path / "report.html").read_bytes()
    assert not (a / "report.html").exists()


def test_watching_follows_a_run_to_its_end(tmp_path, monkeypatch):
    """Each look finds one more step. While the run goes on the page asks to be read again; when the
    last step is there it is written once more without, and the command returns."""
    run = new_run(tmp_path / "run", CONFIG | {"steps": 2})
    seen = []

    def next_step(seconds):
        seen.append((seconds, refreshes(run / "report.html")))
        append_metrics(run, metrics(len(seen)))

    monkeypatch.setattr(verb.time, "sleep", next_step)
    ask(run, "--watch", "--every", 1)
    assert seen == [(1, True), (1, True)]
    assert not refreshes(run / "report.html")
    assert "2 of 2 steps" in (run / "report.html").read_text()


def test_watching_writes_only_when_something_is_new(tmp_path, monkeypatch):
    run = new_run(tmp_path / "run", CONFIG | {"steps": 1})
    looks = []

    def three_times_nothing(seconds):
        looks.append((run / "report.html").stat().st_mtime_ns)
        if len(looks) == 3:
            append_metrics(run, metrics(1))

    monkeypatch.setattr(verb.time, "sleep", three_times_nothing)
    ask(run, "--watch")
    assert len(looks) == 3
    assert len(set(looks)) == 1


def test_watching_bears_files_that_a_resume_is_cutting_back(tmp_path, monkeypatch):
    """Attack: a rollout file that is broken at the second look and whole at the third."""
    run = new_run(tmp_path / "run", CONFIG | {"steps": 2})
    broken = run / "rollouts" / "step-000001.parquet"
    looks = []

    def breaks_and_mends(seconds):
        looks.append(seconds)
        if len(looks) == 1:
            broken.write_text("half a file")
            append_metrics(run, metrics(1))
        else:
            broken.unlink()
            append_metrics(run, metrics(2))

    monkeypatch.setattr(verb.time, "sleep", breaks_and_mends)
    ask(run, "--watch")
    assert len(looks) == 2


def test_stopping_to_watch_leaves_the_page(tmp_path, monkeypatch):
    run = new_run(tmp_path / "run")

    def control_c(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(verb.time, "sleep", control_c)
    with pytest.raises(Interrupted, match=r"stopped watching; the page is .*report\.html"):
        ask(run, "--watch")
    assert (run / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--every", 5], ConfigError, r"--every is for --watch"),
        (["--watch", "--every", 0], ConfigError, r"--every needs at least 1 second, got 0"),
        (
            ["--out", "no/such/folder/x.html"],
            ConfigError,
            r"x\.html cannot be written: no/such/folder is not a folder",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, error, message):
    run = finished_run(tmp_path / "run")
    with pytest.raises(error, match=message):
        ask(run, *arguments)
    assert not (run / "report.html").exists()


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(DataError, match=r"is not a run: it has no config\.yaml"):
        ask(tmp_path, "--watch")


@pytest.mark.parametrize("name", ["brorl.cli.report", "brorl.cli.rollouts", "brorl.report.run"])
def test_reporting_needs_no_torch(name):
    """Policy: pages are written where no trainer is installed, and help is instant."""
    code = f"import {name}, sys; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def study(path, *names):
    """A folder with the files of a study that say that it is one."""
    path.mkdir()
    for name in names:
        (path / name).write_text("{}")
    return path


def test_a_study_is_handed_over_to_its_own_report(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "brorl.studies.runner.run.report_study", lambda f: asked.append(f) or f / "report.html"
    )
    finished = study(tmp_path / "width", "study.json", "result.json")
    assert ask(finished) == f"{finished}/report.html\n"
    only_result = study(tmp_path / "copied", "result.json")
    ask(only_result)
    assert asked == [finished, only_result]
    run = finished_run(tmp_path / "run")
    (run / "result.json").write_text("{}")
    assert ask(run) == f"{run}/report.html\n"
    assert len(asked) == 2


def test_a_study_that_cannot_be_shown_is_one_line(tmp_path):
    begun = study(tmp_path / "begun", "study.json")
    with pytest.raises(DataError, match=r"begun has no result\.json: it is no finished study"):
        ask(begun)
    with pytest.raises(ConfigError, match="begun is a study: its report stands alone, got 2"):
        ask(finished_run(tmp_path / "run"), begun)
    with pytest.raises(ConfigError, match=r"--out and --watch is for runs, and .*begun is a study"):
        ask(begun, "--out", tmp_path / "x.html", "--watch")
