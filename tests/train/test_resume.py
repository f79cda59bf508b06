"""Stopped anywhere and resumed, a run ends as if it had never stopped: numbers and weights alike.

The unbroken run is made once. A run is broken where a process could die (an exception that
nothing catches), by a signal, by a full disk or by damage to its newest checkpoint; then resumed.
tests/train/test_kill.py does the same with SIGKILL on a process of its own.
"""

import json
import shutil

import pytest

from brorl.errors import ConfigError, DataError, Interrupted, RunError
from brorl.record.rollouts import read_rollouts
from brorl.record.rundir import RunLock
from brorl.train import api
from brorl.train.checkpoint import checkpoint_path, checkpoint_steps

from .runs import RICH, Killed, Stopper, lines, names, newest, no_report, same_end
from .toys import recipe

__all__ = ["no_report"]
pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """(recipe, the run)"""
    folder = tmp_path_factory.mktemp("unbroken")
    made = recipe(folder, save_every=3, eval_every=3, steps=7, **RICH)
    api.train(str(made), {"run_dir": folder / "run"})
    return str(made), folder / "run"


def break_at(unbroken, run, place, number, action="kill"):
    progress = Stopper(place, number, action)
    with pytest.raises(Killed if action == "kill" else Interrupted) as found:
        api.train(unbroken[0], {"run_dir": run}, progress=progress)
    return found.value, progress


PLACES = [
    ("evaluated", 0),  # before anything is on record
    ("step", 0),  # recorded, not saved
    ("begin", 0),
    ("step", 2),  # between checkpoints
    ("evaluated", 3),  # the evaluation is on disk, the step's line is not
    ("step", 3),  # the line is, the checkpoint is not
    ("step", 4),
    ("step", 6),
    ("evaluated", 7),
    ("step", 7),
]


@pytest.mark.parametrize(("place", "number"), PLACES)
def test_killed_there_and_resumed_it_ends_the_same(unbroken, tmp_path, place, number):
    break_at(unbroken, tmp_path / "run", place, number)
    api.resume(tmp_path / "run")
    same_end(unbroken[1], tmp_path / "run")
    assert names(tmp_path / "run" / "rollouts") == names(unbroken[1] / "rollouts")
    assert names(tmp_path / "run" / "eval") == names(unbroken[1] / "eval")
    best = [json.loads((r / "best.json").read_text()) for r in (unbroken[1], tmp_path / "run")]
    assert best[0] == best[1]


def test_killed_again_and_again_it_ends_the_same(unbroken, tmp_path):
    break_at(unbroken, tmp_path / "run", "step", 1)
    for place, number in [("step", 1), ("evaluated", 3), ("step", 5), ("begin", 3), ("step", 7)]:
        with pytest.raises(Killed):
            api.resume(tmp_path / "run", progress=Stopper(place, number))
    api.resume(tmp_path / "run")
    same_end(unbroken[1], tmp_path / "run")


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("place", "number", "after"), [("step", 2, 2), ("evaluated", 0, 0), ("step", 7, 7)]
)
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    unbroken, tmp_path, signal, place, number, after
):
    error, progress = break_at(unbroken, tmp_path / "run", place, number, signal)
    assert f"stopped by {signal} after step {after}; saved " in str(error)
    assert str(error).endswith(f"go on with: brorl resume {tmp_path / 'run'}")
    assert any(f"{signal}: finishing the step" in note for note in progress.notes)
    assert newest(tmp_path / "run") == checkpoint_path(tmp_path / "run", after)
    api.resume(tmp_path / "run")
    same_end(unbroken[1], tmp_path / "run")


def test_the_first_checkpoint_is_not_made_twice(unbroken, tmp_path):
    """Resumed from step 0, the start is on record once and counted once."""
    break_at(unbroken, tmp_path / "run", "step", 1)
    assert checkpoint_steps(tmp_path / "run") == [0]
    api.resume(tmp_path / "run")
    assert [m["step"] for m in lines(tmp_path / "run")] == list(range(8))


def test_it_says_which_prompts_come_next(unbroken, tmp_path):
    """They are those of the step after the checkpoint, in the unbroken run too."""
    break_at(unbroken, tmp_path / "run", "step", 4)  # the checkpoint is of step 3
    progress = Stopper()
    api.resume(tmp_path / "run", progress=progress)
    (note,) = [n for n in progress.notes if n.startswith("goes on with step 4; prompts ")]
    rows = read_rollouts(unbroken[1], 4, ["group_id", "born"]).to_pylist()
    fresh = dict.fromkeys(r["group_id"] for r in rows if r["born"] == 4)
    assert note.removesuffix(" come next").split("prompts ")[1].split(", ")[0] == next(iter(fresh))


# Damage


def test_a_damaged_newest_checkpoint_is_passed_over_and_named(unbroken, tmp_path):
    shutil.copytree(unbroken[1], tmp_path / "run")
    (newest(tmp_path / "run") / "model.safetensors").write_bytes(b"half")
    progress = Stopper()
    api.resume(tmp_path / "run", progress=progress)
    assert any(
        "passing over a damaged or foreign checkpoint" in n and "step-000007" in n
        for n in progress.notes
    )
    same_end(unbroken[1], tmp_path / "run")


def test_without_one_readable_checkpoint_it_refuses_and_keeps_the_records(unbroken, tmp_path):
    shutil.copytree(unbroken[1], tmp_path / "run")
    for step in checkpoint_steps(tmp_path / "run"):
        (checkpoint_path(tmp_path / "run", step) / "manifest.json").unlink()
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(DataError, match=r"none of its checkpoints .* can be used"):
        api.resume(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_leftovers_of_interrupted_writes_are_swept(unbroken, tmp_path):
    break_at(unbroken, tmp_path / "run", "step", 4)
    run = tmp_path / "run"
    (run / "checkpoints" / ".step-000006.77.tmp").mkdir()
    (run / "checkpoints" / ".step-000006.77.tmp" / "model.safetensors").write_text("half")
    (run / "checkpoints" / ".trash-step-000000-77").mkdir()
    for place in ("rollouts/.step-000005.parquet.77.tmp", "eval/.step-000006.json.77.tmp",
                  ".metrics.jsonl.77.tmp"):  # fmt: skip
        (run / place).write_text("half")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "torn')
    api.resume(run)
    same_end(unbroken[1], run)
    assert not list(run.rglob(".*"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"threads": 1}', '{"threads": "x", "data": {}}'])
def test_a_damaged_environment_is_one_line(unbroken, tmp_path, text):
    shutil.copytree(unbroken[1], tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text(text)
    with pytest.raises(DataError, match=r"environment\.json: not what a run records") as found:
        api.resume(tmp_path / "run", ["steps=9"])
    assert "\n" not in str(found.value)


# What may change


def test_more_steps_are_the_steps_of_a_longer_run(unbroken, tmp_path):
    """From 6 steps, which is on every schedule, to 7: as one run of 7."""
    api.train(unbroken[0], {"run_dir": tmp_path / "run", "steps": 6})
    api.resume(tmp_path / "run", ["steps=7", "keep_checkpoints=9"])
    same_end(unbroken[1], tmp_path / "run")


def test_other_settings_and_other_data_are_refused(unbroken, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    made = recipe(folder, steps=2)
    api.train(str(made), {"run_dir": tmp_path / "run"})
    before = lines(tmp_path / "run")
    with pytest.raises(ConfigError, match="lr may not change on resume, only steps, "):
        api.resume(tmp_path / "run", ["lr=0.5"])
    rows = folder / "rows.jsonl"
    text = rows.read_text()
    rows.write_text(text.replace("q03=", "q33="))
    with pytest.raises(DataError, match="the data of task data has changed since the run began"):
        api.resume(tmp_path / "run", ["steps=4"])
    rows.unlink()
    with pytest.raises(DataError, match="need a data file, there is none"):
        api.resume(tmp_path / "run", ["steps=4"])
    assert lines(tmp_path / "run") == before
    rows.write_text(text)
    api.resume(tmp_path / "run", ["steps=4"])
    assert [m["step"] for m in lines(tmp_path / "run")] == [0, 1, 2, 3, 4]


def test_other_ground_is_named_and_the_recorded_threads_are_used(unbroken, tmp_path):
    break_at(unbroken, tmp_path / "run", "step", 4)
    path = tmp_path / "run" / "environment.json"
    record = json.loads(path.read_text())
    record["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(record))
    progress = Stopper()
    api.resume(tmp_path / "run", progress=progress)
    (note,) = [n for n in progress.notes if "other ground" in n]
    assert "not bit for bit" in note
    assert "versions" in note


def test_a_run_in_use_is_refused(unbroken, tmp_path):
    shutil.copytree(unbroken[1], tmp_path / "run")
    with RunLock(tmp_path / "run"), pytest.raises(ConfigError, match="is in use by process"):
        api.resume(tmp_path / "run", ["steps=9"])


def test_what_is_no_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nothing", tmp_path / ("x" * 5000)):
        with pytest.raises((DataError, ConfigError), match=r"is not a run|File name too long"):
            api.resume(path)
    assert names(tmp_path) == []


# Adaptive width


def test_waves_and_cuts_resume_alike(tmp_path):
    waves = {
        "rollout": {"n": None, "waves": [4, 8, 16], "stop_right": 2, "keep_per_group": 6},
        "advantage": {"baseline": "unbiased", "weight": "unbiased"},
        "tis": {"type": "icepop"},
    }
    made = str(recipe(tmp_path, steps=4, **waves))
    api.train(made, {"run_dir": tmp_path / "whole"})
    with pytest.raises(Killed):
        api.train(made, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "whole", tmp_path / "run")
    assert all("mismatch/masked_frac" in m for m in lines(tmp_path / "run")[1:])


def test_a_stall_is_counted_across_a_resume(tmp_path):
    """A rate of 1e-12 moves no score: evaluations 1 and 2 are stale, so step 3 resets; 3 is the first
    since, 4 and 5 are stale, so step 6 does. Killed between, with one stale evaluation saved."""
    changes = {"kl_coef": 0.01, "ref": {"reset_on": ["stall"], "stall_evals": 2}, "lr": 1e-12,
               "eval_every": 1, "save_every": 1, "steps": 6}  # fmt: skip
    made = str(recipe(tmp_path, **changes))
    api.train(made, {"run_dir": tmp_path / "whole"})
    resets = [m["step"] for m in lines(tmp_path / "whole")[1:] if m["ref/reset"]]
    assert resets == [3, 6]
    with pytest.raises(Killed):
        api.train(made, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 5))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "whole", tmp_path / "run")


def test_steps_without_an_update_are_counted_across_a_resume(tmp_path):
    """Nothing is ever right: the third empty step in a row ends the run, resumed or not."""
    made = recipe(tmp_path, data={"verifier": "exact"}, save_every=1,
                  dynamic_sampling={"max_gen_batches": 1, "max_empty_steps": 3})  # fmt: skip
    text = (tmp_path / "rows.jsonl").read_text()
    (tmp_path / "rows.jsonl").write_text(text.replace('"x"', '"a long gold"'))
    with pytest.raises(Killed):
        api.train(str(made), {"run_dir": tmp_path / "run"}, progress=Stopper("step", 2))
    with pytest.raises(RunError, match="3 steps in a row found no group"):
        api.resume(tmp_path / "run")
    assert [m["step"] for m in lines(tmp_path / "run")] == [0, 1, 2]


@pytest.mark.parametrize(("old", "new"), [("lr: ", "lr: 0.5 #"), ("seed: ", "seed: 7 #")])
def test_settings_changed_by_hand_are_refused_by_name(unbroken, tmp_path, old, new):
    """Attack: config.yaml edited between two sessions; the numbers would change half way."""
    break_at(unbroken, tmp_path / "run", "step", 4)
    config = tmp_path / "run" / "config.yaml"
    lines = config.read_text().splitlines()
    changed = [new + line if line.startswith(old) else line for line in lines]
    assert changed != lines
    config.write_text("\n".join(changed))
    with pytest.raises(ConfigError, match=rf"{old.strip(': ')} was .* at the start, is now"):
        api.resume(tmp_path / "run")
    config.write_text("\n".join(lines))
    api.resume(tmp_path / "run")
    same_end(unbroken[1], tmp_path / "run")


def test_a_damaged_checkpoint_does_not_swallow_what_follows_it(unbroken, tmp_path):
    """It is renamed, so that no sweep counts it among those to keep."""
    run = tmp_path / "run"
    break_at(unbroken, run, "step", 7)
    damaged = newest(run)
    (damaged / "model.safetensors").write_bytes(b"x")
    api.resume(run)
    same_end(unbroken[1], run)
    assert (damaged.parent / f"unusable-{damaged.name}").is_dir()
    assert checkpoint_steps(run)[-1] == 7
