"""Tasks from a user's own rows: JSON Lines, JSON, Parquet or a hub data set."""

import hashlib
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from brorl.errors import ConfigError, DataError
from brorl.tasks.problem import Problem, Split
from brorl.tasks.tables import TableRow, read_table
from brorl.tasks.text import leak_key, question_key
from brorl.verify.extract import find_boxes
from brorl.verify.protocol import Verifier


@runtime_checkable
class GoldReader(Protocol):
    """What a verifier offers if it can tell beforehand that it will not understand a gold."""

    def unreadable(self, gold: str | None, row: Mapping[str, Any]) -> str | None:
        """Why this gold cannot be used, None if it can."""
        ...


@runtime_checkable
class GoldWriter(Protocol):
    """What a verifier offers if it knows how a policy should write an answer."""

    def write(self, gold: str, row: Mapping[str, Any]) -> str:
        """A text from which `extract` gets the gold."""
        ...


@dataclass(frozen=True, slots=True)
class FileCounts:
    """What became of the rows.

    read = train + evaluated + set_aside + duplicates + equal_to_eval.
    """

    read: int
    train: int
    evaluated: int
    set_aside: int  # the verifier cannot read their gold
    duplicates: int  # same question as an earlier row of the same split
    equal_to_eval: int  # training rows dropped for being held-out questions too


class FileTask:
    """Prompts and golds from named fields of data files, judged by a given verifier."""

    def __init__(
        self,
        name: str,
        *,
        train: str | None,
        evaluation: str | None,
        held_out: float,
        prompt: str,
        answer: str,
        verifier: Verifier,
    ) -> None:
        """Read everything and check every row.

        Args:
            name: of the task, for tables.
            train: see `read_table`; None if there is nothing to train on.
            evaluation: held-out rows; None to hold out a part of the training rows.
            held_out: in [0, 1): without `evaluation`, the share of training rows to hold out.
                Which ones is decided by a hash of the question, so that adding rows moves none.
            prompt: field with the prompt.
            answer: field with the gold: text, a number, or a list with one of them; or
                "boxed(FIELD)", what the last box of that field's text holds. Not read if the
                verifier needs no gold (`needs_gold = False`).
            verifier: judges the answers. If it has `unreadable`, rows whose gold it cannot read
                are set aside; if it has `write`, its text is the worked answer of a problem.

        Raises:
            ConfigError: neither train nor evaluation, or held_out outside [0, 1).
            DataError: a file or row that cannot be used, with its place.
        """
        if train is None and evaluation is None:
            raise ConfigError("need data.train or data.eval, got neither")
        if not 0 <= held_out < 1:
            raise ConfigError(f"data.held_out must be in [0, 1), got {held_out}")
        self.name = name
        self._prompt, self._answer, self._verifier = prompt, answer, verifier
        self._counts = {"read": 0, "set_aside": 0, "duplicates": 0, "equal_to_eval": 0}
        rows = self._read(train, "train") if train else []
        if evaluation:
            held = self._read(evaluation, "eval")
        else:
            held = [p for p in rows if _share(p.prompt) < held_out]
            rows = [p for p in rows if not _share(p.prompt) < held_out]
        held = self._unique(held)
        held_keys = {leak_key(p.prompt) for p in held}
        kept = [p for p in rows if leak_key(p.prompt) not in held_keys]
        self._counts["equal_to_eval"] += len(rows) - len(kept)
        self._train, self._eval = tuple(self._unique(kept)), tuple(held)
        if train and not self._train:
            raise DataError(f"{train}: no training row is left of {self._counts['read']}")
        if evaluation and not self._eval:
            raise DataError(f"{evaluation}: no held-out row is left")

    @property
    def verifier(self) -> Verifier:
        return self._verifier

    @property
    def counts(self) -> FileCounts:
        """What became of the rows."""
        return FileCounts(train=len(self._train), evaluated=len(self._eval), **self._counts)

    def problems(self, split: Split) -> Sequence[Problem]:
        """`warmstart` is the training rows that have a worked answer."""
        if split == "eval":
            return self._eval
        if split == "train":
            return self._train
        return tuple(p for p in self._train if p.worked is not None)

    def _read(self, source: str, part: str) -> list[Problem]:
        problems: list[Problem] = []
        unreadable: list[str] = []
        rows = read_table(source)
        self._counts["read"] += len(rows)
        for row in rows:
            problem = self._problem(row, part)
            if isinstance(self._verifier, GoldReader) and (
                why := self._verifier.unreadable(problem.gold, problem.row)
            ):
                unreadable.append(f"{row.where}: {why}")
            else:
                problems.append(problem)
        if unreadable:
            self._counts["set_aside"] += len(unreadable)
            warnings.warn(
                f"{source}: {len(unreadable)} of {len(rows)} rows set aside, their gold cannot be "
                f"read; first: {unreadable[0]}",
                stacklevel=3,
            )
        return problems

    def _problem(self, row: TableRow, part: str) -> Problem:
        prompt = _field(row, self._prompt)
        if not isinstance(prompt, str) or not prompt.strip():
            raise DataError(f"{row.where}: field {self._prompt!r} must be text, got {prompt!r:.60}")
        gold = None
        if getattr(self._verifier, "needs_gold", True):
            gold = _gold(row, self._answer)
        values = plain(row.values)
        worked = None
        if gold is not None and isinstance(self._verifier, GoldWriter):
            worked = self._verifier.write(gold, values)
        number = row.where.rpartition(":")[2]
        return Problem(f"{self.name}/{part}/{number}", prompt, gold, worked, values, self.name)

    def _unique(self, problems: list[Problem]) -> list[Problem]:
        """The first of equal questions; the rest is counted and warned about."""
        first: dict[str, Problem] = {}
        for problem in problems:
            first.setdefault(question_key(problem.prompt), problem)
        if repeated := len(problems) - len(first):
            self._counts["duplicates"] += repeated
            warnings.warn(
                f"{self.name}: {repeated} of {len(problems)} rows repeat a question, dropped",
                stacklevel=3,
            )
        return list(first.values())


def plain(value: Any) -> Any:
    """The same data in JSON types; other scalars (dates, decimals, bytes) become their text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


def _field(row: TableRow, name: str) -> Any:
    if name not in row.values:
        raise DataError(
            f"{row.where}: no field {name!r}; it has {', '.join(sorted(row.values))}; say which is "
            "the prompt and which the answer with data.prompt and data.answer"
        )
    return row.values[name]


_BOXED = re.compile(r"boxed\((\w+)\)")


def _gold(row: TableRow, name: str) -> str:
    """A gold as text: 27.0 stays "27.0"; a list with one entry counts as that entry."""
    boxed = _BOXED.fullmatch(name)
    value = _field(row, boxed[1] if boxed else name)
    if boxed and isinstance(value, str):
        boxes = find_boxes(value).complete
        if not boxes:
            raise DataError(f"{row.where}: field {boxed[1]!r} has no \\boxed{{...}}")
        return boxes[-1].content
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int) and not isinstance(value, bool):
        return repr(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str) and value.strip():
        return value
    raise DataError(f"{row.where}: field {name!r} must be text or a number, got {value!r:.60}")


def _share(prompt: str) -> float:
    """A number in [0, 1) that depends on the question alone."""
    digest = hashlib.blake2b(question_key(prompt).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
