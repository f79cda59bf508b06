"""A run folder is made whole or not at all, and one process holds it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from brorl.errors import ConfigError, DataError, RunError
from brorl.record.evals import cut_evals, eval_path, eval_steps
from brorl.record.rundir import RunLock, create_run, free_name, require_run

FILES = {"config.yaml": "a: é\n", "environment.json": "{}\n"}


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_run_begins_with_its_files_and_folders(tmp_path):
    create_run(tmp_path / "deep" / "run", FILES)
    assert names(tmp_path / "deep") == ["run"]
    assert names(tmp_path / "deep" / "run") == [
        "checkpoints", "config.yaml", "environment.json", "eval", "rollouts",
    ]  # fmt: skip
    assert (tmp_path / "deep" / "run" / "config.yaml").read_text("utf-8") == "a: é\n"
    require_run(tmp_path / "deep" / "run")


def test_an_empty_folder_is_used_and_a_used_one_is_not(tmp_path):
    (tmp_path / "run").mkdir()
    create_run(tmp_path / "run", FILES)
    with pytest.raises(ConfigError, match="is not empty; go on with `brorl resume"):
        create_run(tmp_path / "run", {"config.yaml": "other"})
    assert (tmp_path / "run" / "config.yaml").read_text("utf-8") == "a: é\n"
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is not empty"):
        create_run(tmp_path / "file", FILES)


@pytest.mark.parametrize("step", ["mkdir", "write_text", "rename"])
def test_a_failure_on_the_way_leaves_nothing(tmp_path, monkeypatch, step):
    """Attack: the disk is full at any of the steps."""
    from pathlib import Path

    real = getattr(Path, step)

    def full(self, *args, **kwargs):
        if ".tmp" in self.name or ".tmp" in self.parent.name:
            raise OSError(28, "No space left on device")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, step, full)
    with pytest.raises(ConfigError, match="cannot be written: No space left"):
        create_run(tmp_path / "run", FILES)
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["", ".", "..", "x/.."])
def test_a_run_needs_a_folder_of_its_own(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    with pytest.raises(ConfigError, match="run_dir"):
        create_run(Path(name), FILES)
    assert names(tmp_path) == []


def test_names_that_no_folder_can_have_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written: File name too long") as found:
        create_run(tmp_path / ("x" * 5000), FILES)
    assert len(str(found.value)) < 300


def test_leftovers_of_a_killed_process_with_this_number_do_not_stop_the_next(tmp_path):
    """In a container every first process has the same number."""
    aside = tmp_path / f".run.{os.getpid()}.tmp"
    aside.mkdir()
    (aside / "junk").write_text("half")
    create_run(tmp_path / "run", FILES)
    assert names(tmp_path) == ["run"]
    assert "junk" not in names(tmp_path / "run")


def test_what_is_no_run_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(DataError, match=r"is not a run: it has no config\.yaml"):
            require_run(path)


def test_free_names_count_up(tmp_path):
    assert free_name(tmp_path, "run") == tmp_path / "run"
    for name in ("run", "run-2"):
        (tmp_path / name).mkdir()
    assert free_name(tmp_path, "run") == tmp_path / "run-3"


# The lock

HOLDER = """
import sys, time
from pathlib import Path
from brorl.record.rundir import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_holds_a_run_and_says_which(tmp_path):
    busy = pytest.raises(ConfigError, match=f"is in use by process {os.getpid()}; wait")
    with RunLock(tmp_path), busy:
        RunLock(tmp_path).__enter__()
    with RunLock(tmp_path):  # free again
        pass


def test_a_killed_holder_lets_go(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"in use by process {holder.pid};"):
            RunLock(tmp_path).__enter__()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        deadline = time.monotonic() + 10
        while True:
            try:
                with RunLock(tmp_path):
                    break
            except ConfigError:
                assert time.monotonic() < deadline, "the kernel has not let go"
                time.sleep(0.01)


def test_a_folder_without_room_for_a_lock_is_one_line(tmp_path):
    with pytest.raises(RunError, match="lock cannot be opened"):
        RunLock(tmp_path / "nothing").__enter__()


# Evaluations


def test_evaluations_after_the_checkpoint_are_cut(tmp_path):
    (tmp_path / "eval").mkdir()
    for step in (0, 10, 20):
        eval_path(tmp_path, step).write_text("{}")
    (tmp_path / "eval" / ".step-000030.json.5.tmp").write_text("half")
    cut_evals(tmp_path, 10)
    assert eval_steps(tmp_path) == [0, 10]
    assert len(names(tmp_path / "eval")) == 2
