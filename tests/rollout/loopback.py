"""A server on the loopback interface that speaks OpenAI's completions, as well or badly as asked.

It samples with the embedded engine, answer j of a request under the seed + j, as vLLM does.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from brorl.errors import EngineError
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling, Stop

Fault = Callable[[dict[str, Any], dict[str, Any]], Any]


class Loopback:
    """State of the server that tests read and write.

    Attributes:
        asked: bodies of all completions that were asked for, in the order in which they came.
        headers: of the last request.
        most_at_once: requests that were in flight together, at most.
        statuses: answered in this order before anything else; 0 drops the connection.
        spoil: changes an answer (given with its request) before it is sent.
        delay_s: before every answer.
        models: entries of /v1/models.
        ends: set when the server goes; no answer is delayed beyond it.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.engine = EmbeddedEngine(policy, memory_budget=1 << 28)
        self.asked: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.most_at_once = 0
        self.statuses: list[int] = []
        self.retry_after: str | None = None
        self.spoil: Fault | None = None
        self.delay_s = 0.0
        self.models: Any = [{"id": "tiny", "max_model_len": 64}]
        self.url = ""
        self.ends = threading.Event()
        self._lock = threading.Lock()
        self._now = 0

    def enter(self) -> int | None:
        """Count a request in; the status it is to be answered with, None for a real answer."""
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            return self.statuses.pop(0) if self.statuses else None

    def leave(self) -> None:
        with self._lock:
            self._now -= 1

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.asked.append(body)
            choices = [self._choice(body, j) for j in range(body["n"])]
        answer = {"object": "text_completion", "model": body["model"], "choices": choices}
        return answer if self.spoil is None else self.spoil(answer, body)

    def _choice(self, body: dict[str, Any], j: int) -> dict[str, Any]:
        prompt = tuple(body["prompt"])
        how = Sampling(body["temperature"], body["top_p"], body.get("top_k", 0), body["max_tokens"])
        request = Request(f"{prompt}", "served", prompt, 0, 1, body["seed"] + j)
        made = self.engine.sample([request], how)[0][0]
        ids = made.tokens.tolist()
        choice = {
            "index": j,
            "text": self.policy.decode(ids),
            "finish_reason": "stop" if made.stop is Stop.EOS else "length",
            "logprobs": None,
        }
        if body.get("return_token_ids"):
            choice |= {"token_ids": ids, "prompt_token_ids": list(prompt)}
        return choice


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0: one request a connection."""

    server: Any

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""

    def do_GET(self) -> None:
        self._serve(lambda state, body: {"object": "list", "data": state.models}, "/v1/models")

    def do_POST(self) -> None:
        self._serve(lambda state, body: state.complete(body), "/v1/completions")

    def _serve(self, answer: Callable[[Loopback, Any], Any], path: str) -> None:
        state: Loopback = self.server.state
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state.headers = dict(self.headers)
        status, found = state.enter(), None
        try:
            state.ends.wait(state.delay_s)
            if status is None and self.path != path:
                status, found = 404, {"error": {"message": f"nothing at {self.path}"}}
            elif status is None:
                status, found = 200, answer(state, json.loads(raw) if raw else None)
        except EngineError as error:
            status, found = 400, {"error": {"message": str(error)}}
        finally:
            state.leave()  # before the client has its answer, and may ask again
        if status:
            self._send(status, found or {"error": {"message": f"told to\nsay {status}"}})

    def _send(self, status: int, body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if self.server.state.retry_after is not None:
            self.send_header("Retry-After", self.server.state.retry_after)
        if 300 <= status < 400:
            self.send_header("Location", "http://192.0.2.1/elsewhere")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class _Http(ThreadingHTTPServer):
    request_queue_size = 128  # 5 by default: the sixth of many clients at once waits a second
    state: Loopback

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def serving(policy: Any) -> Iterator[Loopback]:
    """A server of this policy on a free port of 127.0.0.1, while the context lasts."""
    state = Loopback(policy)
    server = _Http(("127.0.0.1", 0), _Handler)
    server.daemon_threads = False  # torch in one ends the process with an abort at its exit
    server.state = state
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        state.ends.set()
        server.server_close()  # waits for the answers in the making
        thread.join()
