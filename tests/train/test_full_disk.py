"""A disk that is really full: a run on a small file system of its own, then on a larger one.

Every writer meets the end of the disk at one of the sizes: the folder itself, labels, events of
TensorBoard, metrics, answers, evaluations, checkpoints. Each time it is one line and a status, and
once there is room the run ends as one that always had it.
"""

import ctypes
import os
import sys
from pathlib import Path

import pytest

from brorl.train import api

from .runs import RICH, command, forked, no_report, same_end
from .toys import recipe

__all__ = ["no_report"]
LIBC = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, REMOUNT, PRIVATE = 0x00020000, 32, (1 << 14) | (1 << 18)
SMALL = RICH | {
    "steps": 3, "save_every": 1, "eval_every": 2, "keep_checkpoints": 2, "logger": ["tensorboard"],
}  # fmt: skip


def mount(place, size, flags=0):
    """A memory file system of some bytes, seen by this process alone."""
    options = f"size={size}".encode()
    if LIBC.mount(b"none", os.fsencode(place), b"tmpfs", flags, options):
        raise OSError(ctypes.get_errno(), "mount")


def private_mounts():
    if LIBC.unshare(NEW_MOUNTS) or LIBC.mount(None, b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "unshare")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """(recipe, run, bytes it takes)"""
    folder = tmp_path_factory.mktemp("disk")
    made = recipe(folder, **SMALL)
    log = folder / "log"
    call = lambda: api.train(str(made), {"run_dir": folder / "run"})  # noqa: E731
    assert forked(call, log) == 0, log.read_text()
    files = [p for p in (folder / "run").rglob("*") if p.is_file()]
    return made, folder / "run", sum(-(-p.stat().st_size // 4096) * 4096 for p in files)


def status_of(call):
    try:
        call()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def filled(unbroken, folder, share):
    """In a child: a run on a disk of a share of what it needs; then with room. (status, lines)"""
    made, whole, size = unbroken
    disk, log = folder / "disk", folder / f"log-{share}"
    disk.mkdir(exist_ok=True)

    def call():
        private_mounts()
        mount(disk, max(int(size * share), 4096))
        run = disk / "run"
        status = status_of(command("train", made, f"run_dir={run}"))
        print("STATUS", status, file=sys.stderr, flush=True)
        assert status == 3 or not run.exists(), "bad input leaves no folder"
        mount(disk, 64 << 20, REMOUNT)
        go_on = ("resume", run) if run.exists() else ("train", made, f"run_dir={run}")
        assert status_of(command(*go_on)) == 0
        same_end(whole, run)

    try:
        ended = forked(call, log)
    finally:
        text = log.read_text()
    if "unshare" in text or "OSError: [Errno 1] mount" in text:
        pytest.skip("this machine does not let us mount a file system")
    assert ended == 0, text
    before, _, after = text.partition("STATUS ")
    assert "Traceback" not in text, text
    said = [line for line in before.splitlines() if line.startswith("brorl: ")]
    return int(after.split()[0]), said


SHARES = [i / 20 for i in range(20)]


def check(unbroken, folder, share):
    status, said = filled(unbroken, folder, share)
    assert (status, len(said)) in ((2, 1), (3, 1)), said
    assert "no space left on device" in said[0].lower()
    if status == 3:
        assert "brorl resume" in said[0]
        assert "intact" in said[0]


@pytest.mark.parametrize("share", [0.3, 0.75])
def test_a_full_disk_is_one_line_and_with_room_the_run_goes_on(
    unbroken, tmp_path, no_report, share
):
    check(unbroken, tmp_path, share)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", SHARES)
def test_a_disk_that_fills_up_anywhere(unbroken, tmp_path, no_report, share):
    check(unbroken, tmp_path, share)


def test_too_little_memory_is_status_3_and_one_line(unbroken, tmp_path, no_report):
    """Under a limit on address space, in torch's own words; with memory again it goes on."""
    import resource

    made, whole, _ = unbroken
    run, log = tmp_path / "run", tmp_path / "log"

    def limited():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
        from brorl.train import step

        real = step.update

        def hungry(*args, **kwargs):
            import torch

            torch.zeros(1 << 40, dtype=torch.uint8)
            return real(*args, **kwargs)

        step.update = hungry
        command("train", made, f"run_dir={run}")()

    assert forked(limited, log) == 3, log.read_text()
    (said,) = [line for line in log.read_text().splitlines() if line.startswith("brorl: ")]
    assert "out of memory" in said
    assert f"go on with `brorl resume {run}`" in said
    assert "Traceback" not in log.read_text()
    assert forked(command("resume", run), log) == 0, log.read_text()
    same_end(whole, run)
