"""The 25 kinds of checkable instruction of IFEval, each a function of the response.

Written from the descriptions in Zhou et al. 2023, arXiv:2311.07911, and the argument names of its
data. Stricter than the original where that is a hole: a text whose language cannot be told does
not follow a language instruction, and a constrained response must hold exactly one of the options.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from brorl.verify.instruction_text import (
    capital_word_count,
    highlight_count,
    language,
    parts_between,
    sentence_count,
    word_count,
)

Check = Callable[[str, Mapping[str, Any]], bool]

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_PLACEHOLDER = re.compile(r"\[[^\[\]]+\]")
_TITLE = re.compile(r"<<[^\n]*?\w[^\n]*?>>")
_BULLET = re.compile(r"^\s*(?:\*(?!\*)|-(?!-))\s*\S.*$", re.MULTILINE)
_FENCE = re.compile(r"\s*```(?:json|JSON|Json)?\s*\n?(.*?)\n?\s*```\s*", re.DOTALL)
_QUOTES = "\"'“”‘’"


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "less than": operator.lt,
    "more than": operator.gt,
    "exactly": operator.eq,
}


def _holds(count: int, relation: str, bound: int) -> bool:
    return RELATIONS[relation](count, bound)


def _keywords(text: str, a: Mapping[str, Any]) -> bool:
    return all(word.lower() in text.lower() for word in a["keywords"])


def _frequency(text: str, a: Mapping[str, Any]) -> bool:
    return _holds(text.lower().count(a["keyword"].lower()), a["relation"], a["frequency"])


def _forbidden(text: str, a: Mapping[str, Any]) -> bool:
    return not any(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
        for word in a["forbidden_words"]
    )


def _letters(text: str, a: Mapping[str, Any]) -> bool:
    return _holds(text.lower().count(a["letter"].lower()), a["let_relation"], a["let_frequency"])


def _words(text: str, a: Mapping[str, Any]) -> bool:
    return _holds(word_count(text), a["relation"], a["num_words"])


def _sentences(text: str, a: Mapping[str, Any]) -> bool:
    return _holds(sentence_count(text), a["relation"], a["num_sentences"])


def _paragraphs(text: str, a: Mapping[str, Any]) -> bool:
    parts = parts_between(text, "***")
    return parts is not None and len(parts) == int(a["num_paragraphs"])


def _first_word(text: str, a: Mapping[str, Any]) -> bool:
    parts = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    nth = a["nth_paragraph"]
    if len(parts) != a["num_paragraphs"] or not 1 <= nth <= len(parts):
        return False
    word = parts[nth - 1].split()[0].lstrip(_QUOTES + "*_([")
    match = re.match(r"[\w'’-]+", word)
    return match is not None and match[0].rstrip(_QUOTES).lower() == str(a["first_word"]).lower()


def _placeholders(text: str, a: Mapping[str, Any]) -> bool:
    return len(_PLACEHOLDER.findall(text)) >= int(a["num_placeholders"])


def _postscript(text: str, a: Mapping[str, Any]) -> bool:
    letters = [letter for letter in a["postscript_marker"] if letter.isalpha()]
    marker = r"\.\s?".join(letters) + r"\.?"
    return re.search(rf"^\s*{marker}(?!\w).*\w", text, re.IGNORECASE | re.MULTILINE) is not None


def _bullets(text: str, a: Mapping[str, Any]) -> bool:
    return len(_BULLET.findall(text)) == int(a["num_bullets"])


def _constrained(text: str, a: Mapping[str, Any]) -> bool:
    return sum(option in text for option in OPTIONS) == 1


def _highlights(text: str, a: Mapping[str, Any]) -> bool:
    return highlight_count(text) >= int(a["num_highlights"])


def _sections(text: str, a: Mapping[str, Any]) -> bool:
    mark = re.escape(a["section_spliter"].strip())
    return len(re.findall(rf"(?<!\w){mark}\s?\d+", text)) >= int(a["num_sections"])


def _json(text: str, a: Mapping[str, Any]) -> bool:
    fenced = _FENCE.fullmatch(text)
    try:
        json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return True


def _title(text: str, a: Mapping[str, Any]) -> bool:
    return _TITLE.search(text) is not None


def _two_responses(text: str, a: Mapping[str, Any]) -> bool:
    parts = parts_between(text, "******")
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _repeat(text: str, a: Mapping[str, Any]) -> bool:
    return text.strip().lower().startswith(a["prompt_to_repeat"].strip().lower())


def _ends(text: str, a: Mapping[str, Any]) -> bool:
    return text.strip().strip('"').lower().endswith(a["end_phrase"].strip().lower())


def _capital_words(text: str, a: Mapping[str, Any]) -> bool:
    return _holds(capital_word_count(text), a["capital_relation"], a["capital_frequency"])


def _upper(text: str, a: Mapping[str, Any]) -> bool:
    return text.isupper() and language(text) == "en"


def _lower(text: str, a: Mapping[str, Any]) -> bool:
    return text.islower() and language(text) == "en"


def _language(text: str, a: Mapping[str, Any]) -> bool:
    return language(text) == str(a["language"])


def _no_comma(text: str, a: Mapping[str, Any]) -> bool:
    return "," not in text


def _quoted(text: str, a: Mapping[str, Any]) -> bool:
    text = text.strip()
    return len(text) > 2 and text[0] == '"' == text[-1]


# kind: (check, {argument: type})
KINDS: dict[str, tuple[Check, dict[str, type]]] = {
    "change_case:capital_word_frequency": (
        _capital_words,
        {"capital_relation": str, "capital_frequency": int},
    ),
    "change_case:english_capital": (_upper, {}),
    "change_case:english_lowercase": (_lower, {}),
    "combination:repeat_prompt": (_repeat, {"prompt_to_repeat": str}),
    "combination:two_responses": (_two_responses, {}),
    "detectable_content:number_placeholders": (_placeholders, {"num_placeholders": int}),
    "detectable_content:postscript": (_postscript, {"postscript_marker": str}),
    "detectable_format:constrained_response": (_constrained, {}),
    "detectable_format:json_format": (_json, {}),
    "detectable_format:multiple_sections": (
        _sections,
        {"section_spliter": str, "num_sections": int},
    ),
    "detectable_format:number_bullet_lists": (_bullets, {"num_bullets": int}),
    "detectable_format:number_highlighted_sections": (_highlights, {"num_highlights": int}),
    "detectable_format:title": (_title, {}),
    "keywords:existence": (_keywords, {"keywords": list}),
    "keywords:forbidden_words": (_forbidden, {"forbidden_words": list}),
    "keywords:frequency": (_frequency, {"keyword": str, "relation": str, "frequency": int}),
    "keywords:letter_frequency": (
        _letters,
        {"letter": str, "let_relation": str, "let_frequency": int},
    ),
    "language:response_language": (_language, {"language": str}),
    "length_constraints:nth_paragraph_first_word": (
        _first_word,
        {"num_paragraphs": int, "nth_paragraph": int, "first_word": str},
    ),
    "length_constraints:number_paragraphs": (_paragraphs, {"num_paragraphs": int}),
    "length_constraints:number_sentences": (_sentences, {"relation": str, "num_sentences": int}),
    "length_constraints:number_words": (_words, {"relation": str, "num_words": int}),
    "punctuation:no_comma": (_no_comma, {}),
    "startend:end_checker": (_ends, {"end_phrase": str}),
    "startend:quotation": (_quoted, {}),
}
