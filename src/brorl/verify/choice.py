"""The verifier for multiple choice: by letter, or by the text of an option."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brorl.verify.extract import boxed_answer, closing_answer, final_part
from brorl.verify.math_text import clean
from brorl.verify.verdict import Verdict, correct, grader_error, no_answer, ungradable, wrong

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LONE = re.compile(r"[(\[]?\s*([A-Za-z])\s*[)\].:]?")
_LETTER_AND_TEXT = re.compile(r"[(\[]?\s*([A-Za-z])\s*[)\].:]+\s*(\S.*)", re.DOTALL)
_MARKUP = re.compile(r"\\text\{([^{}]*)\}|[$*_`{}]|\\[()\[\]]")


@dataclass(frozen=True, slots=True)
class ChoiceVerifier:
    """Judges the option that a text commits to: in a box, in a closing line, or as its only letter.

    The gold is a letter, or the text of an option. Options are read from the row, where it has
    them as a list (first is A) or as a mapping from letter to text; with them, an answer may give
    letter, text, or both if they agree. Several letters are no answer.

    Attributes:
        options: field of the row with the options; a row may lack it.
    """

    options: str

    def extract(self, text: str, row: Mapping[str, Any]) -> str | None:
        part = final_part(text)
        if part is None:
            return None
        if "\\boxed" in part or "\\fbox" in part:
            return boxed_answer(part)
        if answer := closing_answer(part):
            return answer
        lone = _LONE.fullmatch(_plain(part))
        return lone[1] if lone else None

    def grade(self, extracted: str, *, gold: str | None, row: Mapping[str, Any]) -> Verdict:
        options = read_options(row.get(self.options))
        wanted = _letter_of(gold or "", options)
        if wanted is None:
            return grader_error(f"choice: the gold {gold!r:.60} is no letter and no option")
        if not _plain(extracted):
            return no_answer("choice: empty answer")
        letter = _letter_of(extracted, options)
        if letter is None:
            return ungradable(extracted, "choice: not one letter and not one option")
        if options and letter not in options:
            return wrong(extracted, f"choice: there is no option {letter}")
        judge = correct if letter == wanted else wrong
        return judge(extracted, f"choice: option {letter}")

    def write(self, gold: str, row: Mapping[str, Any]) -> str:
        """The gold as a policy should write it."""
        letter = _letter_of(gold, read_options(row.get(self.options)))
        return rf"\boxed{{{letter or gold}}}"

    def unreadable(self, gold: str | None, row: Mapping[str, Any]) -> str | None:
        """Why this gold cannot be used, None if it can."""
        options = read_options(row.get(self.options))
        letter = _letter_of(gold or "", options)
        if letter is None or (options and letter not in options):
            return f"gold {gold!r:.60} is no letter and no option"
        return None


def read_options(value: Any) -> dict[str, str]:
    """Options by letter; empty if there are none to be read."""
    if isinstance(value, Mapping):
        return {str(k).strip().upper(): str(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) <= len(_LETTERS):
        texts = [_LETTER_AND_TEXT.fullmatch(str(v).strip()) for v in value]
        named = {m[1].upper(): m[2] for m in texts if m}
        if len(named) == len(value) and list(named) == list(_LETTERS[: len(named)]):
            return named  # ["A) one", "B) two"]
        return dict(zip(_LETTERS, map(str, value), strict=False))
    return {}


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub(lambda m: m[1] or "", text).split()).strip(" .")


def _letter_of(text: str, options: Mapping[str, str]) -> str | None:
    """The one option that a text names, None if none or more than one."""
    plain = _plain(text)
    by_text = [k for k, v in options.items() if plain and _key(v) == _key(plain)]
    lone = _LONE.fullmatch(plain)
    if lone and not (by_text and by_text != [lone[1].upper()]):
        return lone[1].upper()
    if len(by_text) == 1:
        return by_text[0]
    both = _LETTER_AND_TEXT.fullmatch(plain)
    if both:
        letter = both[1].upper()
        if options and letter in options and _key(options[letter]) == _key(both[2]):
            return letter
    return None


def _key(text: str) -> str:
    return clean(text).lower().replace(" ", "")
