"""One grader process: reads batches from its parent, judges, answers. Started by `pool_process`.

The parent owns every deadline. All that this process does for it is to count: the shared word
is odd while an item is being judged and even otherwise, and it never decreases.
"""

import ctypes
import mmap
import pickle
import resource
import signal
import socket
import struct
import sys
import time
from typing import Any

from brorl.verify.verdict import Verdict, ungradable

HEADER = struct.Struct("<Q")
FLUSH_S = 0.02  # results wait at most this long, so that a kill costs little finished work
REASON_CHARS = 300
_PR_SET_PDEATHSIG = 1

type_name = "{0.__module__}.{0.__qualname__}".format


def describe(error: BaseException) -> str:
    """An exception as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:REASON_CHARS]


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends. A no-op outside Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def judge(verifier: Any, phase: str, text: str, gold: str | None, row: Any) -> tuple[str, Any]:
    """One item: ("extracted", str | None), ("verdict", Verdict), ("failed", why) or ("full", ...).

    "failed" is the verifier's fault and never the answer's: an exception, or a wrong type
    returned. "full" carries a Verdict too, and says that this process ran out of memory and
    must not be used again.
    """
    try:
        if phase == "extract":
            answer = verifier.extract(text, row)
            if answer is None or type(answer) is str:
                return "extracted", answer
            wanted, got = "a str or None", answer
        else:
            verdict = verifier.grade(text, gold=gold, row=row)
            if isinstance(verdict, Verdict):
                return "verdict", verdict
            wanted, got = "a Verdict", verdict
    except MemoryError:
        extracted = None if phase == "extract" else text
        return "full", ungradable(extracted, f"{phase} needs more memory than a grader may use")
    except Exception as error:  # a process boundary: becomes data
        return "failed", f"{type_name(type(verifier))}.{phase} raised {describe(error)}"
    name = type_name(type(verifier))
    return "failed", f"{name}.{phase} must return {wanted}, got {type(got).__name__}"


def _read_exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise SystemExit(0)  # the parent is gone or has closed the pool
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(sock: socket.socket, message: Any) -> None:
    payload = pickle.dumps(message, protocol=5)
    sock.sendall(HEADER.pack(len(payload)) + payload)


def _load(context: bytes) -> tuple[Any, str | None, Any]:
    """Unpickle (verifier, gold, row) and let the verifier do its slow imports beforehand."""
    verifier, gold, row = pickle.loads(context)
    if prepare := getattr(verifier, "prepare", None):
        prepare()
    return verifier, gold, row


def serve(sock: socket.socket, progress: mmap.mmap) -> None:
    """Judge batches until the parent closes its end."""
    context: tuple[Any, str | None, Any] | None = None
    broken = ""
    count = 0
    while True:
        (size,) = HEADER.unpack(_read_exactly(sock, HEADER.size))
        new_context, phase, texts = pickle.loads(_read_exactly(sock, size))
        if new_context is not None:
            try:
                context, broken = _load(new_context), ""
            except Exception as error:  # a verifier that cannot be loaded is data, too
                context, broken = None, f"verifier cannot be loaded: {describe(error)}"
        results: list[tuple[str, Any]] = []
        flushed = time.monotonic()
        for text in texts:
            count += 1
            HEADER.pack_into(progress, 0, 2 * count - 1)
            results.append(
                judge(context[0], phase, text, *context[1:]) if context else ("failed", broken)
            )
            HEADER.pack_into(progress, 0, 2 * count)
            if results[-1][0] == "full":
                _send(sock, results)
                raise SystemExit(0)
            if time.monotonic() - flushed > FLUSH_S:
                _send(sock, results)
                results, flushed = [], time.monotonic()
        if results:
            _send(sock, results)


def main() -> None:
    """Entry point: pool_worker SOCKET_FD PROGRESS_FD MEMORY_BYTES."""
    die_with_parent()
    socket_fd, progress_fd, memory = (int(a) for a in sys.argv[1:])
    sock = socket.socket(fileno=socket_fd)
    progress = mmap.mmap(progress_fd, HEADER.size)
    (size,) = HEADER.unpack(_read_exactly(sock, HEADER.size))
    sys.path[:] = pickle.loads(_read_exactly(sock, size))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sock, progress)


if __name__ == "__main__":
    main()
