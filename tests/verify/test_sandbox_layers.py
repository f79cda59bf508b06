"""The layers around a box, each without the others: seccomp, Landlock, limits, control groups."""

import os
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from brorl.verify import sandbox_cgroup, sandbox_seccomp
from brorl.verify.sandbox_cgroup import enclose
from brorl.verify.sandbox_guard import landlock_version
from brorl.verify.sandbox_seccomp import seccomp_filter

SOURCE = str(Path(__file__).parents[2] / "src")

# The seccomp filter, by an interpreter of classic BPF that knows nothing of how it was written.


def decide(program, architecture, number, first=0):
    data = struct.pack("=iIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    at = word = 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (word,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return value
        else:
            holds = {0x15: word == value, 0x35: word >= value, 0x45: word & value != 0}[code]
            at += yes if holds else no


ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
MACHINES = {
    "x86_64": (0xC000003E, {"read": 0, "socket": 41, "clone": 56, "ptrace": 101, "mount": 165}),
    "aarch64": (0xC00000B7, {"read": 63, "socket": 198, "clone": 220, "ptrace": 117, "mount": 40}),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_decides_every_call(machine):
    architecture, number = MACHINES[machine]
    program = seccomp_filter(machine)

    def call(nr, first=0):
        return decide(program, architecture, nr, first)

    table = sandbox_seccomp._TABLES[machine][1]
    refused = {*table["refused"].values(), *sandbox_seccomp._NEWER.values()}
    for nr in range(470):
        want = EPERM if nr in refused else ENOSYS if nr == 435 else ALLOW
        assert call(nr, first=1) == want, nr  # 1 is AF_UNIX, and no flag of a new namespace
    assert {number["ptrace"], number["mount"]} < refused
    assert number["read"] not in refused
    assert [call(number["socket"], family) for family in (1, 2, 10, 16, 17)] == [ALLOW] + [
        EPERM
    ] * 4
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert call(number["clone"], namespace | signal.SIGCHLD) == EPERM
    assert call(number["clone"], 0x1200011) == ALLOW  # fork
    assert call(number["clone"], 0x3D0F00) == ALLOW  # a thread
    assert decide(program, 0x40000003, 0) == KILL  # the 32-bit interface
    if machine == "x86_64":
        assert call(0x40000000 + 101) == KILL  # x32


def test_other_machines_have_no_filter():
    assert seccomp_filter("riscv64") is None


# Landlock and limits, each without the box around them.


def alone(code, *arguments):
    """Run code in a Python of its own, with the guard imported."""
    script = "from brorl.verify.sandbox_guard import *\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
def test_landlock_alone_keeps_writes_and_connections_in(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    (other / "old").write_text("kept")
    out = alone(
        """
        import os, socket, sys
        mine, other = sys.argv[1:]
        print(apply_landlock([mine]))
        open(mine + "/new", "w").write("x")
        open("/dev/null", "w").write("x")
        print(open(other + "/old").read())
        for act in (
            lambda: open(other + "/new", "w"),
            lambda: open(other + "/old", "a"),
            lambda: os.remove(other + "/old"),
            lambda: os.mkdir(other + "/d"),
            lambda: os.symlink("/", other + "/s"),
            lambda: os.rename(mine + "/new", other + "/new"),
        ):
            try:
                act()
                print("done")
            except OSError as error:
                print(type(error).__name__)
        """,
        str(mine),
        str(other),
    )
    assert out.split()[:2] == ["True", "kept"]
    assert set(out.split()[2:7]) == {"PermissionError"}
    assert "done" not in out
    assert [p.name for p in other.iterdir()] == ["old"]


def test_limits_only_ever_go_down():
    out = alone(
        """
        import resource as r
        r.setrlimit(r.RLIMIT_NOFILE, (100, 100))
        apply_limits(memory=1 << 30, processes=50, files=200, file_bytes=1000, cpu_s=7)
        for name in ("AS", "NPROC", "NOFILE", "FSIZE", "CPU", "CORE"):
            print(r.getrlimit(getattr(r, "RLIMIT_" + name)))
        """
    )
    assert out.split("\n")[:-1] == [str((n, n)) for n in (1 << 30, 50, 100, 1000, 7, 0)]


# Control groups, on trees made of plain folders, then on the real ones.


def fake(monkeypatch, mounts, own):
    monkeypatch.setattr(sandbox_cgroup, "_mounts", lambda: mounts)
    monkeypatch.setattr(sandbox_cgroup, "_own_groups", lambda: own)


def test_version_2_goes_beside_us_where_it_may_not_go_below(tmp_path, monkeypatch):
    """Our own folder refuses; the one above it takes the group."""
    own = tmp_path / "user" / "app"
    own.mkdir(parents=True)
    mount = sandbox_cgroup._Mount("/", tmp_path, 2, frozenset())
    fake(monkeypatch, [mount], {"": "/user/app"})
    make = Path.mkdir
    monkeypatch.setattr(
        Path,
        "mkdir",
        lambda p, *a, **k: (
            (_ for _ in ()).throw(PermissionError()) if p.parent == own else make(p, *a, **k)
        ),
    )
    group = enclose(4711, memory=1000, processes=7)
    (folder,) = group.folders
    assert (group.version, folder.parent) == (2, own.parent)
    read = {p.name: p.read_text() for p in folder.iterdir()}
    assert read == {
        "memory.max": "1000",
        "memory.swap.max": "0",
        "pids.max": "7",
        "cgroup.procs": "4711",
    }


def test_version_1_has_two_hierarchies(tmp_path, monkeypatch):
    for name in ("memory/job", "pids"):
        (tmp_path / name).mkdir(parents=True)
    mounts = [
        sandbox_cgroup._Mount("/", tmp_path / n, 1, frozenset({n, "rw"}))
        for n in ("memory", "pids")
    ]
    fake(monkeypatch, mounts, {"memory": "/job", "pids": "/elsewhere"})
    group = enclose(4711, memory=1000, processes=7)
    assert group.version == 1
    assert [f.parent for f in group.folders] == [tmp_path / "memory" / "job", tmp_path / "pids"]
    assert (group.folders[0] / "memory.limit_in_bytes").read_text() == "1000"
    assert (group.folders[1] / "pids.max").read_text() == "7"
    assert {(f / "cgroup.procs").read_text() for f in group.folders} == {"4711"}


@pytest.mark.parametrize("own", [{}, {"": "/"}, {"memory": "/"}])
def test_no_hierarchy_no_group(own, monkeypatch):
    fake(monkeypatch, [], own)
    group = enclose(os.getpid(), memory=1, processes=1)
    assert (group.version, group.folders) == (0, [])
    group.remove()


def test_groups_of_owners_that_are_gone_are_swept(tmp_path, monkeypatch):
    dead = subprocess.Popen(["true"])
    dead.wait()
    for owner in (dead.pid, os.getpid()):
        (tmp_path / f"brorl-{owner}-0").mkdir()
    (tmp_path / "other-1-0").mkdir()
    fake(monkeypatch, [sandbox_cgroup._Mount("/", tmp_path, 2, frozenset())], {"": "/"})
    enclose(4711, memory=1000, processes=7)
    left = {p.name for p in tmp_path.iterdir()}
    assert f"brorl-{dead.pid}-0" not in left
    assert {f"brorl-{os.getpid()}-0", "other-1-0"} < left
