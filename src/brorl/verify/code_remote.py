"""A program seen from its tests: names and objects of another process, used as if they were here.

What comes from the program is decoded into plain values or into stand-ins (`Remote`), whose
comparisons are made on this side and never by the program.

Runs in a box: see code_codec.
"""

from __future__ import annotations

import builtins
import posix

from brorl.verify.code_codec import ITERATOR, MAX_BYTES, CodecError, decode, encode
from brorl.verify.code_wire import WireError, receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

TOKEN = 8  # bytes, see code_program


class ProgramLost(BaseException):
    """The program ended, or its channel carries what is no answer."""


class ProgramLeft(BaseException):
    """A call raised SystemExit or the like, which no `except Exception` of a test shall eat."""


class ProgramError(Exception):
    """A call raised an exception that is none of Python's own."""


class BrokenTests(Exception):
    """The tests themselves cannot be run: no answer's doing."""


class Remote:
    """An object of the program, which stays there.

    Calls, attributes, items, iteration, len(), str() and truth are asked of the program. Equality
    is not: two stand-ins are equal when they stand for one object, and a stand-in equals nothing
    else, so that an object that claims to equal everything equals nothing.
    """

    __slots__ = ("number__", "remote__")

    def __init__(self, program: RemoteProgram, number: int) -> None:
        object.__setattr__(self, "remote__", program)
        object.__setattr__(self, "number__", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.remote__.call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return self.remote__.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.remote__.ask("set", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self.remote__.ask("item", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.remote__.ask("put", self, key, value)

    def __iter__(self) -> Iterator[Any]:
        found = self.remote__.ask("iter", self)
        return found if isinstance(found, RemoteIterator) else iter(found)

    def __len__(self) -> int:
        return int(_typed(int, self.remote__.ask("len", self)))

    def __bool__(self) -> bool:
        return bool(_typed(bool, self.remote__.ask("bool", self)))

    def __str__(self) -> str:
        return str(_typed(str, self.remote__.ask("str", self)))


class RemoteIterator(Remote):
    """The same for what has a next item."""

    __slots__ = ()

    def __next__(self) -> Any:
        return self.remote__.ask("next", self)


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"the program must answer with {kind.__name__}, got {type(value).__name__}")
    return value


class RemoteProgram:
    """The channel to a program."""

    def __init__(self, channel: int) -> None:
        self.lost = ""
        self._channel = channel
        self._known: dict[int, Remote] = {}

    def greet(self) -> bool:
        """Wait for the program's box; whether it has started."""
        try:
            return receive(self._channel, 64) == b"hello"
        except WireError:
            return False

    def state(self) -> tuple[str, str]:
        """How loading it went: "loaded", "unreadable", "raised" or "lost"; and why."""
        try:
            state, why = decode(receive(self._channel, MAX_BYTES))
        except (WireError, CodecError, ValueError, TypeError):
            return "lost", "the program ended while it was loaded"
        return str(state), str(why)

    def ask(self, verb: str, target: Any, *rest: Any) -> Any:
        """Have the program do one thing; its value, or its exception raised here."""
        return self.collect(self.post(verb, target, *rest))[0]

    def call(self, target: Remote, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call. One that returns None may have worked in place: then its arguments change."""
        value, after = self.collect(self.post("call", target, args, kwargs))
        if value is None and after is not None:
            try:
                args_after, kwargs_after = after
                pairs = [*zip(args, args_after, strict=True)]
                pairs += [(kwargs[name], kwargs_after[name]) for name in kwargs]
            except (TypeError, ValueError, KeyError):
                raise self._lose("its arguments came back malformed") from None
            for old, new in pairs:
                _overwrite(old, new)
        return value

    def post(self, *request: Any) -> bytes:
        """Send a request; what `collect` wants. Answers come in the order of the requests.

        Raises:
            BrokenTests: an argument is of a type that cannot be sent, and only tests make such.
            CodecError: it is too deep or too long, which the program may have made it.
        """
        token = posix.urandom(TOKEN)
        question = encode(request, self._handle)
        try:
            send(self._channel, token + question)
        except WireError as error:
            self.lost = self.lost or str(error)
        return token

    def collect(self, token: bytes) -> tuple[Any, Any]:
        """The answer to a request: a value, and for some calls what became of the arguments."""
        if self.lost:
            raise ProgramLost(self.lost)
        try:
            reply = receive(self._channel, MAX_BYTES + TOKEN)
            if reply[:TOKEN] != token:
                raise CodecError("an answer to no question")
            outcome, value, detail = decode(reply[TOKEN:], self._resolve)
        except (WireError, CodecError, ValueError, TypeError) as error:
            raise self._lose(str(error)) from None
        if outcome == "value":
            return value, detail
        if outcome == "left":
            raise ProgramLeft(f"the program raised {value}")
        raise _exception(str(value), str(detail))

    def _lose(self, why: str) -> ProgramLost:
        self.lost = why
        return ProgramLost(why)

    def _handle(self, value: object) -> tuple[int, int]:
        if isinstance(value, Remote):
            return value.number__, 0
        kind = type(value).__name__
        raise BrokenTests(f"an argument of type {kind} cannot be sent to a program")

    def _resolve(self, number: int, flags: int) -> Remote:
        if number not in self._known:
            kind = RemoteIterator if flags & ITERATOR else Remote
            self._known[number] = kind(self, number)
        return self._known[number]


def _overwrite(old: Any, new: Any) -> None:
    if type(old) is not type(new):
        return
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)


def _exception(name: str, message: str) -> Exception:
    """The exception that the program raised: of the same built-in class, or a ProgramError."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = ProgramError
    try:
        error = kind(f"{name}: {message}" if kind is ProgramError else message)
    except TypeError:  # a class that wants more than a message
        error = ProgramError(f"{name}: {message}")
    error.from_program = True  # type: ignore[attr-defined]
    return error
