"""What a process does to itself inside a box before it touches anything that it was given.

Runs in boxes, on their interpreter and without the package. It imports as little as it can (so
`posix` and not `os`), as every millisecond here is paid again by each program.
"""

from __future__ import annotations

import _struct
import posix
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_NO_NEW_PRIVS = 38
# The same numbers on every architecture.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _IOCTL_DEV = 1, 2, 4, 8, 1 << 15
_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_READING = _EXECUTE | _READ_FILE | _READ_DIR


def limit(name: str, value: int) -> None:
    """Lower one resource limit, soft and hard, to `value` where it is not lower already."""
    which = getattr(resource, name)
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def apply_limits(*, memory: int, processes: int, files: int, file_bytes: int, cpu_s: int) -> None:
    """Bound this process and all its children.

    Args:
        memory: bytes of address space of each process.
        processes: processes and threads of this user in this box. Without effect for the
            superuser outside any user namespace, so that a box never runs as that.
        files: open descriptors of each process.
        file_bytes: size of any file written.
        cpu_s: processor seconds of each process, after which the kernel kills it.
    """
    limit("RLIMIT_AS", memory)
    limit("RLIMIT_NPROC", processes)
    limit("RLIMIT_NOFILE", files)
    limit("RLIMIT_FSIZE", file_bytes)
    limit("RLIMIT_CPU", cpu_s)
    limit("RLIMIT_CORE", 0)
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    deep = 64 << 20  # honest deep recursion through C code
    if hard != resource.RLIM_INFINITY:
        deep = min(deep, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (deep, hard))


def _caller(name: str) -> Callable[..., int]:
    """A C function that takes and returns C ints and byte strings; without ctypes' own start."""
    import _ctypes

    this_process = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    address = _ctypes.dlsym(this_process, name)
    return lambda *arguments: _ctypes.call_function(address, arguments)


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    try:
        return max(0, int(_caller("syscall")(_LANDLOCK_CREATE_RULESET, 0, 0, 1)))
    except (ImportError, OSError):
        return 0


def apply_landlock(writable: list[str]) -> bool:
    """Reading and executing anywhere, writing only below `writable`, no TCP at all.

    It says once more what the mounts and namespaces of the box say already, by other code of
    the kernel. Returns whether the kernel took it.
    """
    version = landlock_version()
    if version == 0:
        return False
    syscall = _caller("syscall")
    handled = _RIGHTS_BY_VERSION[max(v for v in _RIGHTS_BY_VERSION if v <= version)]
    attributes = [handled]
    if version >= 4:
        attributes.append(3)  # bind and connect of TCP; no rule allows any
    if version >= 6:
        attributes.append(3)  # abstract sockets and signals stay inside
    packed = _struct.pack(f"={len(attributes)}Q", *attributes)
    ruleset = syscall(_LANDLOCK_CREATE_RULESET, packed, len(packed), 0)
    if ruleset < 0:
        return False
    devices = _READING | _WRITE_FILE | (_IOCTL_DEV & handled)
    rules = [("/", _READING), ("/dev", devices), *((path, handled) for path in writable)]
    for path, allowed in rules:
        try:
            place = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
        except OSError:
            continue  # nothing there: nothing to allow
        syscall(_LANDLOCK_ADD_RULE, ruleset, 1, _struct.pack("=Qi", allowed, place), 0)
        posix.close(place)
    _caller("prctl")(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    taken = syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0
    posix.close(ruleset)
    return bool(taken)
