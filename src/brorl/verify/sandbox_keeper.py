"""Keeps one box at a time: a small process of its own between a grader and the boxes it starts.

It exists for three things that its owner cannot do for itself: it sits in the control group, so
that a box is born in it; it has given up the superuser's identity, so that starting a box is one
cheap spawn; and it adopts what a box leaves behind, so that "ended" means that nothing is left.

Runs by its source alone, on the interpreter of the boxes: only the standard library. Protocol on
the socket: b"r" with one descriptor starts a box that gets it as number 3; b"k" kills the box and
is answered by b"g" when all of it is gone. End of file ends the keeper and its box.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
CHANNEL, CODE, FILTER = 3, 4, 5  # the descriptors of a box


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


def kill_all(first: int) -> None:
    """SIGKILL to the box and to what it left behind, until there is no child any more."""
    listing = f"/proc/self/task/{os.getpid()}/children"
    known = {first}
    while True:
        # On a kernel without the listing: the box alone, whose end takes the rest along.
        with contextlib.suppress(OSError), open(listing) as file:
            known |= {int(word) for word in file.read().split()}
        for pid in known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        known.discard(pid)


def main() -> None:
    """Entry point: CONTROL_FD CODE_FD FILTER_FD COMMAND...; FILTER_FD is -1 for none."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=int(sys.argv[1]))
    code, bpf = int(sys.argv[2]), int(sys.argv[3])
    for number in (control.fileno(), code, bpf):
        if number >= 0:
            os.set_inheritable(number, False)  # a box gets what is meant for it and no more
    command = sys.argv[4:]
    box = 0
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            break
        if message == b"r":
            (channel,) = descriptors
            try:
                box = spawn(command, channel, code, bpf)
            except OSError as error:
                sys.stderr.write(f"cannot start a box: {error}\n")
            os.close(channel)  # if the box did not start, the owner now reads end of file
        else:
            if box:
                kill_all(box)
            box = 0
            control.sendall(b"g")
    if box:
        kill_all(box)


if __name__ == "__main__":
    main()
