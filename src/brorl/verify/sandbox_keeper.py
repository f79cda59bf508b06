"""Keeps one box at a time: a small process of its own between a grader and the boxes it starts.

It exists for three things that its owner cannot do for itself: it sits in the control group, so
that a box is born in it; it has given up the superuser's identity, so that starting a box is one
cheap spawn; and it adopts what a box leaves behind, so that "ended" means that nothing is left.

It also counts: what a box has used, and, where there is no control group to do it, whether all its
processes together have more memory than a box may have.

Runs by its source alone, on the interpreter of the boxes: only the standard library. Requests on
the socket are one byte: "r" with one descriptor starts a box that gets it as number 3; "u" is
answered by what the box has used (USED); "k" kills it and is answered by "g" when all of it is
gone; "w" turns the watch over memory on. End of file ends the keeper and its box.
"""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
CHANNEL, CODE, FILTER = 3, 4, 5  # the descriptors of a box
USED = struct.Struct("<dd")  # seconds on a processor, seconds waiting for one
_WATCH_S = 0.05
_SELF = Path("/proc/self/task") / str(os.getpid()) / "children"


def spawn(command: list[str], channel: int, code: int, bpf: int) -> int:
    """Start a box; its process id. The code and the filter are read from their beginning."""
    null = os.open(os.devnull, os.O_RDWR)
    moves = [(null, 0), (null, 1), (null, 2), (channel, CHANNEL), (code, CODE)]
    if bpf >= 0:
        os.lseek(bpf, 0, os.SEEK_SET)
        moves.append((bpf, FILTER))
    # Two moves each, as a source may itself have the number of another's target.
    high = [(source, 100 + target) for source, target in moves]
    low = [(100 + target, target) for _, target in moves]
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, *move) for move in (*high, *low)]
    actions += [(os.POSIX_SPAWN_CLOSE, number) for number, _ in low]
    try:
        return os.posix_spawn(command[0], command, {}, file_actions=actions)
    finally:
        os.close(null)


def family() -> list[int]:
    """Every process below this one, as far as the kernel lists them."""
    found: list[int] = []
    todo = [_SELF]
    for listing in todo:
        with contextlib.suppress(OSError, ValueError):
            below = [int(word) for word in listing.read_text().split()]
            found += below
            for pid in below:
                todo += Path(f"/proc/{pid}/task").glob("*/children")
    return found


def used() -> bytes:
    """What the processes of a box have used, those that they have waited for included."""
    tick = os.sysconf("SC_CLK_TCK")
    running = waiting = 0.0
    for pid in family():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            running += sum(map(int, fields[11:15])) / tick
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                waiting += int(thread.read_text().split()[1]) / 1e9
    return USED.pack(running, waiting)


def resident() -> int:
    """Bytes of memory that the processes of a box hold; what they share counts for each."""
    pages = 0
    for pid in family():
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill_all(first: int) -> None:
    """SIGKILL to the box and to what it left behind, until there is no child any more."""
    known = {first}
    while True:
        # On a kernel without the listing: the box alone, whose end takes the rest along.
        with contextlib.suppress(OSError):
            known |= {int(word) for word in _SELF.read_text().split()}
        for pid in known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        known.discard(pid)


def main() -> None:
    """Entry point: CONTROL_FD CODE_FD FILTER_FD MEMORY COMMAND...; FILTER_FD is -1 for none."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=int(sys.argv[1]))
    code, bpf, memory = map(int, sys.argv[2:5])
    for number in (control.fileno(), code, bpf):
        if number >= 0:
            os.set_inheritable(number, False)  # a box gets what is meant for it and no more
    command = sys.argv[5:]
    box = 0
    watches = False
    while True:
        control.settimeout(_WATCH_S if box and watches else None)
        try:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        except TimeoutError:
            if resident() > memory:
                kill_all(box)
                box = 0
            continue
        if message == b"r":
            (channel,) = descriptors
            try:
                box = spawn(command, channel, code, bpf)
            except OSError as error:
                sys.stderr.write(f"cannot start a box: {error}\n")
            os.close(channel)  # if the box did not start, the owner now reads end of file
        elif message == b"u":
            control.sendall(used())
        elif message == b"w":
            watches = True
        else:
            if box:
                kill_all(box)
            box = 0
            if not message:
                break
            control.sendall(b"g")


if __name__ == "__main__":
    main()
