"""Boxes for model-written code: which way of making one works here, and how it is made.

A box is one bubblewrap call around a bare Python: namespaces of its own for users, processes,
network, mounts and the rest, no capability, a file system of its own that holds the interpreter
and its standard library and nothing else, a little memory-backed /tmp, an empty environment. The
second layers are resource limits and Landlock (sandbox_guard), seccomp (sandbox_seccomp) and
control groups (sandbox_cgroup), each where the kernel has it. docs/sandbox.md has the whole.
"""

import functools
import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from brorl.errors import ConfigError
from brorl.verify.sandbox_keeper import FILTER
from brorl.verify.sandbox_seccomp import seccomp_filter

NOBODY = 65534
OLDEST_PYTHON = (3, 10)
_MODULES = {  # what runs inside, in the order of their imports; the last one has `main`
    "program": ("sandbox_guard", "code_codec", "code_wire", "code_program"),
    "tests": ("sandbox_guard", "code_codec", "code_wire", "code_remote", "code_tests"),
}
# The first thing a box does: make modules of the code behind descriptor 4 and enter the last.
_BOOT = """\
import marshal, posix, sys
for name, code in marshal.loads(posix.pread(4, 1 << 20, 0)):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main()
"""
# Run once to try a box, and to have its own Python compile what it will run.
_PROBE = """\
import marshal, sys
sources = marshal.loads(sys.stdin.buffer.read())
roles = {}
for role, modules in sources.items():
    code = [(name, compile(text, name, "exec", dont_inherit=True)) for name, text in modules]
    roles[role] = marshal.dumps(code)
guard = type(sys)("guard")
exec(dict(marshal.loads(roles["program"]))["brorl.verify.sandbox_guard"], guard.__dict__)
answer = {"version": sys.version_info[:3], "landlock": guard.landlock_version(), "roles": roles}
sys.stdout.buffer.write(marshal.dumps(answer))
"""
# What a box starts with and its program does not see: sets in one order, so that a program has
# one verdict; and no 64 MB of address space reserved for each thread.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}
_INSTALL = (
    "running model-written code needs bubblewrap (Debian and Ubuntu: apt-get install bubblewrap; "
    "Fedora: dnf install bubblewrap); --unsafe-local runs it without a sandbox, with the rights "
    "of this user"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one box.

    Attributes:
        memory_bytes: address space of each process; of the whole box in a control group.
        processes: processes and threads.
        files: open descriptors of each process.
        file_bytes: size of any file, what is printed included.
        tmp_bytes: all of /tmp.
        cpu_s: processor seconds of each process.
    """

    memory_bytes: int = 1 << 30
    processes: int = 24
    files: int = 64
    file_bytes: int = 16 << 20
    tmp_bytes: int = 16 << 20
    cpu_s: int = 60


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A way of making boxes that has been tried and works here.

    Attributes:
        command: makes one box; see sandbox_keeper for the descriptors it wants.
        python: the interpreter, outside of the box.
        version: of the interpreter.
        user: identity that boxes are made under; None for that of this process.
        limits: see Limits.
        landlock: version of Landlock that a box may use; 0 for none.
        bpf: the seccomp filter, None where there is none.
        roles: code to run inside, by role ("program", "tests").
        isolated: False for `unsafe_local`.
    """

    command: tuple[str, ...]
    python: str
    version: tuple[int, ...]
    user: int | None
    limits: Limits
    landlock: int
    bpf: bytes | None
    roles: dict[str, bytes]
    isolated: bool


@functools.cache
def open_sandbox(limits: Limits, *, unsafe_local: bool = False) -> Sandbox:
    """The first way of making boxes that works here. Tried once per process and settings.

    As the superuser, boxes are made under an identity that owns nothing, where that is possible:
    limits on processes hold for it, and there is less to gain from breaking out. The interpreter
    is /usr/bin/python3 or, where that is missing or too old, the one brorl runs on.

    Args:
        limits: of each box.
        unsafe_local: no box at all, only resource limits. The code has the rights of this user.

    Raises:
        ConfigError: no way works; says why and what to install.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"programs can be run and judged on Linux only, this is {sys.platform}")
    bwrap = shutil.which("bwrap")
    if bwrap is None and not unsafe_local:
        raise ConfigError(f"{_INSTALL}; bwrap is not on the PATH")
    failures = []
    for user in (NOBODY, None) if os.getuid() == 0 else (None,):
        for python in _interpreters():
            try:
                return _try(None if unsafe_local else bwrap, python, user, limits)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                who = "nobody" if user == NOBODY else "this user"
                failures.append(f"{python} as {who}: {' '.join(str(error).split())[-200:]}")
    if unsafe_local:
        raise ConfigError(f"found no Python to run programs on: {'; '.join(failures)}")
    raise ConfigError(f"{_INSTALL}; bwrap is there but makes no box: {'; '.join(failures)}")


def _interpreters() -> Iterator[str]:
    own = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    system = os.path.realpath("/usr/bin/python3")
    yield from dict.fromkeys(p for p in (system, own) if Path(p).exists())


def _try(bwrap: str | None, python: str, user: int | None, limits: Limits) -> Sandbox:
    """Make one box, in which Python compiles what later boxes run; raises where that fails."""
    bpf = seccomp_filter() if bwrap else None
    sources = {
        role: [(f"brorl.verify.{name}", _source(name)) for name in names]
        for role, names in _MODULES.items()
    }
    with memory_file(bpf) as filter_file:
        number = filter_file.fileno() if bpf else None
        command = [*box_command(bwrap, python, limits, number), _PROBE]
        found = subprocess.run(
            command,
            input=marshal.dumps(sources, 4),
            capture_output=True,
            pass_fds=() if number is None else (number,),
            env={},
            timeout=30,
            **identity(user),  # type: ignore[call-overload]
        )
    if found.returncode != 0:
        raise ValueError(found.stderr.decode(errors="replace") or f"status {found.returncode}")
    answer = marshal.loads(found.stdout)
    if answer["version"] < OLDEST_PYTHON:
        raise ValueError(f"Python {OLDEST_PYTHON} or newer is needed, got {answer['version']}")
    return Sandbox(
        command=(*box_command(bwrap, python, limits, FILTER if bpf else None), _BOOT),
        python=python,
        version=answer["version"],
        user=user,
        limits=limits,
        landlock=answer["landlock"] if bwrap else 0,
        bpf=bpf,
        roles=answer["roles"],
        isolated=bwrap is not None,
    )


def _source(name: str) -> str:
    spec = importlib.util.find_spec(f"brorl.verify.{name}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def memory_file(content: bytes | None) -> BinaryIO:
    """An open file that lies nowhere, to be read from its beginning."""
    file = open(os.memfd_create("brorl"), "w+b")  # noqa: SIM115 (the caller closes it)
    file.write(content or b"")
    file.seek(0)
    return file


def identity(user: int | None) -> dict[str, object]:
    """Arguments of subprocess for running as a user who is in no group but its own."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def box_command(bwrap: str | None, python: str, limits: Limits, filter_fd: int | None) -> list[str]:
    """The command up to and including Python's -c, whose program the caller appends.

    Args:
        bwrap: path of bubblewrap; None for no box at all.
        python: path of the interpreter, symlinks resolved.
        limits: of which the size of /tmp goes in here; the others are applied inside.
        filter_fd: descriptor of the seccomp filter; None for none.
    """
    # No site (its packages are not there), UTF-8 whatever the locale, no bytecode written.
    interpreter = [python, "-S", "-s", "-B", "-X", "utf8", "-c"]
    if bwrap is None:
        return ["/usr/bin/env", "-i", *map("=".join, _ENVIRONMENT.items()), *interpreter]
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    command += ["--hostname", "box", "--clearenv"]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += _mounts(python)
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(1 << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    command += ["--size", str(limits.tmp_bytes), "--tmpfs", "/tmp", "--chdir", "/tmp"]
    command += ["--remount-ro", "/"]
    if filter_fd is not None:
        command += ["--seccomp", str(filter_fd)]
    return [*command, "--", *interpreter]


def _mounts(python: str) -> list[str]:
    """The interpreter, the libraries it needs, and nothing where third-party packages lie.

    Packages are hidden for what they may bring along: benchmark data with answers, for one.
    """
    prefix = Path(python).parent.parent
    folders = [Path("/usr/lib"), Path("/usr/lib64"), prefix / "lib", prefix / "lib64"]
    arguments: list[str] = []
    for folder in dict.fromkeys(folders):
        if folder.is_dir() and not folder.is_symlink():
            arguments += ["--ro-bind", str(folder), str(folder)]
            for packages in sorted(folder.glob("python3*/*-packages")):
                arguments += ["--size", "4096", "--tmpfs", str(packages)]
                arguments += ["--remount-ro", str(packages)]
    for name in ("lib", "lib64"):
        root = Path("/") / name
        if root.is_symlink():
            arguments += ["--symlink", str(root.readlink()), str(root)]
        elif root.is_dir():
            arguments += ["--ro-bind", str(root), str(root)]
    return [*arguments, "--ro-bind", python, python]
