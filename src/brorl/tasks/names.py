"""One sentence for a name that nobody knows."""

import difflib
from collections.abc import Iterable


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """A message with the nearest known names, or all of them where none is near."""
    choices = sorted(known)
    if not choices:
        return f"unknown {what} {name!r}; there is none to know"
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.6)
    if near:
        return f"unknown {what} {name!r}; nearest: {', '.join(near)}"
    shown = ", ".join(choices[:12]) + (", ..." if len(choices) > 12 else "")
    return f"unknown {what} {name!r}; known: {shown}"
