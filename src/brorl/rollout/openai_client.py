"""JSON over HTTP to a server that speaks OpenAI's interface: bounded in time, retried, one line.

No redirect is followed, so the key goes to the host that the settings name and to no other.
"""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from brorl.errors import EngineError
from brorl.rollout.options import OpenAIOptions

_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})
_LONGEST_PAUSE_S = 30.0
_LARGEST = 1 << 28  # bytes of one answer; more is not what was asked for


class _Again(Exception):
    """Worth another try: what happened, and the server's own wish for a pause in seconds."""

    def __init__(self, reason: str, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


class Server:
    """One server. May be asked from several threads at once.

    Args:
        options: address, key, time-outs, retries.
    """

    def __init__(self, options: OpenAIOptions) -> None:
        self._options = options
        self._url = urlsplit(options.base_url.rstrip("/"))
        self._key = os.environ.get(options.api_key_env)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = threading.Event()

    def get(self, path: str) -> dict[str, Any]:
        """The object at a path. Raises EngineError."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to an object. Raises EngineError after the last retry, or at once on 4xx."""
        return self._asked("POST", path, json.dumps(body).encode())

    def close(self) -> None:
        """Cut requests in flight short; what waits for them raises EngineError."""
        with self._lock:
            self._closed.set()
            for connected in self._open:
                # OSError: it ended by itself meanwhile
                with contextlib.suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)

    def _asked(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        pause_s = 0.5
        for attempt in range(self._options.retries + 1):
            if self._closed.is_set():
                break
            try:
                return self._once(method, path, body)
            except _Again as again:
                last = again
            if attempt < self._options.retries:
                self._closed.wait(min(last.pause_s or pause_s, _LONGEST_PAUSE_S))
                pause_s *= 2
        if self._closed.is_set():
            raise EngineError(f"{self._options.base_url}: closed")
        raise EngineError(
            f"{self._options.base_url} does not answer {path} after {self._options.retries + 1} "
            f"tries: {last}"
        )

    def _once(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        deadline = time.monotonic() + self._options.timeout_s
        try:
            with self._connected() as connection:
                connection.request(method, self._url.path + path, body, self._headers())
                with connection.getresponse() as response:
                    raw = _read(response, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise _Again(str(error) or type(error).__name__) from error
        if response.status in _AGAIN:
            raise _Again(f"status {response.status}: {_message(raw)}", _retry_after(response))
        if response.status != 200:
            raise EngineError(
                f"{self._options.base_url}{path}: status {response.status}: {_message(raw)}"
            )
        try:
            found = json.loads(raw)
        except ValueError as error:
            raise EngineError(f"{self._options.base_url}{path}: not JSON: {error}") from error
        if not isinstance(found, dict):
            raise EngineError(f"{self._options.base_url}{path}: needs an object, got {raw[:80]!r}")
        return found

    @contextlib.contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        """A connection that `close` cuts at any instant: one is listed, or sees that it is late.

        The socket is listed, not the connection: http.client forgets its socket once the headers
        are read, while the body is still to come.
        """
        connection = self._connection()
        try:
            connection.connect()
            connected = connection.sock
            with self._lock:
                if self._closed.is_set():
                    raise ConnectionAbortedError("closed")
                self._open.add(connected)
            try:
                yield connection
            finally:
                with self._lock:
                    self._open.discard(connected)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port, timeout = self._url.hostname or "", self._url.port, self._options.timeout_s
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        return headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body; a server that drips bytes for ever runs out of time, not we of patience."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer was not complete in time")
        if size > _LARGEST:
            raise http.client.HTTPException(f"an answer of more than {_LARGEST} bytes")
    return b"".join(parts)


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    wish = response.headers.get("Retry-After", "")
    return float(wish) if wish.isdigit() else None


def _message(raw: bytes) -> str:
    """What a server says of an error: its own words where it has the usual form, on one line."""
    text = raw[:2000].decode(errors="replace")
    try:
        found = json.loads(raw)
        inner = found.get("error", found)
        text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:300] or "no reason given"
