"""Control groups around boxes: a bound on memory and processes of a whole box, tmpfs included.

Version 1, version 2 or none at all: what this process may create decides.
Without one the limits that hold are those per process (sandbox_guard).
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PREFIX = "brorl-"
_serial = itertools.count()


class _Mount(NamedTuple):
    root: str  # of the hierarchy that is mounted
    point: Path
    version: int
    controllers: frozenset[str]  # version 1 only


class Cgroup:
    """One group, or one of each hierarchy in version 1. Empty means that there is none."""

    def __init__(self, version: int, folders: list[Path]) -> None:
        self.version = version  # 0: none
        self.folders = folders

    def remove(self) -> None:
        """Take the group away. Its processes must be gone; a busy one stays."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def enclose(pid: int, *, memory: int, processes: int) -> Cgroup:
    """A new group around a process and its later children, by the first way that works here.

    Moving a process takes the kernel some milliseconds: done once per keeper, not per box.

    Args:
        pid: of a child of this process that has not started anything yet.
        memory: bytes, of everything in the group together; more is killed.
        processes: processes and threads in the group together.

    Returns:
        The group; an empty one (version 0) where no way works.
    """
    mounts, own = _mounts(), _own_groups()
    for version, ways in ((2, _ways_v2(mounts, own)), (1, _ways_v1(mounts, own))):
        for parents in ways:
            group = _make(version, parents, pid, memory, processes)
            if group is not None:
                return group
    return Cgroup(0, [])


def _make(
    version: int, parents: list[Path], pid: int, memory: int, processes: int
) -> Cgroup | None:
    name = f"{_PREFIX}{os.getpid()}-{next(_serial)}"
    group = Cgroup(version, [])
    try:
        for parent in parents:
            _sweep(parent)
            (parent / name).mkdir()
            group.folders.append(parent / name)
        for_memory, for_processes = group.folders[0], group.folders[-1]
        if version == 2:
            (for_memory / "memory.max").write_text(str(memory))
            with contextlib.suppress(OSError):  # absent where the kernel does not count swap
                (for_memory / "memory.swap.max").write_text("0")
        else:
            (for_memory / "memory.limit_in_bytes").write_text(str(memory))
            with contextlib.suppress(OSError):
                (for_memory / "memory.memsw.limit_in_bytes").write_text(str(memory))
        (for_processes / "pids.max").write_text(str(processes))
        for folder in group.folders:
            (folder / "cgroup.procs").write_text(str(pid))
    except OSError:
        group.remove()
        return None
    return group


def _sweep(parent: Path) -> None:
    """Take away groups whose owner was killed. The kernel refuses for one that is in use."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _mounts() -> list[_Mount]:
    """The cgroup hierarchies that are mounted, from /proc/self/mountinfo."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, root, point, *_ = left.split(" ")
            controllers = frozenset(options.split(",")) if kind == "cgroup" else frozenset()
            found.append(_Mount(root, Path(point), 2 if kind == "cgroup2" else 1, controllers))
    return found


def _own_groups() -> dict[str, str]:
    """Controller (or "" for version 2) to the path of this process in that hierarchy."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    groups = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _place(mount: _Mount, path: str) -> Path:
    """Where a group's path appears below a mount of its hierarchy, or the mount itself."""
    below = os.path.relpath(path, mount.root)
    folder = mount.point if below.startswith("..") else mount.point / below
    return folder if folder.is_dir() else mount.point


def _ways_v2(mounts: list[_Mount], own: dict[str, str]) -> Iterator[list[Path]]:
    """Own group, then the ones above it: a group beside us is allowed where one below is not."""
    for mount in mounts:
        if mount.version == 2 and "" in own:
            folder = _place(mount, own[""])
            while True:
                yield [folder]
                if folder == mount.point:
                    break
                folder = folder.parent


def _ways_v1(mounts: list[_Mount], own: dict[str, str]) -> Iterator[list[Path]]:
    places = []
    for controller in ("memory", "pids"):
        for mount in mounts:
            if mount.version == 1 and controller in mount.controllers:
                places.append(_place(mount, own.get(controller, "/")))
                break
    if len(places) == 2:
        yield places
