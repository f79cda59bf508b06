"""Runs of a study in processes: shares of a budget by hand, signals and kills as they come."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from train.toys import recipe

from brorl.record.metrics import append_metrics, read_metrics
from brorl.studies.runner import jobs
from brorl.studies.runner.contract import Knobs
from brorl.studies.runner.jobs import Job

ASKED = ["study.widths=[4,8]", "study.batch=16", "study.prompts=2", "study.samples=60",
         "study.evals=2", "--seeds", "2"]  # fmt: skip


def job(name, samples, folder=Path("nowhere")):
    return Job(
        name, folder / name, folder / f"{name}.json", "quickstart", (), samples, None, Knobs()
    )


def test_a_run_gets_its_part_of_the_time_left(monkeypatch, tmp_path):
    """Hand-computed: 100 s left, weights 1, 1 and 2, nine tenths of it for runs."""
    monkeypatch.setattr(jobs.time, "monotonic", lambda: 50.0)
    left = [job("a", 10), job("b", 10), job("c", 20)]
    assert jobs._share(left[0], left, None, 1) is None
    assert jobs._share(left[0], left, 150.0, 1) == pytest.approx(0.9 * 25)
    assert jobs._share(left[2], left, 150.0, 1) == pytest.approx(0.9 * 50)
    assert jobs._share(left[0], left, 150.0, 2) == pytest.approx(2 * 0.9 * 25)
    assert jobs._share(left[2], left[2:], 150.0, 2) == 100.0  # never more than there is
    assert jobs._share(left[0], left, 40.0, 1) == 1e-3  # late: it is evaluated and ends


def test_what_a_run_took_before_is_no_part_of_its_share(monkeypatch, tmp_path):
    """max_seconds counts the whole run, so what earlier sessions took is added."""
    monkeypatch.setattr(jobs.time, "monotonic", lambda: 0.0)
    one = job("a", 10, tmp_path)
    one.folder.mkdir()
    append_metrics(
        one.folder, {"step": 1, "time/generate": 3.0, "time/eval": 4.0, "time/cpu": 99.0}
    )
    assert jobs._share(one, [one], 10.0, 1) == pytest.approx(7.0 + 9.0)


@pytest.mark.parametrize(
    ("asked", "result", "limit", "ended"),
    [
        ({"max_samples": 10}, (12, 3), None, "max_samples"),
        ({"max_samples": 10}, (12, 3), 5.0, "max_samples"),
        ({"max_samples": 10}, (8, 3), 5.0, "max_seconds"),
        ({"max_samples": 10, "steps": 3}, (8, 3), 5.0, "steps"),
        ({"max_samples": 10, "steps": 0}, (0, 0), None, "steps"),
    ],
)
def test_which_limit_ended_a_run(asked, result, limit, ended):
    one = Job("a", Path("a"), Path("b"), "quickstart", tuple(asked.items()), 10, None, Knobs())
    found = {"samples_generated": result[0], "steps": result[1]}
    assert jobs._ended(one, found, limit) == ended


@pytest.fixture
def study(tmp_path):
    """Starts `brorl study run` on a toy recipe; (start, folder of the study)."""
    recipe(tmp_path, data={"held_out": 0.4})
    out = tmp_path / "out"
    command = [Path(sys.executable).parent / "brorl", "study", "run", "width", "--workers", "2",
               f"study.recipe={tmp_path}/toy.yaml", *ASKED, "--out", out, "--json"]  # fmt: skip
    started = []

    def start():
        started.append(subprocess.Popen(
            command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"BRORL_CACHE": str(tmp_path / "cache")}, start_new_session=True,
        ))  # fmt: skip
        return started[-1]

    yield start, out
    for process in started:
        if process.poll() is None:
            process.kill()


def wait_for(condition, process, what, timeout_s=300):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        assert process.poll() is None, process.communicate()[1][-1000:]
        time.sleep(0.02)


def steps_of(out):
    """Steps on record, all runs together."""
    return sum(len(read_metrics(run)) for run in (out / "runs").glob("n*"))


def finished(process):
    said, errors = process.communicate(timeout=600)
    assert process.returncode in (0, 1), errors[-2000:]
    assert said, errors[-2000:]
    return json.loads(said), errors


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_runs_and_the_same_command_goes_on(study, number):
    start, out = study
    first = start()
    wait_for(lambda: steps_of(out) > 3, first, "a step")
    first.send_signal(number)
    _, errors = first.communicate(timeout=300)
    assert first.returncode == 130, errors
    assert "Traceback" not in errors
    assert "the same command goes on" in errors.splitlines()[-1]
    done = {p.name for p in (out / "done").glob("*.json")} if (out / "done").exists() else set()
    second = start()
    said, errors = finished(second)
    assert f"6 runs, {len(done)} of them done" in errors
    result = json.loads(Path(said["result"]).read_text())
    assert len(result["runs"]) == 6
    for run in result["runs"]:  # no step twice, none left out
        steps = [row["step"] for row in read_metrics(out / run["path"])]
        assert steps == list(range(len(steps)))


@pytest.mark.slow
def test_a_killed_study_leaves_runs_that_save_and_stop_and_can_be_gone_on_with(study):
    start, out = study
    first = start()
    wait_for(lambda: steps_of(out) > 2, first, "a step")
    first.kill()
    first.communicate()
    deadline = time.monotonic() + 300
    before = -1
    while before != steps_of(out):  # the runs notice, finish their step and end
        assert time.monotonic() < deadline
        before = steps_of(out)
        time.sleep(5)
    assert len(list((out / "runs").glob("n*"))) < 6
    said, _ = finished(start())
    assert len(json.loads(Path(said["result"]).read_text())["runs"]) == 6


@pytest.mark.slow
def test_a_killed_run_is_one_line_and_the_others_are_saved(study):
    start, out = study
    first = start()
    wait_for(lambda: steps_of(out) > 2, first, "a step")
    locks = [p for p in (out / "runs").glob("n*/lock") if p.read_text().strip()]
    running = [p for p in locks if not (out / "done" / f"{p.parent.name}.json").exists()]
    os.kill(int(running[0].read_text()), signal.SIGKILL)
    _, errors = first.communicate(timeout=300)
    assert first.returncode == 3, errors
    assert f"run {running[0].parent.name} died (signal 9); it is resumable" in errors
    finished(start())


@pytest.mark.slow
def test_two_at_once_end_as_one_after_the_other(study, tmp_path):
    """Identity: processes and their number change nothing but the clock."""
    start, out = study
    finished(start())
    from brorl.studies.runner.run import run_study
    from brorl.studies.runner.spec import make_spec

    spec = make_spec("width", [f"study.recipe={tmp_path}/toy.yaml", *ASKED[:-2]],
                     seeds=2, workers=0)  # fmt: skip
    run_study(spec, tmp_path / "alone")
    both = [json.loads((p / "result.json").read_text()) for p in (out, tmp_path / "alone")]
    for budget in ("generated", "kept", "tokens", "update_tokens", "updates"):
        assert both[0]["matched"]["all"][budget] == both[1]["matched"]["all"][budget]
