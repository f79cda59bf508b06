r"""Finding the one answer a text commits to: its last box, or its closing line.

Nothing here looks for numbers in running text. A text that mentions the right value and commits
to nothing has no answer.
"""

import re
from typing import NamedTuple

MAX_TEXT = 50_000  # characters read, counted from the end
MAX_ANSWER = 10_000  # characters of an answer; a longer one is none

_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_SPACING = r"\\(?:text\w*|quad|qquad|[()\[\],;! ])"
_NOT_WORDS = re.compile(rf"{_SPACING}|[^A-Za-z]+")
_PUNCTUATION = re.compile(rf"(?:{_SPACING}|[\s,;:.&/|$()\[\]*~{{}}-])*")
_JOINING = frozenset(
    {"or", "and", "maybe", "perhaps", "possibly", "alternatively", "otherwise", "either", "also"}
)
_FILLER = frozenset(
    {"it", "is", "could", "can", "might", "may", "be", "the", "answer", "even", "both", "a", "else"}
    | {"then", "another", "possible", "value", "are"}
)
_GAP = 80  # characters: longer text between two boxes is an argument, not a list

_LEAD = r"(?:(?:so|thus|therefore|hence|finally|in conclusion|consequently)\s*,?\s+)?"
_CLOSING = re.compile(
    rf"(?:{_LEAD}(?:(?:the|my|our)\s+)?(?:final\s+)?answer\s*(?:is\s*:?|:|=)|\#{{4}})\s*(?P<answer>\S.*)",
    re.IGNORECASE,
)
_HOPE = re.compile(r"\.?\s*I hope (?:it is|this is) correct\.?\s*$", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*\*|__|`")


class Box(NamedTuple):
    """A complete box: where it starts and ends in the text, and what it holds."""

    start: int
    end: int
    content: str


class Boxes(NamedTuple):
    """The outermost complete boxes in order, and whether another one never closes."""

    complete: list[Box]
    open: bool


def final_part(text: str) -> str | None:
    """What follows the last </think>; None if thinking was begun and never ended."""
    tail = text[-MAX_TEXT:].rpartition("</think>")[2]
    return None if "<think>" in tail else tail


def find_boxes(text: str) -> Boxes:
    r"""Every outermost \boxed{...} and \fbox{...}, in one pass; \{ and \} are no braces."""
    stack: list[tuple[int, int] | None] = []  # (start, content) of a box, None for another brace
    depth = 0  # boxes on the stack
    found: list[Box] = []
    for token in _TOKEN.finditer(text):
        piece = token.group()
        if piece == "{":
            stack.append(None)
        elif piece == "}":
            box = stack.pop() if stack else None
            if box is not None:
                depth -= 1
                if depth == 0:
                    found.append(Box(box[0], token.end(), text[box[1] : token.start()]))
        elif piece.startswith(("\\boxed", "\\fbox")):
            stack.append((token.start(), token.end()))
            depth += 1
    return Boxes(found, depth > 0)


def boxed_answer(text: str) -> str | None:
    r"""What the last box holds; with a list of boxes ("\boxed{1} or \boxed{2}"), all of it.

    Boxes with nothing between them but punctuation, "and", "or" or a hedge ("or maybe") are one
    answer with several values, so that listing guesses in separate boxes pays no more than listing
    them in one. Anything else in between means that the later box replaces the earlier. A box
    that is begun after the last complete one and never ends means that the text was cut.
    """
    boxes, unfinished = find_boxes(text)
    if unfinished or not boxes:
        return None
    parts = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not _joins(text[box.end : parts[0].start]):
            break
        parts.insert(0, box)
    contents = list(dict.fromkeys(part.content.strip() for part in parts))
    answer = contents[0] if len(contents) == 1 else r" \text{ or } ".join(contents)
    return answer if 0 < len(answer.strip()) <= MAX_ANSWER else None


def _joins(gap: str) -> bool:
    if len(gap) > _GAP:
        return False
    words = set(_NOT_WORDS.sub(" ", gap).lower().split())
    if not words:
        return _PUNCTUATION.fullmatch(gap) is not None
    return words <= _JOINING | _FILLER and bool(words & _JOINING)


def closing_answer(text: str) -> str | None:
    """X of a last line "The final answer is X", "Answer: X" or "#### X", emphasis removed."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    line = _HOPE.sub("", _EMPHASIS.sub("", lines[-1])).strip()
    match = _CLOSING.fullmatch(line)
    if match is None:
        return None
    answer = match["answer"].strip().removesuffix(".").strip()
    return answer if 0 < len(answer) <= MAX_ANSWER else None


_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def tagged_answer(text: str) -> str | None:
    """What stands in the last complete <answer>...</answer> after the last </think>, trimmed."""
    part = final_part(text)
    found = _TAGGED.findall(part) if part is not None else []
    return (found[-1].strip() or None) if found else None
