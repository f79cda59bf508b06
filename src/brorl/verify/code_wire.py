"""Messages on a descriptor: a length, then that many bytes. Blocking; deadlines are signals.

Runs inside boxes: see code_codec.
"""

from __future__ import annotations

import _struct
import posix

HEADER = _struct.Struct("<Q")


class WireError(Exception):
    """The other end is gone, or has sent what is no message."""


def send(descriptor: int, payload: bytes) -> None:
    """Write one message. Raises WireError where the other end is gone."""
    data = memoryview(HEADER.pack(len(payload)) + payload)
    try:
        while data:
            data = data[posix.write(descriptor, data) :]
    except OSError as error:
        raise WireError(f"the other end is gone: {error}") from None


def receive(descriptor: int, limit: int) -> bytes:
    """Read one message of at most `limit` bytes. Raises WireError."""
    (size,) = HEADER.unpack(read_exactly(descriptor, HEADER.size))
    if size > limit:
        raise WireError(f"a message may have {limit} bytes, got one of {size}")
    return read_exactly(descriptor, size)


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read that many bytes. Raises WireError."""
    parts = []
    while size:
        try:
            part = posix.read(descriptor, min(size, 1 << 20))
        except OSError as error:
            raise WireError(f"the other end is gone: {error}") from None
        if not part:
            raise WireError("the other end is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
