"""YAML in and out, and what a setting may hold: plain values of a bounded size.

A recipe is a file that somebody else may have written, so its size is bounded before it is
parsed and again after aliases are resolved (nine levels of nine aliases are 400 million values).
"""

import math
import re
from typing import Any

import yaml

from brorl.errors import ConfigError

MAX_BYTES = 2 << 20
"""Of one YAML text."""
MAX_SIZE = 400_000
"""Characters of all texts of a recipe, eight for every value, aliases counted as often as used."""
MAX_DEPTH = 40
_SHOWN = 60  # characters of a value in a message

_EXPONENT = re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)$")


class _Loader(yaml.SafeLoader):
    """YAML that reads 1e-3 as a number and refuses a key written twice."""


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that `_Loader` would read as numbers."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789."))


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = [(loader.construct_object(k, deep=True), v) for k, v in node.value]
    seen = set()
    for key, _ in pairs:
        if not isinstance(key, str):
            raise ConfigError(f"a setting's name must be text, got {shown(key)}")
        if key in seen:
            raise ConfigError(f"{shown(key)} is set twice")
        seen.add(key)
    return {k: loader.construct_object(v, deep=True) for k, v in pairs}


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str, where: str) -> Any:
    """The value of a YAML text.

    Raises:
        ConfigError: not YAML, a key twice, too large, or a value that `check_plain` refuses.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where}: needs at most {MAX_BYTES} characters, got {len(text)}")
    try:
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{where}: not readable as YAML: {reason}") from error
    check_plain(value, where)
    return value


def dump(values: Any) -> str:
    """YAML text; `parse` of it gives the same values."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def check_plain(value: Any, where: str) -> None:
    """Refuse what a setting cannot hold, naming its key.

    Allowed: text that is valid Unicode without NUL, numbers that are finite and fit 64 bits,
    true, false, null, and lists and mappings of these.

    Raises:
        ConfigError: anything else, or more than MAX_SIZE of it.
    """
    room = MAX_SIZE
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        key = f"{where}: {key_text('.'.join(path))}" if path else where
        room -= 8 + (len(item) if isinstance(item, str) else 0)
        if room < 0 or len(path) > MAX_DEPTH:
            raise ConfigError(
                f"{where}: needs at most {MAX_SIZE} characters of values and {MAX_DEPTH} levels, "
                f"got more at {shown('.'.join(path))}"
            )
        if why := _not_plain(item):
            raise ConfigError(f"{key}: {why}, got {shown(item)}")
        if isinstance(item, dict):
            waiting += [((*path, str(k)[:_SHOWN]), v) for k, v in item.items()]
        elif isinstance(item, list | tuple):
            waiting += [((*path, str(i)), v) for i, v in enumerate(item)]


def key_text(key: str) -> str:
    """A setting's name in a message: one short line whatever it holds."""
    return key[:80].encode("unicode_escape").decode()


def shown(value: Any) -> str:
    """A value in a message: short whatever it is, and never expanded."""
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < 1 << 64 else "a huge integer"
    if isinstance(value, str):
        text = repr(value[: _SHOWN + 1]).encode("ascii", "backslashreplace").decode()
        return text if len(value) <= _SHOWN else f"{text[: _SHOWN + 1]}...' of {len(value)}"
    if isinstance(value, list | tuple | dict | set):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _not_plain(item: Any) -> str | None:
    if isinstance(item, str):
        if "\0" in item:
            return "text must not hold NUL"
        try:
            item.encode()
        except UnicodeEncodeError:
            return "text must be valid Unicode"
        return None
    if isinstance(item, bool) or item is None or isinstance(item, list | tuple):
        return None
    if isinstance(item, dict):
        bad = next((k for k in item if not isinstance(k, str)), None)
        return None if bad is None else f"a setting's name must be text, not {shown(bad)}"
    if isinstance(item, int):
        return None if abs(item) < 1 << 64 else "an integer must fit 64 bits"
    if isinstance(item, float):
        return None if math.isfinite(item) else "a number must be finite"
    return "a value must be text, a number, true, false, null, a list or a mapping"
