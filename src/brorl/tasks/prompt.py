"""Prompts from templates: named fields, nothing evaluated."""

import string
from collections.abc import Mapping
from typing import Any

from brorl.errors import ConfigError
from brorl.tasks.names import unknown_name


def fill(template: str, fields: Mapping[str, Any]) -> str:
    """The template with each {field} replaced by its text; {{ and }} are braces.

    Raises:
        ConfigError: an unknown field (with the nearest known one), a format, stray braces.
    """
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"task.prompt {template!r}: {error}") from error
    parts = []
    for literal, name, spec, conversion in pieces:
        parts.append(literal)
        if name is None:
            continue
        if spec or conversion:
            raise ConfigError(f"task.prompt {template!r}: {{{name}}} takes no format")
        if name not in fields:
            raise ConfigError(unknown_name("field in task.prompt", name, sorted(fields)))
        parts.append(str(fields[name]))
    return "".join(parts)
