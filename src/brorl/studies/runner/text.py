"""What a study says of itself: its docstring, read without importing it.

Title line.

Question    what is asked
Prediction  what is expected, with its number where there is one
Design      what is varied, what is held equal
Decided by  the rule, set before the first full run
Cost        minutes on two cores of the default plan
"""

import ast
import re
from importlib.resources import files
from typing import NamedTuple

from brorl.errors import ConfigError
from brorl.tasks.names import unknown_name

PARTS = ("Question", "Prediction", "Design", "Decided by", "Cost")
_PART = re.compile(rf"({'|'.join(PARTS)}) {{2,}}(\S.*)")


class StudyText(NamedTuple):
    """The parts of a study's docstring, each as one line of text."""

    name: str
    title: str
    question: str
    prediction: str
    design: str
    decided_by: str
    cost: str


def study_names() -> list[str]:
    """Every study, in alphabetical order: the modules directly in brorl.studies."""
    names = (f.name for f in files("brorl.studies").iterdir() if f.is_file())
    return sorted(n[:-3] for n in names if n.endswith(".py") and not n.startswith("_"))


def docstring(name: str) -> str:
    """Of a study, as it is written. Raises ConfigError, with the nearest name."""
    if name not in study_names():
        raise ConfigError(unknown_name("study", name[:80], study_names()))
    source = (files("brorl.studies") / f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def read_text(name: str) -> StudyText:
    """The parts of a study's docstring. Raises ConfigError."""
    return parse(name, docstring(name))


def parse(name: str, text: str) -> StudyText:
    """Cut a docstring into its parts.

    A part begins at the left edge with its name and two or more spaces; lines that follow it are
    indented.

    Raises:
        ConfigError: a part is missing, twice, empty or out of order, or a line belongs to none.
    """
    title, _, rest = text.partition("\n")
    found: dict[str, list[str]] = {}
    for line in rest.splitlines():
        head = _PART.fullmatch(line)
        if head is not None:
            if head[1] in found:
                raise ConfigError(f"study {name}: its docstring has {head[1]} twice")
            found[head[1]] = [head[2].strip()]
        elif line[:1].isspace() and found:
            list(found.values())[-1].append(line.strip())
        elif line.strip():
            raise ConfigError(f"study {name}: a line of its docstring belongs to no part: {line!r}")
    if tuple(found) != PARTS or not title.strip():
        raise ConfigError(
            f"study {name}: its docstring needs a title, then {', '.join(PARTS)}, in that order; "
            f"found {', '.join(found) or 'none of them'}"
        )
    return StudyText(name, title.strip(), *(" ".join(found[p]).strip() for p in PARTS))
