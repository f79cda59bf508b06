"""Rows from JSON Lines, JSON, Parquet and hub data sets, each with the place it came from."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from brorl.errors import DataError


class TableRow(NamedTuple):
    """One row and where a message should point to."""

    where: str  # "file:line" for text files, "file:row" otherwise; both count from 1
    values: dict[str, Any]


def read_table(source: str) -> list[TableRow]:
    """Every row of a file or of a hub data set, in order.

    Args:
        source: a path ending in .jsonl, .json (one array), .parquet, or the first two with .gz;
            or "hub:OWNER/NAME[@SPLIT]", split "train" if not given.

    Raises:
        DataError: missing, empty or unreadable, with file and line.
    """
    if source.startswith("hub:"):
        rows = list(_hub(source))
    else:
        path = Path(source)
        if not path.is_file():
            raise DataError(f"need a data file, there is none at {path}")
        suffix = (
            path.suffixes[-2] if path.suffix == ".gz" and len(path.suffixes) > 1 else path.suffix
        )
        readers = {".jsonl": _json_lines, ".json": _json, ".parquet": _parquet}
        if suffix not in readers:
            raise DataError(
                f"{path}: need .jsonl, .json or .parquet, got {suffix or 'no suffix'!r}"
            )
        rows = list(readers[suffix](path))
    if not rows:
        raise DataError(f"{source}: no rows")
    return rows


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: need UTF-8 text: {error}") from error


def _whole_text(values: dict[str, Any], where: str) -> dict[str, Any]:
    """The row itself, if all its texts are: JSON escapes can spell half of a surrogate pair."""
    try:
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: need whole Unicode text, got half a surrogate") from error
    return values


def _json_lines(path: Path) -> Iterator[TableRow]:
    # Split at newlines only: str.splitlines() also splits at characters that JSON strings may hold.
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            yield TableRow(where, _whole_text(_object(line, where), where))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once: JSON readers take the last of equal ones, or the first.

    Raises:
        ValueError: a key twice; it would silently hide a prompt or a gold.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(k for k in values if sum(key == k for key, _ in pairs) > 1)
        raise ValueError(f"key {twice!r:.80} twice in one object")
    return values


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: need a JSON object, got {type(value).__name__}")
    return value


def _json(path: Path) -> Iterator[TableRow]:
    try:
        values = json.loads(_text(path), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, list):
        raise DataError(f"{path}: need a JSON array of objects, got {type(values).__name__}")
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise DataError(f"{path}:{number}: need a JSON object, got {type(value).__name__}")
        yield TableRow(f"{path}:{number}", _whole_text(value, f"{path}:{number}"))


def _parquet(path: Path) -> Iterator[TableRow]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not Parquet: {error}") from error
    for number, values in enumerate(table.to_pylist(), start=1):
        yield TableRow(f"{path}:{number}", values)


def _hub(source: str) -> Iterator[TableRow]:
    name, _, split = source.removeprefix("hub:").partition("@")
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"{source}: needs the package `datasets`: pip install datasets") from error
    try:
        table = datasets.load_dataset(name, split=split or "train")
    except Exception as error:  # network, authentication, loaders: every library has its own tree
        raise DataError(f"{source}: {type(error).__name__}: {error}") from error
    for number, values in enumerate(table, start=1):
        yield TableRow(f"{source}:{number}", dict(values))
