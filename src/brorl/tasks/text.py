"""When two questions are the same question."""

import re
import unicodedata

_MATH_MARKS = re.compile(r"\\(?:left|right|displaystyle|quad)(?![a-z])|\\[,;:! ()\[\]]|[$\\{}]")
_PUNCTUATION = re.compile(r"[,;]|[.:!?](?=\s|$)|\s")
_LONG = 60  # letters


def question_key(text: str) -> str:
    """Two prompts with equal keys are the same question: NFC, runs of white space made one space.

    Case stays, and so does every other character: "rev Ab=" and "rev ab=" have other answers.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def leak_key(text: str) -> str:
    """Like `question_key`, but long texts also match in spite of other spacing, LaTeX or case.

    For finding test questions in training data, where a question dropped too many does no harm.
    Short texts stay exact: in "3 - 4" and "3 + 4" the punctuation is the question.
    """
    key = question_key(text)
    if sum(c.isalpha() for c in key) < _LONG:
        return key
    return _PUNCTUATION.sub("", _MATH_MARKS.sub("", key)).casefold()
