"""A seccomp filter for boxes: the second layer, should a namespace or a mount be less than meant.

A classic BPF program that the kernel runs at every system call. It refuses what no program that
solves a problem needs: other processes' memory, new namespaces, mounts, kernel modules, keys,
sockets other than local ones. bubblewrap loads it (`--seccomp FD`) just before the program.
"""

import errno
import platform
import struct

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_FAIL = 0x00050000  # plus the error number
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_X32_BIT = 0x40000000
_AF_UNIX = 1
# CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} of <linux/sched.h>
_NEW_NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x60000000

# Numbers from the kernel's tables, x86_64 and the generic one that aarch64 uses.
_X86_64 = {
    "socket": 41,
    "clone": 56,
    "refused": {
        "ptrace": 101, "syslog": 103, "personality": 135, "pivot_root": 155, "adjtimex": 159,
        "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
        "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171,
        "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179,
        "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272,
        "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320,
        "bpf": 321, "userfaultfd": 323,
    },
}  # fmt: skip
_AARCH64 = {
    "socket": 198,
    "clone": 220,
    "refused": {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51,
        "quotactl": 60, "acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116,
        "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162,
        "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218, "keyctl": 219,
        "swapon": 224, "swapoff": 225, "migrate_pages": 238, "move_pages": 239,
        "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
        "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
        "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip
# From 424 on the numbers are the same everywhere.
_NEWER = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "memfd_secret": 447, "process_mrelease": 448,
}  # fmt: skip
_CLONE3 = 435
_TABLES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse_if(test: int, value: int, error: int) -> bytes:
    """Fail the call with `error` when the test on the loaded word holds, else go on."""
    return _instruction(test, value, 0, 1) + _instruction(_RETURN, _FAIL | error)


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """The filter as an array of struct sock_filter; None on a machine it is not written for.

    A refused call fails with EPERM. clone3, whose flags a filter cannot read, fails with ENOSYS,
    upon which the C library uses clone. A call of another architecture or of the x32 interface
    ends the process.

    Args:
        machine: as of `platform.machine()`; None for this one.
    """
    known = _TABLES.get(machine or platform.machine())
    if known is None:
        return None
    architecture, table = known
    program = _instruction(_LOAD, _ARCHITECTURE)
    program += _instruction(_JUMP_IF_EQUAL, architecture, 1, 0) + _instruction(_RETURN, _KILL)
    program += _instruction(_LOAD, _NUMBER)
    if table is _X86_64:
        program += _instruction(_JUMP_IF_AT_LEAST, _X32_BIT, 0, 1) + _instruction(_RETURN, _KILL)
    refused = table["refused"]
    assert isinstance(refused, dict)
    for number in sorted([*refused.values(), *_NEWER.values()]):
        program += _refuse_if(_JUMP_IF_EQUAL, number, errno.EPERM)
    program += _refuse_if(_JUMP_IF_EQUAL, _CLONE3, errno.ENOSYS)
    for name, test, value in (
        ("clone", _JUMP_IF_ANY_BIT, _NEW_NAMESPACES),
        ("socket", _JUMP_IF_EQUAL, _AF_UNIX),
    ):
        number = table[name]
        assert isinstance(number, int)
        program += _instruction(_JUMP_IF_EQUAL, number, 0, 4)
        program += _instruction(_LOAD, _FIRST_ARGUMENT)
        fail_first = 0 if name == "clone" else 1
        program += _instruction(test, value, fail_first, 1 - fail_first)
        program += _instruction(_RETURN, _FAIL | errno.EPERM)
        program += _instruction(_RETURN, _ALLOW)
    return program + _instruction(_RETURN, _ALLOW)
