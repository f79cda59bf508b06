"""A nested configuration as dotted names."""

from collections.abc import Mapping
from typing import Any


def flat(nested: Any, above: str = "") -> dict[str, Any]:
    """{"a.b": value}: every level is named, the mappings themselves included."""
    found: dict[str, Any] = {}
    for key, value in dict(nested).items():
        name = f"{above}{key}"
        found[name] = value
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
    return found
