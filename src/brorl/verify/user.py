"""A user's own verifier: a function (or a Verifier) named by dotted path or by file."""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from brorl.errors import ConfigError, VerifierError
from brorl.verify.verdict import Verdict, correct, grader_error, wrong


@dataclass(frozen=True, slots=True)
class UserVerifier:
    """Calls `function(gold=..., answer=..., row=...)`, or a Verifier's own two methods.

    Only the name travels to a grader process, which loads the code itself: a function from a
    file cannot be pickled. Build it with `load_verifier`, which checks the name first.

    Attributes:
        spec: "package.module:name", "package.module.name" or "/path/to/file.py:name".
    """

    spec: str

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        """A function gets the whole text, trimmed; a Verifier extracts for itself.

        Raises:
            VerifierError: the user's `extract` raised, or returned neither text nor None.
        """
        target = _target(self.spec)
        if not _is_verifier(target):
            return text.strip() or None
        try:
            found = target.extract(text, row)
        except Exception as error:  # foreign code: named and passed on
            raise VerifierError(f"{self.spec}: extract raised {_said(error)}") from error
        if found is not None and not isinstance(found, str):
            raise VerifierError(f"{self.spec}: extract must return str or None, got {found!r}")
        return found

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        """Raises VerifierError for a return value that is no verdict, bool or score in [0, 1]."""
        target = _target(self.spec)
        try:
            if _is_verifier(target):
                value = target.grade(extracted, gold=gold, row=row)
            else:
                value = target(gold=gold, answer=extracted, row=row)
        except Exception as error:  # foreign code: recorded as data, with its name
            return grader_error(f"{self.spec} raised {_said(error)}")
        return as_verdict(value, extracted, self.spec)


def load_verifier(spec: str) -> UserVerifier:
    """Find and check a user's verifier. A relative file is made absolute, for other processes.

    Raises:
        ConfigError: no such module, file or name; or something that cannot be called with the
            keyword arguments gold, answer and row.
    """
    place, colon, name = spec.rpartition(":")
    if colon and place.endswith(".py"):
        spec = f"{Path(place).resolve()}:{name}"
    target = _target(spec)
    if not _is_verifier(target):
        if not callable(target):
            raise ConfigError(f"verifier {spec}: need a function, got {type(target).__name__}")
        try:
            inspect.signature(target).bind(gold="", answer="", row={})
        except TypeError as error:
            raise ConfigError(
                f"verifier {spec}: must take keyword arguments gold, answer and row: {error}"
            ) from error
    return UserVerifier(spec)


def as_verdict(value: object, extracted: str, name: str) -> Verdict:
    """A verdict from what a function returned; `name` says whose return value it is.

    True and 1.0 are correct, False is wrong, any other score in [0, 1) is part credit.

    Raises:
        VerifierError: anything else, NaN and None included.
    """
    if isinstance(value, Verdict):
        return value
    score = float(value) if isinstance(value, int | float) else math.nan
    if 0.0 <= score <= 1.0:  # false for NaN
        reason = f"{name}: {value!r}"
        return correct(extracted, reason) if score == 1.0 else wrong(extracted, reason, score)
    raise VerifierError(
        f"{name}: must return a Verdict, a bool or a score in [0, 1], got {value!r:.100}"
    )


def _is_verifier(target: Any) -> bool:
    return callable(getattr(target, "extract", None)) and callable(getattr(target, "grade", None))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


@functools.lru_cache(maxsize=32)
def _target(spec: str) -> Any:
    """The object a spec names; a Verifier class is instantiated without arguments."""
    place, colon, name = spec.rpartition(":")
    if not colon:
        place, _, name = spec.rpartition(".")
    if not place or not name:
        raise ConfigError(f"verifier {spec!r}: need module:name, module.name or file.py:name")
    module = _module_from_file(Path(place), spec) if place.endswith(".py") else _module(place, spec)
    if not hasattr(module, name):
        raise ConfigError(f"verifier {spec}: {place} has no {name!r}")
    target = getattr(module, name)
    if isinstance(target, type) and _is_verifier(target):
        try:
            return target()
        except TypeError as error:
            raise ConfigError(
                f"verifier {spec}: cannot be made without arguments: {error}"
            ) from error
    return target


def _module(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # importing runs foreign code
        raise ConfigError(f"verifier {spec}: cannot import {name}: {_said(error)}") from error


def _module_from_file(path: Path, spec: str) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"verifier {spec}: no such file: {path}")
    name = f"brorl_user_{hashlib.blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()}"
    loader_spec = importlib.util.spec_from_file_location(name, path)
    if loader_spec is None or loader_spec.loader is None:
        raise ConfigError(f"verifier {spec}: {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(loader_spec)
    sys.modules[name] = module  # dataclasses of the file look themselves up here
    try:
        loader_spec.loader.exec_module(module)
    except Exception as error:  # importing runs foreign code
        del sys.modules[name]
        raise ConfigError(f"verifier {spec}: {path} raised {_said(error)}") from error
    return module
