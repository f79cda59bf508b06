"""Where brackets close and lists split: the shape of cleaned text, before it means anything."""

import re

_OPEN, _CLOSE = "([{", ")]}"
LISTING = re.compile(
    r"\\text\{\s*,?\s*(and|or)\s*,?\s*\}|(?<=\s)(and|or)(?=\s)|[,;]", re.IGNORECASE
)
_NAME = re.compile(
    r"(?:\\text\{[A-Za-z ]{1,30}\}|\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta"
    r"|vartheta|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|varphi|chi|psi|omega|Gamma|Delta|Theta"
    r"|Lambda|Omega|Phi|Psi|Sigma|ell)(?![A-Za-z])|\\angle\s*[A-Z](?:\s?[A-Z](?:_\{?\w\}?)?)*"
    r"|\|[A-Z]{1,3}\||\\frac\{d\s?[A-Za-z]\}\{d\s?[A-Za-z]\}|[A-DF-Za-df-hj-z]|[A-Z]{2,3}|E)"
    r"(?:_(?:\{[^{}]{1,20}\}|\w)|'|\^\{?(?:\\prime|\*)\}?)*"
    r"(?:\s?\(\s*[A-Za-z0-9](?:\s*,\s*[A-Za-z0-9])*\s*\))?"
)


def is_name(text: str) -> bool:
    r"""Whether text can stand for the thing asked for: x, f(x), m_{\max}, \angle ABC, AB."""
    text = text.strip()
    return _NAME.fullmatch(text) is not None and not LISTING.fullmatch(text)


def wraps(text: str, left: str, right: str) -> bool:
    """Whether one pair of brackets encloses the whole text."""
    return text.startswith(left) and text.endswith(right) and closes_at_end(text, 0)


def closes_at_end(text: str, start: int) -> bool:
    """Whether the bracket at `start` is closed by the last bracket of the text, not before."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] in _OPEN:
            depth += 1
        elif text[position] in _CLOSE:
            depth -= 1
            if depth == 0:
                return position == len(text) - 1
    return False


def split_top(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Parts between the separators that stand outside of all brackets, and those separators."""
    parts, joints = [], []
    depth = start = 0
    position = 0
    while position < len(text):
        match = separator.match(text, position) if depth == 0 else None
        if match and match.end() > position:
            parts.append(text[start:position].strip())
            joints.append(next((g for g in match.groups() if g), match[0]))
            start = position = match.end()
            continue
        if text[position] in _OPEN:
            depth += 1
        elif text[position] in _CLOSE:
            depth -= 1
        position += 1
    parts.append(text[start:].strip())
    return parts, joints
