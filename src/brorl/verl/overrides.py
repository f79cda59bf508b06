"""Words of verl's command line: hydra overrides, quoted where they must be."""

import re
from collections.abc import Mapping
from typing import Any

from brorl.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z_./~@][\w./~@+:-]*")
_WORDS = {"true", "false", "null", "nan", "inf", "none", "on", "off", "yes", "no"}


def override(name: str, value: Any, *, added: bool) -> str:
    """`name=value` in hydra's grammar; `+name=value` for a name that its configuration lacks."""
    return f"{'+' if added else ''}{name}={rendered(value)}"


def rendered(value: Any) -> str:
    """A value in hydra's grammar: what it reads back is equal."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{rendered(str(k))}:{rendered(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(rendered(v) for v in value) + "]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "'" + re.sub(r"(\\*)'", r"\1\1\\'", text) + "'"


def parsed(word: str) -> tuple[str, Any]:
    """(name, value) of a user's `name=value`; the value in YAML. Raises ConfigError."""
    from brorl.train.yaml_values import parse

    name, sign, text = word.partition("=")
    name = name.strip().lstrip("+")
    if not sign or not name:
        raise ConfigError(f"--verl reads NAME=VALUE, got {word!r}")
    return name, parse(text, f"--verl {name}")
