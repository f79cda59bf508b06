"""The samples of an evaluation on disk: appended as they finish, so that a kill loses none.

The first line says how they were sampled; a file of other settings is refused, never mixed. Texts
stay on disk and are read back a problem at a time: 16 answers of 32k tokens to thousands of
problems do not fit in memory.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from brorl.errors import DataError

FORMAT, VERSION = "brorl-samples", 1


class Sample(NamedTuple):
    """One sampled answer."""

    text: str
    tokens: int
    truncated: bool


class SampleFile:
    """An append-only JSON Lines file: a header, then a line a sample. A context manager."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Open or begin the file; what a kill left of a last line is cut off.

        Args:
            path: of the file; its folder exists.
            header: plain values that decide the samples. An older file must have equal ones.

        Raises:
            DataError: the file was sampled under another header (the first difference is named),
                or a line of it cannot be read.
        """
        self._path = path
        self._at: dict[tuple[str, str], dict[int, int]] = {}  # sample index to byte offset
        wanted = {"format": FORMAT, "version": VERSION, **header}
        self._file = path.open("a+b")
        try:
            self._cut_last_line()
            if not self._read_all(wanted):
                self._write([wanted])
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def missing(self, suite: str, problem_id: str, n: int) -> list[tuple[int, int]]:
        """Runs (first, count) of the samples 0 ... n - 1 that are not there yet."""
        have = self._at.get((suite, problem_id), {})
        runs: list[tuple[int, int]] = []
        for i in range(n):
            if i in have:
                continue
            if runs and sum(runs[-1]) == i:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((i, 1))
        return runs

    def append(self, suite: str, problem_id: str, first: int, samples: Sequence[Sample]) -> None:
        """Write samples `first`, `first` + 1, ... of a problem, and hand them to the system."""
        lines = [
            {"suite": suite, "id": problem_id, "sample": i, **sample._asdict()}
            for i, sample in enumerate(samples, start=first)
        ]
        for line, offset in zip(lines, self._write(lines), strict=True):
            self._index(line, offset, "appending")

    def read(self, suite: str, problem_id: str, n: int) -> list[Sample]:
        """Samples 0 ... n - 1 of a problem, in order. All of them must be there."""
        have = self._at[suite, problem_id]
        samples = []
        for i in range(n):
            self._file.seek(have[i])
            line = json.loads(self._file.readline())
            samples.append(Sample(line["text"], line["tokens"], line["truncated"]))
        return samples

    def sync(self) -> None:
        """Make what was appended survive a loss of power."""
        os.fsync(self._file.fileno())

    def _cut_last_line(self) -> None:
        """A line without its end was being written when the process died."""
        size = self._file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 65_536)
            self._file.seek(start)
            block = self._file.read(end - start)
            if (at := block.rfind(b"\n")) >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            self._file.truncate(end)

    def _read_all(self, wanted: Mapping[str, Any]) -> bool:
        """Index every sample; False for an empty file."""
        self._file.seek(0)
        offset, number = 0, 0
        for number, raw in enumerate(self._file, start=1):
            where = f"{self._path}:{number}"
            try:
                line = json.loads(raw)
            except ValueError as error:
                raise DataError(f"{where}: not JSON: {error}") from error
            if number == 1:
                _same_header(line, wanted, self._path)
            else:
                self._index(line, offset, where)
            offset += len(raw)
        return number > 0

    def _index(self, line: Any, offset: int, where: str) -> None:
        try:
            suite, problem_id, sample = str(line["suite"]), str(line["id"]), int(line["sample"])
            Sample(str(line["text"]), int(line["tokens"]), bool(line["truncated"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{where}: not a sample: {error!r}") from error
        have = self._at.setdefault((suite, problem_id), {})
        if sample in have:
            raise DataError(f"{where}: sample {sample} of problem {problem_id} is there twice")
        have[sample] = offset

    def _write(self, lines: Sequence[Mapping[str, Any]]) -> list[int]:
        """Append lines; their byte offsets."""
        offset = self._file.seek(0, os.SEEK_END)
        offsets, raw = [], []
        for line in lines:
            raw.append(json.dumps(line).encode() + b"\n")
            offsets.append(offset)
            offset += len(raw[-1])
        self._file.write(b"".join(raw))
        self._file.flush()
        return offsets


def _same_header(found: Any, wanted: Mapping[str, Any], path: Path) -> None:
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{path}: not a file of samples; choose another folder")
    ours, theirs = _flat(wanted), _flat(found)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise DataError(
                f"{path} holds samples of other settings, {name} {theirs.get(name)!r:.80} instead "
                f"of {ours.get(name)!r:.80}; choose another --out"
            )


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= _flat(inner, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = inner
    return flat
