"""What the tests of boxes share: the reason to skip, and a look at the host before and after."""

import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

BUBBLEWRAP = shutil.which("bwrap") is not None
needs_bubblewrap = pytest.mark.skipif(
    not BUBBLEWRAP, reason="needs bubblewrap (apt-get install bubblewrap)"
)
MARKS = ("pwned_marker", "fill_marker")


def processes():
    """Pid and start time of every process of the host that is no zombie."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found.add((int(stat.parent.name), int(fields[19])))
    return found


def below(root):
    """Pids of the processes below one, itself left out, zombies too."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return set(found)


def marker_files():
    """Files that an attack would leave, where it would leave them."""
    here = Path.cwd()
    folders = [here, *here.parents, Path("/tmp"), Path("/root"), Path("/etc"), Path.home()]
    folders += [Path("/dev/shm"), Path("/var/tmp")]
    return [f / name for f in folders for name in MARKS if (f / name).exists()]


class Listener:
    """Listens where a program might try to reach the host, and counts who comes."""

    def __init__(self):
        self.visits = 0
        self.sockets = []
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", 8000)),
            (socket.AF_UNIX, "\0ray"),
            (socket.AF_UNIX, "\0grader"),
        ):
            sock = socket.socket(family)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(address)
            except OSError:  # taken by something else: nothing to count there
                sock.close()
                continue
            sock.listen()
            self.sockets.append(sock)
            threading.Thread(target=self._count, args=(sock,), daemon=True).start()

    def _count(self, sock):
        while True:
            try:
                connection, _ = sock.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()

    def close(self):
        for sock in self.sockets:
            sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Host:
    """Checks that judging a program has left the host as it was."""

    def __init__(self):
        self.listener = Listener()

    @staticmethod
    def _settled(own):
        """Processes below us; those of the tests may still be on their way out."""
        end = time.monotonic() + 2
        while (left := len(below(os.getpid()))) > own and time.monotonic() < end:
            time.sleep(0.01)
        return left

    def check(self, judge, within_s):
        """Run `judge()` and return its verdict, checking processes, files, network and time."""
        own = len(below(os.getpid()))
        start = time.monotonic()
        verdict = judge()
        seconds = time.monotonic() - start
        if (left := self._settled(own)) > own:
            # Where the waiting box had died before, a new one waits now: once, not every time.
            judge()
            assert self._settled(left) <= left, "processes were left behind"
        assert marker_files() == []
        assert self.listener.visits == 0
        assert seconds < within_s, f"the verdict took {seconds:.1f} s"
        return verdict
