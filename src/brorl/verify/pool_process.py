"""The parent's handle on one grader process: start, send, receive, watch, kill."""

import contextlib
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import brorl
from brorl.verify.pool_worker import HEADER

_ITS_CHANCE = 0.2  # share of the deadline on a processor; less, and the machine was too busy
PREPARE_S = 120.0  # for starting, importing and unpickling, which are no answer's doing
_SOURCE_ROOT = str(Path(brorl.__file__).parent.parent)


def cpu_seconds(pid: int) -> float | None:
    """Processor time used so far by a process, in seconds; None where /proc cannot tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Overdue(NamedTuple):
    """An item that has run out of its time."""

    position: int  # in the batch
    judging: bool  # False: the child was still getting ready for it
    working: bool  # the child spent long enough on a processor to have had its chance


class GraderProcess:
    """A child that judges one batch at a time. Never blocks its owner; owned by one thread."""

    def __init__(self, memory_bytes: int) -> None:
        """Start the child; it reads its first batch when it is ready.

        It is started by exec, never forked: the parent may hold threads and device contexts.
        It leads a session of its own, so that Ctrl-C does not reach it and one signal to its
        group ends whatever it has started.
        """
        self.sock, theirs = socket.socketpair()
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        search = [_SOURCE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(search)
        command = [sys.executable, "-m", "brorl.verify.pool_worker"]
        with theirs, tempfile.TemporaryFile() as shared:
            shared.truncate(mmap.PAGESIZE)
            self._progress = mmap.mmap(shared.fileno(), mmap.PAGESIZE)
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(shared.fileno()), str(memory_bytes)],
                pass_fds=(theirs.fileno(), shared.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a user's verifier prints must not mix with results on stdout
                env=environment,
                start_new_session=True,
            )
        self.sock.setblocking(False)
        self._context = b""  # digest of the context that the child holds
        self._begun = 0  # the count when the batch was sent
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._watched = (0, time.monotonic(), 0.0)
        self._queue(sys.path)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def _count(self) -> int:
        (count,) = HEADER.unpack_from(self._progress, 0)
        return int(count)

    def _queue(self, message: Any) -> None:
        payload = pickle.dumps(message, protocol=5)
        self._outgoing += HEADER.pack(len(payload)) + payload

    def send(self, digest: bytes, context: bytes, phase: str, texts: Sequence[str]) -> None:
        """Hand over a batch; `flush` writes it. The context travels only where it is news."""
        self._begun = self._count()
        self._watched = (self._begun, time.monotonic(), cpu_seconds(self.pid) or 0.0)
        self._queue((None if digest == self._context else context, phase, list(texts)))
        self._context = digest

    def position(self) -> int:
        """Index in the batch of the item in progress or, between two, of the next one."""
        return (self._count() - self._begun) // 2

    def flush(self) -> bool:
        """Write what the socket takes now. False when the child has closed its end."""
        try:
            while self._outgoing:
                sent = self.sock.send(memoryview(self._outgoing)[: 1 << 20])
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def receive(self) -> tuple[list[tuple[str, Any]], bool]:
        """(results that have arrived, whether the child still has its end open)."""
        is_open = True
        try:
            while data := self.sock.recv(1 << 20):
                self._incoming += data
            is_open = False
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        results: list[tuple[str, Any]] = []
        while len(self._incoming) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._incoming)
            end = HEADER.size + size
            if len(self._incoming) < end:
                break
            results += pickle.loads(memoryview(self._incoming)[HEADER.size : end])
            del self._incoming[:end]
        return results, is_open

    def overdue(self, deadline_s: float) -> Overdue | None:
        """What has run out of its time, if anything.

        An item is overdue when two looks at the child, `deadline_s` apart, find it at the same
        one; so a late look only lengthens the deadline.
        """
        count, now = self._count(), time.monotonic()
        last, since, cpu_then = self._watched
        if count != last:
            self._watched = (count, now, cpu_seconds(self.pid) or 0.0)
            return None
        judging = count % 2 == 1
        if now - since < (deadline_s if judging else max(deadline_s, PREPARE_S)):
            return None
        cpu_now = cpu_seconds(self.pid)
        working = cpu_now is None or cpu_now - cpu_then >= deadline_s * _ITS_CHANCE
        return Overdue((count - self._begun) // 2, judging, judging and working)

    def dismiss(self) -> None:
        """Tell an idle child that there is nothing more to come; it cleans up and leaves."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def gone(self, within_s: float) -> bool:
        """Whether the child has ended, waiting for it at most so long; it is not reaped here."""
        end = time.monotonic() + within_s
        if not hasattr(os, "waitid"):  # macOS before Python 3.13: no goodbye
            return False
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while not os.waitid(os.P_PID, self.pid, look):
            if time.monotonic() >= end:
                return False
            time.sleep(0.005)
        return True

    def kill(self) -> str:
        """End the child and all that it started, at once; reap it; release everything.

        Returns how it ended: by itself, if it had before.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # the group may outlive its leader
        self._process.kill()
        self._process.wait()
        self.sock.close()
        self._progress.close()
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit status {code}"
