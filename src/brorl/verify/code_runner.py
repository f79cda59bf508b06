"""Runs one program against its tests: boxes, messages, deadlines."""

import atexit
import functools
import os
import select
import socket
import time
from typing import Any, NamedTuple

from brorl.errors import VerifierError
from brorl.verify.code_codec import CodecError, decode, encode
from brorl.verify.code_compare import same_output
from brorl.verify.code_task import CodeTask, Run
from brorl.verify.code_wire import HEADER
from brorl.verify.sandbox import Limits, open_sandbox
from brorl.verify.sandbox_box import Box

START_S = 30.0  # for boxes to start, which is no doing of the program
GRACE_S = 1.0  # for the tests' side to say that time is up, after which it is not waited for
_ITS_CHANCE = 0.2  # share of a test's time on a processor; less, after a long wait, is our fault
_TOKEN = 8
_SMALL = 16 << 10  # bytes, well below what a socket takes in without a reader
_MORE_OUTPUT = 64 << 10  # read beyond what could be right, in bytes


class Outcome(NamedTuple):
    """What became of the tests.

    Attributes:
        end: "done", "late" (a test or all of them ran out of time), "unreadable" (the program
            does not compile), "lost" (a box did not start or died), "broken" (the tests cannot
            be run) or "starved" (late, but of want of a processor). `CodeRunner.run` returns the
            first three and raises for the others.
        passed: one for each test that was run, in order; those not run have not passed.
        why: about the first that did not pass; "" if all did.
    """

    end: str
    passed: tuple[bool, ...]
    why: str


class CodeRunner:
    """Two places for boxes, one for programs and one for tests. For one thread, and reused."""

    def __init__(self, limits: Limits, *, unsafe_local: bool) -> None:
        """Find a way of making boxes. Raises ConfigError where there is none."""
        self.sandbox = open_sandbox(limits, unsafe_local=unsafe_local)
        self._program: Box | None = None
        self._tests: Box | None = None
        self._control: socket.socket | None = None

    def run(
        self, code: str, task: CodeTask, *, test_s: float, total_s: float, stop_early: bool
    ) -> Outcome:
        """All tests of a task, or those up to the first that fails, in one box.

        Args:
            code: source of the program.
            task: with one test at least.
            test_s: seconds of wall clock for each test, loading counted to the first.
            total_s: the same for all of them.
            stop_early: whether one failure ends it.

        Raises:
            VerifierError: a box did not start or was lost, the tests cannot be run, or a program
                was late because others had the processors.
        """
        outcome = self._run_once(code, task, test_s, total_s, stop_early)
        if outcome.end == "lost":  # boxes wait for programs, and may die of it: once more
            outcome = self._run_once(code, task, test_s, total_s, stop_early)
        if outcome.end in ("lost", "broken", "starved"):
            raise VerifierError(outcome.why)
        return outcome

    def _run_once(
        self, code: str, task: CodeTask, test_s: float, total_s: float, stop_early: bool
    ) -> Outcome:
        try:
            if self._program is None:
                self._program = Box(self.sandbox, "program", ahead=True)
            with self._program.start() as channel:
                channel.settimeout(START_S)
                _send(channel, self._config(kind=task.kind, code=code, preamble=task.preamble))
                if task.kind == "stdin":
                    outcome = _run_stdin(channel, task, test_s, total_s, stop_early)
                else:
                    outcome = self._run_function(channel, task, test_s, total_s, stop_early)
            if outcome.end == "late":
                running, waiting = self._program.used()
                if running < _ITS_CHANCE * test_s and waiting > test_s / 2:
                    outcome = Outcome("starved", (), "the machine was too busy to run a program")
            self._program.end()
        except (OSError, VerifierError) as error:
            outcome = Outcome("lost", (), f"a box was lost: {error}")
        except BaseException:
            self.close()  # in whatever state they are, no other program shall meet these boxes
            raise
        if outcome.end == "lost":
            self.close()
        return outcome

    def close(self) -> None:
        """End all boxes. The runner may be used again; it starts new ones."""
        if self._control is not None:
            self._control.close()
        for box in (self._program, self._tests):
            if box is not None:
                box.close()
        self._program = self._tests = self._control = None

    def _config(self, **more: Any) -> bytes:
        limits = self.sandbox.limits
        bounds = {
            "memory": limits.memory_bytes,
            # Without a box the kernel would count all that this user runs on the machine.
            "processes": limits.processes if self.sandbox.isolated else 1 << 20,
            "files": limits.files,
            "file_bytes": limits.file_bytes,
            "cpu_s": limits.cpu_s,
        }
        return encode({"limits": bounds, "landlock": self.sandbox.landlock > 0, **more})

    def _run_function(
        self,
        channel: socket.socket,
        task: CodeTask,
        test_s: float,
        total_s: float,
        stop_early: bool,
    ) -> Outcome:
        """Give the program's channel to the tests and wait for what they conclude."""
        if self._control is None:
            self._tests = Box(self.sandbox, "tests", ahead=False)
            self._control = self._tests.start()
            self._control.settimeout(START_S)
            _send(self._control, self._config())
        job = encode(
            {
                "setup": task.setup,
                "tests": task.tests,
                "entry_point": task.entry_point,
                "test_s": test_s,
                "total_s": total_s,
                "stop_early": stop_early,
            }
        )
        channel.setblocking(True)  # travels with the descriptor, and the tests' side blocks
        reader, writer = os.pipe()
        with open(reader, "rb", buffering=0) as outcome:
            with open(writer, "wb", buffering=0):
                socket.send_fds(self._control, [HEADER.pack(len(job))], [channel.fileno(), writer])
            self._control.sendall(job)
            channel.close()
            data = _read_outcome(outcome.fileno(), START_S + total_s + GRACE_S)
        if data is None:
            self._drop_tests()
            return Outcome("late", (), "the tests ran out of their time")
        return _conclude(data, len(task.tests))

    def _drop_tests(self) -> None:
        if self._control is not None and self._tests is not None:
            self._control.close()
            self._tests.close()
        self._tests = self._control = None


def _run_stdin(
    channel: socket.socket, task: CodeTask, test_s: float, total_s: float, stop_early: bool
) -> Outcome:
    """One run for each input; outputs are compared here, where no program is."""
    try:
        hello = _receive(channel, 64, time.monotonic() + START_S)
    except (OSError, CodecError):
        hello = b""
    if hello != b"hello":
        return Outcome("lost", (), "the box of a program did not start")
    end = time.monotonic() + total_s
    passed: list[bool] = []
    first_why = ""
    requests = [_Request(run) for run in task.runs]
    sent = 0
    try:
        state, why = decode(_receive(channel, 1 << 16, min(end, time.monotonic() + test_s)))
        if state != "loaded":
            return Outcome("unreadable" if state == "unreadable" else "done", (), str(why))
        for number, request in enumerate(requests):
            late_at = min(end, time.monotonic() + test_s)
            # The next input goes out before the answer comes in, so that nobody waits for it:
            # if it is small, for then it fits in the socket whatever the program does.
            while sent <= number or (sent == number + 1 < len(requests) and requests[sent].small):
                channel.settimeout(max(0.001, late_at - time.monotonic()))
                _send(channel, requests[sent].message)
                sent += 1
            reply = _receive(channel, request.room + 1024, late_at)
            why = request.judge(reply, task)
            passed.append(not why)
            if why and not first_why:
                first_why = f"test {number + 1}: {why}"
            if why and stop_early:
                break
    except TimeoutError:
        return Outcome("late", tuple(passed), f"test {len(passed) + 1} ran out of its time")
    except (CodecError, ValueError, TypeError, OSError) as error:
        why = f"test {len(passed) + 1}: the program's box was lost: {error}"
        return Outcome("done", tuple(passed), first_why or why)
    return Outcome("done", tuple(passed), first_why)


class _Request:
    """One run asked of a program's box."""

    def __init__(self, run: Run) -> None:
        self.expected = run.expected
        self.room = 2 * len(run.expected.encode("utf-8", "surrogatepass")) + _MORE_OUTPUT
        self._token = os.urandom(_TOKEN)
        payload = (run.given.encode("utf-8", "surrogatepass"), self.room)
        self.message = self._token + encode(payload)
        self.small = len(self.message) < _SMALL

    def judge(self, reply: bytes, task: CodeTask) -> str:
        """Why the run has not passed; "" if it has. Raises CodecError for what is no reply."""
        if reply[:_TOKEN] != self._token:
            raise CodecError("an answer to no question")
        status, printed = decode(reply[_TOKEN:])
        if type(status) is not int or type(printed) is not bytes:
            raise CodecError("an answer of the wrong types")
        if status != 0:
            return f"the program ended with status {status}"
        if len(printed) >= self.room:
            return "the program printed too much"
        if same_output(printed, self.expected, compare=task.compare, tolerance=task.tolerance):
            return ""
        return "another output"


def _conclude(data: bytes, declared: int) -> Outcome:
    """What the tests' side wrote, which is trusted but may have been lost halfway."""
    try:
        end, passed, why = decode(data[HEADER.size :])
    except (CodecError, ValueError, TypeError):
        return Outcome("lost", (), "the process of the tests ended without an outcome")
    if len(passed) > declared:
        raise VerifierError(f"{declared} tests were declared, {len(passed)} have reported")
    return Outcome(end, tuple(passed), why)


def _send(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(HEADER.pack(len(payload)) + payload)


def _receive(channel: socket.socket, limit: int, deadline: float) -> bytes:
    """One message. Raises TimeoutError, or CodecError where it is too long or ends early."""
    (size,) = HEADER.unpack(_receive_exactly(channel, HEADER.size, deadline))
    if size > limit:
        raise CodecError(f"a message of {size} bytes where {limit} are allowed")
    return _receive_exactly(channel, size, deadline)


def _receive_exactly(channel: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        channel.settimeout(max(0.001, deadline - time.monotonic()))
        part = channel.recv(min(size - len(data), 1 << 20))
        if not part:
            raise CodecError("it ended")
        data += part
    return bytes(data)


def _read_outcome(descriptor: int, seconds: float) -> bytes | None:
    """The one message of a pipe, or what there is of it at its end; None where it takes longer."""
    end = time.monotonic() + seconds
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    data, whole = bytearray(), HEADER.size
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        part = os.read(descriptor, 1 << 16)
        data += part
        if len(data) >= HEADER.size:
            whole = HEADER.size + HEADER.unpack_from(data)[0]
        if not part or len(data) >= whole:
            return bytes(data)
    return None


@functools.cache
def runner(limits: Limits, *, unsafe_local: bool) -> CodeRunner:
    """The runner of this process for these settings; made once, as starting boxes costs time."""
    made = CodeRunner(limits, unsafe_local=unsafe_local)
    atexit.register(made.close)
    return made
