"""The tests' side: runs the tests of a task in a box of its own against a program in another.

A server: for each program it forks a child, which gets a socket to the program and a pipe for
the outcome. The program has neither that pipe nor this memory: the tests, what they expect and
what they conclude are out of its reach.

Runs in a box: see code_codec. It starts once for many programs, but a fork costs by what there
is to copy: hence the same thrift.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _struct
import builtins
import gc
import posix
import time

from brorl.verify.code_codec import MAX_BYTES, decode, encode
from brorl.verify.code_remote import BrokenTests, ProgramLeft, ProgramLost, RemoteProgram
from brorl.verify.code_wire import HEADER, read_exactly, receive, send
from brorl.verify.sandbox_guard import apply_landlock, apply_limits, limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, NoReturn

CONTROL, CODE = 3, 4  # descriptors: see sandbox_keeper
START_S = 30.0  # for the program's box to start, which is no doing of the program
# Modules that tests use without importing them: no program may stand in for one.
MODULES = {
    "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools",
    "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "typing",
}  # fmt: skip


def main() -> None:
    """Serve jobs until the other end hangs up."""
    posix.close(CODE)
    control = _socket.socket(fileno=CONTROL)
    config = decode(receive(CONTROL, MAX_BYTES))
    apply_limits(**config["limits"])
    if config["landlock"]:
        apply_landlock(["/tmp", "/dev/shm"])
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    _compile("")  # its first call is slow, and children inherit what it sets up
    gc.freeze()
    while True:
        header, ancillary, _, _ = control.recvmsg(HEADER.size, _socket.CMSG_SPACE(8))
        if len(header) < HEADER.size:
            return
        ((_, _, numbers),) = ancillary
        channel, outcome = _struct.unpack("2i", numbers)
        (size,) = HEADER.unpack(header)
        job = read_exactly(CONTROL, size)
        if posix.fork() == 0:
            posix.close(CONTROL)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            Job(channel, outcome, decode(job)).run()
        posix.close(channel)
        posix.close(outcome)


class Job:
    """The tests of one task against one program. Always ends by writing one outcome."""

    def __init__(self, channel: int, outcome: int, task: dict[str, Any]) -> None:
        """Take over both descriptors.

        Args:
            channel: socket to the program.
            outcome: pipe for ("done" | "late" | "unreadable" | "lost" | "broken", passed, why).
            task: setup (source), tests (sources), entry_point (str or None), test_s and total_s
                (seconds of wall clock), stop_early (whether one failure ends it).
        """
        self.program = RemoteProgram(channel)
        self.passed: list[bool] = []
        self.why = ""
        self._outcome = outcome
        self._task = task
        self._space: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
        self._end = time.monotonic() + START_S

    def run(self) -> NoReturn:
        """All of it, to the end of the process."""
        try:
            _signal.signal(_signal.SIGALRM, self._late)
            limit("RLIMIT_CPU", int(self._task["total_s"]) + 10)
            _signal.setitimer(_signal.ITIMER_REAL, START_S)
            compiled = [_compile(source) for source in (self._task["setup"], *self._task["tests"])]
            wanted = self._wanted(free_names(compiled))
            token = self.program.post("borrow", sorted(wanted))  # answered once it is loaded
            if self.program.greet():
                self._end = time.monotonic() + self._task["total_s"]
                end = self._run_tests(compiled, wanted, token)
            else:
                end, self.why = "lost", "the box of the program did not start"
        except BrokenTests as error:
            end, self.why = "broken", str(error)
        except BaseException as error:  # a process boundary: becomes data
            end, self.why = "broken", f"{type(error).__name__}: {error}"
        self._write(end)

    def _wanted(self, names: set[str]) -> set[str]:
        """The names that the program may lend: the entry point, and what is nobody's else."""
        entry = self._task["entry_point"]
        for name in MODULES & names - {entry}:
            self._space[name] = __import__(name)
        if "random" in names:
            __import__("random").seed(0)  # the same tests for every program
        taken = MODULES | set(dir(builtins)) | set(self._space)
        return names - taken | ({entry} if entry else set())

    def _run_tests(self, compiled: list[CodeType], wanted: set[str], token: bytes) -> str:
        self._start_clock()
        state, self.why = self.program.state()
        if state != "loaded":
            return "unreadable" if state == "unreadable" else "done"
        self.why = self._prepare(compiled[0], wanted, token)
        if self.why:
            return "done"
        for number, test in enumerate(compiled[1:], start=1):
            if number > 1:
                self._start_clock()
            why = self._attempt(test, dict(self._space))
            self.passed.append(not why)
            if why and not self.why:
                self.why = f"test {number}: {why}"
            if self.program.lost or (why and self._task["stop_early"]):
                break
        return "done"

    def _prepare(self, setup: CodeType, wanted: set[str], token: bytes) -> str:
        """Names of the program and of the setup into the space; why that cannot be, if so."""

        def borrow() -> None:
            lent, _ = self.program.collect(token)
            self._space.update({name: lent[name] for name in wanted & set(lent)})

        if why := self._guard(borrow):
            return why
        entry = self._task["entry_point"]
        if entry and entry not in self._space:
            return f"the program does not define {entry}"
        why = self._attempt(setup, self._space)
        return f"setup: {why}" if why else ""

    def _attempt(self, code: CodeType, space: dict[str, Any]) -> str:
        return self._guard(lambda: exec(code, space)) or self.program.lost

    def _guard(self, action: Any) -> str:
        """Why an action failed by the program's doing; "" where it did not.

        Raises:
            BrokenTests: it failed by no doing of the program.
        """
        try:
            action()
        except BrokenTests:
            raise
        except AssertionError:
            return "assertion failed"
        except (ProgramLost, ProgramLeft) as error:
            return str(error)
        except ImportError as error:
            if getattr(error, "from_program", False):
                return _describe(error)
            raise BrokenTests(f"the tests cannot import what they need: {error}") from None
        except BaseException as error:  # whatever a test raises, it has not passed
            return _describe(error)
        return ""

    def _start_clock(self) -> None:
        left = self._end - time.monotonic()
        _signal.setitimer(_signal.ITIMER_REAL, max(0.001, min(left, self._task["test_s"])))

    def _late(self, number: int, frame: FrameType | None) -> None:
        self.why = f"test {len(self.passed) + 1} ran out of its time"
        self._write("late")

    def _write(self, end: str) -> NoReturn:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        send(self._outcome, encode((end, self.passed, self.why[:300])))
        posix._exit(0)


def _compile(source: str) -> CodeType:
    try:
        return compile(source, "<tests>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise BrokenTests(f"the tests do not compile: {error}") from None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def free_names(codes: list[CodeType]) -> set[str]:
    """Every name that the codes, or functions in them, may look up outside themselves."""
    names: set[str] = set()
    todo = list(codes)
    while todo:
        code = todo.pop()
        names.update(code.co_names)
        todo += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return names
