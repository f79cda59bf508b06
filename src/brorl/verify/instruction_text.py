"""Counting what instructions count: words, sentences, paragraphs, highlights; and the language."""

import re
from typing import Any

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[।。！？]")
_NO_END = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|e\.g|i\.e|cf|no|fig|vol|approx|inc|ltd|co)"
    r"|\b[a-z](?:\.[a-z])*)\.$",
    re.IGNORECASE,
)
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*\d+\.$")
_HIGHLIGHT = re.compile(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*")


def word_count(text: str) -> int:
    r"""Runs of letters, digits and underscores: \w+."""
    return len(_WORD.findall(text))


def sentence_count(text: str) -> int:
    """Sentences end at . ! ? (and the Hindi and Chinese full stops) before white space.

    Abbreviations (Dr., e.g., U.S.), initials and the numbers of a list do not end one; a tail
    without a full stop counts as a sentence if it has a word. Not the model that the original
    benchmark uses (Punkt), so counts may differ by one or two on odd texts.
    """
    count = start = 0
    for end in _SENTENCE_END.finditer(text):
        piece = text[start : end.end()]
        rest = text[end.end() :].lstrip()
        stop = _NO_END.search(piece) or _LIST_NUMBER.search(piece)
        if stop and rest and not (rest[0].isupper() and len(stop[0]) > 4):
            continue
        if _WORD.search(piece):
            count += 1
        start = end.end()
    return count + bool(_WORD.search(text[start:]))


def parts_between(text: str, separator: str) -> list[str] | None:
    """Non-empty parts between separators; empty ones only at the ends, else None."""
    parts = [part.strip() for part in text.split(separator)]
    if not parts[0]:
        parts = parts[1:]
    if parts and not parts[-1]:
        parts = parts[:-1]
    return parts if all(parts) else None


def highlight_count(text: str) -> int:
    """Markdown emphasis with something in it: *so* or **so**, within a line."""
    return sum(bool((m[1] or m[2]).strip()) for m in _HIGHLIGHT.finditer(text))


def capital_word_count(text: str) -> int:
    """Words whose letters are all capitals; "A" and "USA-led" with one letter lower do not differ
    from other words: the second is none."""
    return sum(token.strip(".,;:!?\"'()[]*_").isupper() for token in text.split())


def language(text: str) -> str | None:
    """ISO 639-1 code by langdetect, with a fixed seed; None if it cannot tell (no letters)."""
    from langdetect import detector_factory
    from langdetect.lang_detect_exception import LangDetectException

    detector_factory.init_factory()
    detector: Any = detector_factory._factory.create()
    detector.seed = 0  # else the answer depends on global random state
    try:
        detector.append(text)
        code = str(detector.detect())
    except LangDetectException:
        return None
    return None if code == "unknown" else code
