"""Which scorers of Reasoning Gym are not to be trusted with a model's text, and what stands in.

Read from reasoning-gym 0.1.25. Three kinds of fault: scorers that evaluate the answer as Python
(`eval`, or sympy's `parse_expr`, which is `eval` too), scorers that pay full marks for the right
answer with anything after it, and scorers that compare the wrong thing.
"""

import re
from collections.abc import Mapping
from typing import Any

# The only right answer is the gold's text: these are compared as text and never scored.
EXACT = {
    "binary_matrix": "its scorer evaluates the answer as Python",
    "game_of_life_halting": "its scorer pays any text, it compares bool(text) with bool(text)",
    "spell_backward": "its scorer pays text that goes on after the word",
    "spiral_matrix": "its scorer evaluates the answer as Python",
    "string_insertion": "its scorer evaluates the answer as Python",
}

# The scorer parses the answer with sympy, which evaluates Python: only these characters and names.
_ARITHMETIC = re.compile(r"[0-9+\-*/(). ]{1,200}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FORMULA = re.compile(r"[0-9A-Za-z+\-*/(). ]{1,500}")
_FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh"}
    | {"asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs", "pi", "E", "C"}
)
_BIG_POWER = re.compile(r"\*\*\s*\(?\s*[+-]?\s*(?:[0-9.]{3,}|\()|\*\*[^*]*\*\*[^+]*\*\*")

ARITHMETIC = frozenset({"countdown", "puzzle24"})
FORMULA = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})


def refusal(name: str, answer: str, item: Mapping[str, Any]) -> str | None:
    """Why `answer` must not reach the scorer of data set `name`; None if it may."""
    if name in ARITHMETIC:
        if not _ARITHMETIC.fullmatch(answer) or "**" in answer:
            return "not plain arithmetic"
    elif name in FORMULA:
        if not _FORMULA.fullmatch(answer) or _BIG_POWER.search(answer):
            return "not a plain formula"
        for word in _NAME.findall(answer):
            if word not in _FUNCTIONS and len(word) > 1:
                return "not a plain formula"
    return None
