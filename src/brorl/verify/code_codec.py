"""Values as bytes and back, between a program and the tests that call it.

Plain types arrive as what they were: None, bool, int, float, complex, str, bytes, bytearray,
list, tuple, set, frozenset, dict, range, deque, Decimal, Fraction; and so do these types
themselves, where they are built in. An instance of a subclass arrives as one of the type.
Anything else stays where it is and travels as a number (a handle). Decoding builds values and
nothing else: it imports and calls nothing that the sender names, and refuses what is malformed,
so a hostile sender gains nothing by it.

Runs inside boxes too, where every import costs time for each program: hence so few.
"""

from __future__ import annotations

import _struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Handle = Callable[[object], tuple[int, int]]  # an object that stays -> (number, flags)
    Resolve = Callable[[int, int], object]  # (number, flags) -> what stands for it here

MAX_DEPTH = 200
MAX_BYTES = 16 << 20  # of one message
CALLABLE, ITERATOR = 1, 2  # flags of a handle

_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, _struct.error)  # type: ignore[attr-defined]
_COUNT = _struct.Struct("<Q")
_FLOAT = _struct.Struct("<d")
_REFERENCE = _struct.Struct("<QB")
_TAGS = {
    bool: b"T", int: b"i", float: b"f", complex: b"c", str: b"s", bytes: b"b", bytearray: b"B",
    list: b"l", tuple: b"t", set: b"S", frozenset: b"Z", dict: b"d", range: b"R",
}  # fmt: skip
_LIBRARY_TAGS = {"collections.deque": b"q", "decimal.Decimal": b"D", "fractions.Fraction": b"Q"}
_NAMED = {kind.__name__: kind for kind in _TAGS}
_ITERATE: dict[bytes, Any] = {
    b"l": list.__iter__, b"t": tuple.__iter__, b"S": set.__iter__, b"Z": frozenset.__iter__,
}  # fmt: skip


class CodecError(Exception):
    """A value that cannot be sent, or bytes that are no value."""


def encode(value: object, handle: Handle | None = None) -> bytes:
    """The bytes of a value.

    Args:
        value: anything; cycles and values nested more than MAX_DEPTH deep are refused.
        handle: takes in objects of other types; None refuses them.

    Raises:
        CodecError: see above, or more than MAX_BYTES bytes.
    """
    parts: list[bytes] = []
    _write(value, parts, handle, MAX_DEPTH)
    data = b"".join(parts)
    if len(data) > MAX_BYTES:
        raise CodecError(f"a value may have {MAX_BYTES} bytes, got {len(data)}")
    return data


def decode(data: bytes, resolve: Resolve | None = None) -> Any:
    """The value of the bytes.

    Raises:
        CodecError: not the bytes of exactly one value.
    """
    try:
        value, end = _read(data, 0, resolve, MAX_DEPTH)
    except _MALFORMED as error:
        raise CodecError(f"malformed value: {error}") from None
    if end != len(data):
        raise CodecError(f"malformed value: {len(data) - end} bytes too many")
    return value


def _tag(kind: type) -> bytes:
    """Tag of a type or of the nearest ancestor that has one. `__class__` is not asked."""
    for ancestor in type.mro(kind):
        name = f"{ancestor.__module__}.{ancestor.__qualname__}"
        tag = _TAGS.get(ancestor) or _LIBRARY_TAGS.get(name)
        if tag:
            return tag
    return b"o"


def _write(value: Any, parts: list[bytes], handle: Handle | None, depth: int) -> None:
    """Append the bytes of a value. Base-class methods, lest a subclass answer for itself."""
    if value is None:
        parts.append(b"N")
        return
    if depth == 0:
        raise CodecError(f"a value may be nested {MAX_DEPTH} deep")
    tag = _TAGS.get(type(value)) or _tag(type(value))
    depth -= 1
    if tag == b"T":
        parts.append(b"T" if value else b"F")
    elif tag == b"i":
        size = int.bit_length(value) // 8 + 1
        parts += (tag, _COUNT.pack(size), int.to_bytes(value, size, "little", signed=True))
    elif tag == b"f":
        parts += (tag, _FLOAT.pack(value))
    elif tag in b"sbBD":
        if tag == b"s":
            raw = str.encode(value, "utf-8", "surrogatepass")
        else:
            raw = str(value).encode() if tag == b"D" else memoryview(value).tobytes()
        parts += (tag, _COUNT.pack(len(raw)), raw)
    elif tag in b"ltSZq":
        items = list(_ITERATE[tag](value) if tag != b"q" else value)
        parts += (tag, _COUNT.pack(len(items)))
        for item in items:
            _write(item, parts, handle, depth)
    elif tag == b"d":
        pairs = list(dict.items(value))
        parts += (tag, _COUNT.pack(len(pairs)))
        for key, item in pairs:
            _write(key, parts, handle, depth)
            _write(item, parts, handle, depth)
    elif tag == b"c":
        parts += (tag, _FLOAT.pack(value.real), _FLOAT.pack(value.imag))
    elif tag in b"RQ":
        parts.append(tag)
        whole = (value.start, value.stop, value.step) if tag == b"R" else value.as_integer_ratio()
        for item in whole:
            _write(item, parts, handle, depth)
    elif isinstance(value, type) and value in _TAGS:
        name = value.__name__.encode()
        parts += (b"n", _COUNT.pack(len(name)), name)
    elif handle is None:
        raise CodecError(f"a value of type {type(value).__name__} cannot be sent")
    else:
        parts += (tag, _REFERENCE.pack(*handle(value)))


def _read(data: bytes, at: int, resolve: Resolve | None, depth: int) -> tuple[Any, int]:
    """(value, where the next one begins)."""
    if depth == 0:
        raise CodecError(f"a value may be nested {MAX_DEPTH} deep")
    depth -= 1
    tag, at = data[at : at + 1], at + 1
    if tag == b"N":
        return None, at
    if tag in (b"T", b"F"):
        return tag == b"T", at
    if tag == b"f":
        return _FLOAT.unpack_from(data, at)[0], at + 8
    if tag == b"c":
        return complex(*_struct.unpack_from("<2d", data, at)), at + 16
    if tag == b"o" and resolve is not None:
        return resolve(*_REFERENCE.unpack_from(data, at)), at + _REFERENCE.size
    if tag in (b"R", b"Q"):
        parts = []
        for _ in range(3 if tag == b"R" else 2):
            part, at = _read(data, at, None, 1)
            if type(part) is not int:
                raise CodecError("malformed value: not an int")
            parts.append(part)
        return (range(*parts) if tag == b"R" else _library(tag)(*parts)), at
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if count > len(data) - at:
        raise CodecError(f"malformed value: {count} of something in {len(data) - at} bytes")
    if tag in (b"i", b"s", b"b", b"B", b"D", b"n"):
        raw, at = data[at : at + count], at + count
        if tag == b"i":
            return int.from_bytes(raw, "little", signed=True), at
        if tag == b"s":
            return raw.decode("utf-8", "surrogatepass"), at
        if tag == b"D":
            return _library(tag)(raw.decode()), at
        if tag == b"n":
            return _NAMED[raw.decode()], at
        return (raw if tag == b"b" else bytearray(raw)), at
    if tag == b"d":
        pairs = {}
        for _ in range(count):
            key, at = _read(data, at, resolve, depth)
            pairs[key], at = _read(data, at, resolve, depth)
        return pairs, at
    if tag not in (b"l", b"t", b"S", b"Z", b"q"):
        raise CodecError(f"malformed value: no type has the tag {tag!r}")
    items = []
    for _ in range(count):
        item, at = _read(data, at, resolve, depth)
        items.append(item)
    if tag == b"l":
        return items, at
    if tag == b"q":
        return _library(tag)(items), at
    return {b"t": tuple, b"S": set, b"Z": frozenset}[tag](items), at


def _library(tag: bytes) -> Any:
    """The type of a tag, imported when the first such value comes."""
    if tag == b"q":
        from collections import deque

        return deque
    if tag == b"D":
        from decimal import Decimal

        return Decimal
    from fractions import Fraction

    return Fraction
