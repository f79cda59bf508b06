"""One place where boxes run, one after the other: the owner's side of sandbox_keeper."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from brorl.errors import VerifierError
from brorl.verify import sandbox_keeper
from brorl.verify.sandbox import Sandbox, identity, memory_file
from brorl.verify.sandbox_cgroup import enclose
from brorl.verify.sandbox_keeper import USED

_SLACK_BYTES = 48 << 20  # of a control group, for the keeper and bubblewrap beside the box
_SLACK_PROCESSES = 5
_PATIENCE_S = 20.0  # for the keeper, which has next to nothing to do


class Box:
    """Runs at most one box at a time. To be used and closed by the thread that made it."""

    def __init__(self, sandbox: Sandbox, role: str, *, ahead: bool) -> None:
        """Start the keeper.

        Args:
            sandbox: how.
            role: what runs in the boxes, a key of `sandbox.roles`.
            ahead: whether the next box is started as soon as one has ended, to be ready when it
                is asked for. It waits empty: each box still has one use.
        """
        self._ahead = ahead
        self._waiting: socket.socket | None = None
        self._folder = None
        if not sandbox.isolated:
            self._folder = tempfile.mkdtemp(prefix="brorl-unsafe-")
            if sandbox.user is not None:
                os.chown(self._folder, sandbox.user, sandbox.user)
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_PATIENCE_S)
        keeper = Path(sandbox_keeper.__file__).read_text(encoding="utf-8")
        with theirs, memory_file(sandbox.roles[role]) as code, memory_file(sandbox.bpf) as bpf:
            passed = [theirs.fileno(), code.fileno(), bpf.fileno()]
            numbers = passed if sandbox.bpf else [*passed[:2], -1]
            command = [sandbox.python, "-I", "-S", "-c", keeper]
            command += map(str, [*numbers, sandbox.limits.memory_bytes + _SLACK_BYTES])
            self._keeper = subprocess.Popen(
                [*command, *sandbox.command],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                env={},
                cwd=self._folder or "/",
                **identity(sandbox.user),  # type: ignore[call-overload]
            )
        limits = sandbox.limits
        self.cgroup = enclose(
            self._keeper.pid,
            memory=limits.memory_bytes + _SLACK_BYTES,
            processes=limits.processes + _SLACK_PROCESSES,
        )
        if self.cgroup.version == 0:
            self._control.sendall(b"w")

    def start(self) -> socket.socket:
        """Start a box; the owner's end of its channel. `end` must come before the next start.

        Raises:
            VerifierError: the keeper is gone. A box that does not start shows as end of file.
        """
        ready, self._waiting = self._waiting, None
        return ready or self._spawn()

    def _spawn(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"r"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise VerifierError(f"the keeper of a box is gone: {error}") from None
        return ours

    def used(self) -> tuple[float, float]:
        """Seconds that the box has been on a processor so far, and has waited for one.

        Raises:
            VerifierError: the keeper is gone.
        """
        answer = self._ask(b"u", USED.size)
        running, waiting = USED.unpack(answer)
        return running, waiting

    def end(self) -> None:
        """Kill the box, if there is one; returns when nothing of it is left.

        Raises:
            VerifierError: the keeper is gone, and by that the box.
        """
        self._ask(b"k", 1)
        if self._ahead:
            self._waiting = self._spawn()

    def _ask(self, request: bytes, size: int) -> bytes:
        try:
            self._control.sendall(request)
            answer = self._control.recv(size)
        except OSError as error:
            raise VerifierError(f"the keeper of a box is gone: {error}") from None
        if len(answer) != size:
            raise VerifierError("the keeper of a box is gone")
        return answer

    def close(self) -> None:
        """End the box and its keeper and release everything."""
        with contextlib.suppress(VerifierError):
            self._ask(b"k", 1)
        if self._waiting is not None:
            self._waiting.close()
        self._control.close()
        self._keeper.kill()
        self._keeper.wait()
        self.cgroup.remove()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
