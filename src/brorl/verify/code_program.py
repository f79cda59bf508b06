"""The program's side: loads a program in a box and does what it is asked to, call by call.

It never learns an expected result. It need not be trusted either: all it can say is what the
program returns, and a program that takes it over can say no more than that.

Runs in a box: see code_codec.
"""

from __future__ import annotations

import builtins
import posix
import sys

from brorl.verify.code_codec import CALLABLE, ITERATOR, MAX_BYTES, decode, encode
from brorl.verify.code_wire import WireError, receive, send
from brorl.verify.sandbox_guard import apply_landlock, apply_limits, limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn

CHANNEL, CODE = 3, 4  # descriptors: see sandbox_keeper
TOKEN = 8  # bytes before each request that its answer repeats
CANNOT_COMPILE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def main() -> None:
    """Serve until the other end hangs up."""
    posix.close(CODE)
    config = decode(receive(CHANNEL, MAX_BYTES))
    file_bytes = config["limits"]["file_bytes"]
    if config["kind"] == "stdin":  # this process writes inputs; its children get the bound
        config["limits"]["file_bytes"] = max(file_bytes, 64 << 20)
    apply_limits(**config["limits"])
    if config["landlock"]:
        apply_landlock(["/tmp", "/dev/shm"])
    _furnish()
    send(CHANNEL, b"hello")
    serve = _serve_runs if config["kind"] == "stdin" else _serve_calls
    try:
        serve(config["preamble"], config["code"], file_bytes)
    except WireError:
        return


def _furnish() -> None:
    """What a program started by hand would find: exit() and quit(), a name, no environment."""

    def leave(code: Any = None) -> None:
        raise SystemExit(code)

    builtins.exit = builtins.quit = leave  # type: ignore[assignment]
    sys.argv[:] = ["program.py"]
    sys.path[:] = [place for place in sys.path if place]
    posix.environ.clear()
    if "os" in sys.modules:
        sys.modules["os"].environ.clear()


def _message(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except BaseException:  # of the program's own class, whose __str__ may do anything
        return ""


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {_message(error)}"


def _serve_runs(preamble: str, code: str, file_bytes: int) -> None:
    """For each input: a child that runs the program; its exit status and what it has printed.

    Input and output are files, so that neither side waits for the other and a process that the
    program leaves behind holds nothing open.
    """
    given_names = compile(preamble, "<preamble>", "exec", dont_inherit=True)
    try:
        program = compile(code, "<program>", "exec", dont_inherit=True)
    except CANNOT_COMPILE as error:
        send(CHANNEL, encode(("unreadable", _describe(error))))
        return
    send(CHANNEL, encode(("loaded", "")))
    while True:
        request = receive(CHANNEL, 2 * MAX_BYTES)
        given, output_limit = decode(request[TOKEN:])
        source, sink = posix.memfd_create("stdin"), posix.memfd_create("stdout")
        rest = memoryview(given)
        while rest:
            rest = rest[posix.write(source, rest) :]
        posix.lseek(source, 0, 0)
        child = posix.fork()
        if child == 0:
            posix.dup2(source, 0)
            posix.dup2(sink, 1)
            for number in (source, sink, CHANNEL):
                posix.close(number)
            limit("RLIMIT_FSIZE", file_bytes)
            _run_as_main([given_names, program])
        _, status = posix.waitpid(child, 0)
        printed = posix.pread(sink, output_limit, 0)
        posix.close(source)
        posix.close(sink)
        reply = encode((posix.waitstatus_to_exitcode(status), printed))
        send(CHANNEL, request[:TOKEN] + reply)


def _run_as_main(codes: list[CodeType]) -> NoReturn:
    """Run to the end of the process.

    What the interpreter would do at its end is done here as far as a program can tell, because
    taking down a forked interpreter costs several times the fork.
    """
    space = sys.modules["__main__"].__dict__
    space.clear()
    space.update(__name__="__main__", __builtins__=builtins, __doc__=None, __file__="program.py")
    status = 0
    try:
        for code in codes:
            exec(code, space)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        status = 1
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # waits for threads that are no daemons
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
        space.clear()  # closes what a program has left open
        for stream in (sys.stdout, sys.__stdout__):
            if stream is not None:
                stream.flush()
    except BaseException:
        status = status or 120  # what the interpreter says when it cannot flush
    posix._exit(status & 0xFF)


def _serve_calls(preamble: str, code: str, file_bytes: int) -> None:
    """Load the program as a module, then do as asked with what it defines.

    Text is run as it is, for the first call of `compile` alone takes as long as ten small
    programs; an error without a frame of the program in it is one of compiling.
    """
    module = type(sys)("program")
    sys.modules["program"] = module
    try:
        exec(preamble, module.__dict__)
        exec(code, module.__dict__)
    except BaseException as error:  # SystemExit is one of the ways to fail
        compiled = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        unreadable = not compiled and isinstance(error, CANNOT_COMPILE)
        send(CHANNEL, encode(("unreadable" if unreadable else "raised", _describe(error))))
        return
    send(CHANNEL, encode(("loaded", "")))
    kept: list[object] = []
    numbers: dict[int, int] = {}

    def handle(value: object) -> tuple[int, int]:
        number = numbers.get(id(value))
        if number is None:
            number = numbers[id(value)] = len(kept)
            kept.append(value)
        flags = CALLABLE if callable(value) else 0
        return number, flags | (ITERATOR if hasattr(type(value), "__next__") else 0)

    while True:
        request = receive(CHANNEL, MAX_BYTES + TOKEN)
        asked = decode(request[TOKEN:], lambda number, flags: kept[number])
        try:
            reply = encode(("value", *_answer(module.__dict__, *asked)), handle)
        except Exception as error:
            reply = encode(("raised", type(error).__name__, _message(error)))
        except BaseException as error:
            reply = encode(("left", type(error).__name__, ""))
        send(CHANNEL, request[:TOKEN] + reply)


def _answer(space: dict[str, Any], verb: str, target: Any, *rest: Any) -> tuple[Any, Any]:
    """(value, arguments as they are afterwards, of a call that returned None)."""
    if verb == "call":
        value = target(*rest[0], **rest[1])
        return value, rest if value is None else None
    if verb == "borrow":
        return {name: space[name] for name in target if name in space}, None
    if verb == "get":
        return getattr(target, rest[0]), None
    if verb == "set":
        setattr(target, rest[0], rest[1])
        return None, None
    if verb == "item":
        return target[rest[0]], None
    if verb == "put":
        target[rest[0]] = rest[1]
        return None, None
    simple: dict[str, Any] = {"len": len, "iter": iter, "next": next, "str": str, "bool": bool}
    return simple[verb](target), None
