"""Real processes, really killed: every write, random instants, signals, limits, two at once.

Policy for the instants: they are drawn from a fixed seed as shares of the unbroken run's working
time, so that some fall in the warm start, some between steps and some in writes.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from brorl.train import api
from brorl.train.checkpoint import checkpoint_steps, open_checkpoint

from .runs import RICH, DyingAt, command, forked, lines, names, newest, no_report, same_end
from .toys import recipe

__all__ = ["no_report"]
SHORT = RICH | {"steps": 3, "save_every": 1, "eval_every": 2, "keep_checkpoints": 1}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """(recipe, unbroken run of three steps that saves, evaluates and sweeps all the time)"""
    folder = tmp_path_factory.mktemp("short")
    made = recipe(folder, **SHORT)
    log = folder / "log"
    assert forked(lambda: api.train(str(made), {"run_dir": folder / "run"}), log) == 0, (
        log.read_text()
    )
    return made, folder / "run"


def writes_of(made, run, log):
    """How many lasting writes a run makes."""

    def call():
        dying = DyingAt(-1, after=False)
        api.train(str(made), {"run_dir": run})
        print(dying.calls)

    assert forked(call, log) == 0, log.read_text()
    return int(log.read_text().splitlines()[-1])


def dies_at_write(short, folder, k, after):
    """Kill at the k-th write, resume (or begin again, where there was no run yet), compare."""
    made, unbroken = short
    run, log = folder / f"run{k}{after}", folder / "log"

    def call():
        DyingAt(k, after=after)
        api.train(str(made), {"run_dir": run})

    assert forked(call, log) == -signal.SIGKILL, log.read_text()
    # Died while the folder was being made: there is nothing, or all of it.
    go_on = ("resume", run) if run.exists() else ("train", made, f"run_dir={run}")
    assert forked(command(*go_on), log) == 0, log.read_text()
    same_end(unbroken, run)
    assert not [p for p in run.rglob(".*") if p.name.startswith(".")]
    assert len(checkpoint_steps(run)) <= 2


def test_killed_inside_some_of_the_writes(short, tmp_path, no_report):
    """Every 31st of the lasting writes, before it and after it; all of them under the slow mark."""
    total = writes_of(short[0], tmp_path / "count", tmp_path / "log")
    assert total > 60
    for k in range(7, total + 1, 31):
        dies_at_write(short, tmp_path, k, after=bool(k % 2))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_inside_every_write(short, tmp_path, no_report):
    total = writes_of(short[0], tmp_path / "count", tmp_path / "log")
    for k in range(1, total + 1):
        dies_at_write(short, tmp_path, k, after=bool(k % 2))


# Limits


def limited(made, run, size):
    """The command under a limit on the size of a file, as a full disk has one."""

    def call():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        command("train", made, f"run_dir={run}")()

    return call


def test_a_disk_that_fills_up_is_status_3_and_one_line(short, tmp_path, no_report):
    """The optimizer's file does not fit (torch says so in its own way); step 0 is intact."""
    made, unbroken = short
    sizes = {p.name: p.stat().st_size for p in newest(unbroken).rglob("*") if p.is_file()}
    limit = (sizes["model.safetensors"] + sizes["optimizer.pt"]) // 2
    assert max(s for n, s in sizes.items() if n != "optimizer.pt") < limit < sizes["optimizer.pt"]
    run, log = tmp_path / "run", tmp_path / "log"
    assert forked(limited(made, run, limit), log) == 3
    said = [x for x in log.read_text().splitlines() if x.startswith("brorl: ")]
    assert len(said) == 1
    assert "checkpoint of step 1 could not be written" in said[0]
    assert "Traceback" not in log.read_text()
    assert open_checkpoint(newest(run)).step == 0
    assert forked(command("resume", run), log) == 0, log.read_text()
    same_end(unbroken, run)


def without_rights(call):
    """The call without root's right to write where the mode forbids it."""

    def dropped():
        if sys.platform == "linux":
            header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this one
            assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
        call()

    return dropped


def test_folders_that_cannot_be_written_are_one_line(short, tmp_path, no_report):
    """At the start it is a bad run_dir (2); for a run that exists, a run that cannot go on (3)."""
    made, _ = short
    run, log = tmp_path / "closed" / "run", tmp_path / "log"

    def said(call, status):
        assert forked(without_rights(call), log) == status, log.read_text()
        (line,) = [x for x in log.read_text().splitlines() if x.startswith("brorl: ")]
        return line

    (tmp_path / "closed").mkdir(mode=0o555)
    line = said(command("train", made, f"run_dir={run}"), 2)
    assert line.endswith("cannot be written: Permission denied")
    assert names(tmp_path / "closed") == []
    (tmp_path / "closed").chmod(0o755)
    assert forked(command("train", made, f"run_dir={run}", "steps=1"), log) == 0
    (run / "checkpoints").chmod(0o555)
    line = said(command("resume", run, "steps=3"), 3)
    assert "checkpoint of step 2 could not be written" in line
    assert "Permission denied; earlier checkpoints are intact" in line
    (run / "checkpoints").chmod(0o755)
    (run / "lock").chmod(0o444)
    assert "lock cannot be opened: Permission denied" in said(command("resume", run), 3)
    assert open_checkpoint(newest(run)).step == 1


# Processes of their own: the slow part

BRORL = [str(Path(sys.executable).with_name("brorl"))]
WARM = [
    "quickstart", "threads=1", "seed=4", "logger=[]",
    "task.config={min_word_len: 3, max_word_len: 4}", "task.train_size=24", "task.eval_size=16",
    "task.warmstart_size=500", "warmstart.steps=300", "warmstart.until=0.1",
    "warmstart.batch_size=64", "warmstart.lr=1e-2", "warmstart.warmup_steps=5",
    "model.shape.hidden=32", "model.shape.heads=2", "model.shape.kv_heads=2", "model.shape.mlp=64",
    "rollout.n=16", "rollout.max_new_tokens=6", "prompts_per_step=4", "steps=9", "save_every=3",
    "eval_every=3", "eval.samples=4", "grading.workers=1", "lr_warmup_updates=4",
]  # fmt: skip


def start(cache, *arguments):
    """A `brorl` process with a cache of its own and one thread."""
    environment = os.environ | {"BRORL_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*BRORL, *map(str, arguments)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process, timeout_s=300):
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def wait_for_lock(process, run):
    """Until the process holds its run: its work begins. False where it ended before."""
    lock = run / "lock"
    while process.poll() is None:
        if lock.exists() and lock.read_text().strip() == str(process.pid):
            return True
        time.sleep(0.005)
    return False


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """(folder with the unbroken run and its cache, its working seconds)"""
    folder = tmp_path_factory.mktemp("warm")
    process = start(folder / "cache", "train", *WARM, f"run_dir={folder / 'run'}")
    assert wait_for_lock(process, folder / "run")
    began = time.monotonic()
    status, _, err = finish(process)
    assert status == 0, err
    updates = [m.get("policy/updates") for m in lines(folder / "run")]
    assert sum(u or 0 for u in updates) >= 12, "the run must learn something to compare"
    return folder, time.monotonic() - began


SHARES = sorted(np.random.default_rng(20261129).random(10).tolist())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", SHARES, ids=[f"{s:.2f}" for s in SHARES])
def test_killed_at_a_random_instant(warm, tmp_path, share):
    """Ten instants. Twice where the first kill comes early: again while it is being resumed."""
    folder, seconds = warm
    run, cache = tmp_path / "run", tmp_path / "cache"
    process = start(cache, "train", *WARM, f"run_dir={run}")
    assert wait_for_lock(process, run)
    time.sleep(share * seconds)
    process.kill()
    assert finish(process)[0] in (-signal.SIGKILL, 0)  # 0: this machine was faster this time
    if share < 0.4:
        again = start(cache, "resume", run)
        if wait_for_lock(again, run):
            time.sleep(0.3 * seconds)
        again.kill()
        finish(again)
    status, _, err = finish(start(cache, "resume", run))
    assert status == 0, err
    same_end(folder / "run", run)
    assert names(run / "rollouts") == names(folder / "run" / "rollouts")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_status_130_and_says_how_to_go_on(warm, tmp_path, number):
    folder, _ = warm
    run = tmp_path / "run"
    process = start(folder / "cache", "train", *WARM, f"run_dir={run}")
    assert wait_for_lock(process, run)
    while not (run / "metrics.jsonl").exists() or len(lines(run)) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)  # holds the run, however slow the second one starts
    status, _, err = finish(start(folder / "cache", "resume", run))
    process.send_signal(signal.SIGCONT)
    assert (status, len(err.splitlines())) == (2, 1)
    assert f"is in use by process {process.pid}" in err
    process.send_signal(number)
    status, out, err = finish(process)
    assert (status, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith(f"brorl: stopped by {signal.Signals(number).name} after step ")
    assert last.endswith(f"go on with: brorl resume {run}")
    assert "Traceback" not in err
    status, out, err = finish(start(folder / "cache", "resume", run, "--json"))
    assert status == 0, err
    assert json.loads(out)["steps"] == 9
    same_end(folder / "run", run)
    status, _, err = finish(start(folder / "cache", "resume", run))
    assert (status, "is finished: 9 steps are done" in err) == (0, True)


@pytest.mark.slow
def test_stopped_during_the_warm_start_it_begins_it_again(warm, tmp_path):
    folder, _ = warm
    run, cache = tmp_path / "run", tmp_path / "cache"
    process = start(cache, "train", *WARM, f"run_dir={run}")
    assert wait_for_lock(process, run)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status == 130
    assert "stopped during the warm start; `brorl resume` begins it again" in err.splitlines()[-1]
    assert names(cache / "warmstart") == []
    status, _, err = finish(start(cache, "resume", run))
    assert status == 0, err
    same_end(folder / "run", run)
