r"""Units and other words after a value: which may be dropped, and when two are the same."""

import re

_NAMES = {
    "degrees": "degree degrees deg circ",
    "percent": "percent percentage pct",
    "dollars": "dollar dollars usd",
    "cents": "cent cents",
    "euros": "euro euros",
    "pounds": "pound pounds lb lbs",
    "ounces": "ounce ounces oz",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "inches": "inch inches in",
    "feet": "foot feet ft",
    "yards": "yard yards yd",
    "miles": "mile miles mi",
    "mph": "mph",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "mg": "mg milligram milligrams",
    "l": "l liter liters litre litres",
    "ml": "ml milliliter milliliters",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "days": "day days",
    "weeks": "week weeks",
    "months": "month months",
    "years": "year years yr yrs",
    "radians": "rad radian radians",
    "units": "unit units",
    "hz": "hz hertz",
    "n": "newton newtons",
    "j": "j joule joules",
    "w": "w watt watts",
    "v": "v volt volts",
    "k": "kelvin",
}
UNITS = {word: name for name, words in _NAMES.items() for word in words.split()}

# A value followed by one of these is a sentence, not a quantity.
_NOT_UNITS = frozenset(
    {"or", "and", "not", "no", "maybe", "perhaps", "possibly", "probably", "wrong", "incorrect"}
    | {"false", "if", "unless", "but", "otherwise", "else", "to", "between", "from", "is", "are"}
    | {"approximately", "about", "either", "when", "where", "for", "with", "mod", "modulo", "only"}
)
_POWER = r"(?P<power>\^\s*\{?\s*[23]\s*\}?)?"
_TEXT_UNIT = re.compile(
    rf"\s*\\text\{{\s*(?P<words>[A-Za-z][A-Za-z /.]{{0,40}}?)\s*\}}\s*{_POWER}\s*$"
)
_BARE_UNIT = re.compile(
    rf"(?<=[0-9\s}})])\s*(?P<words>(?:sq(?:uare)? |cubic )?[A-Za-z]{{2,20}})\s*{_POWER}\s*$"
)
_DEGREE = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)\s*(?:\\text\{[CF]\})?\s*$")
_PERCENT = re.compile(r"\s*(?:%|\\text\{\s*%\s*\})\s*$")
_CURRENCY = re.compile(r"\s*(?:\\text\{(dollars|USD|euros)\}|([€£]))\s*")

_SIGNS = {"dollars": "dollars", "USD": "dollars", "euros": "euros", "€": "euros", "£": "pounds"}


def split_unit(text: str) -> tuple[str, str]:
    r"""A cleaned value without the unit around it, and the unit's canonical name.

    "35\text{cm}" gives ("35", "cm"); "90^\circ" ("90", "degrees"); "28%" ("28", "percent");
    "\text{dollars}36" ("36", "dollars"). Unknown nouns in \text after a value count as
    a unit too ("12\text{students}"), a word that makes a sentence of it does not ("7\text{or}").
    Bare words are units only if they are known ones.
    """
    if match := _CURRENCY.match(text):
        return text[match.end() :], _SIGNS[match[1] or match[2]]
    for pattern, name in ((_DEGREE, "degrees"), (_PERCENT, "percent")):
        if (match := pattern.search(text)) and match.start() > 0:
            return text[: match.start()], name
    if (match := _TEXT_UNIT.search(text)) and match.start() > 0:
        name = _canonical(match["words"], match["power"], known_only=False)
    elif (match := _BARE_UNIT.search(text)) and match.start() > 0:
        name = _canonical(match["words"], match["power"], known_only=True)
    if match and match.start() > 0 and name:
        return text[: match.start()], name
    return text, ""


def _canonical(words: str, power: str | None, *, known_only: bool) -> str:
    parts = words.lower().replace(".", "").split()
    exponent = re.sub(r"[^23]", "", power or "")
    if parts[0] in ("square", "sq", "cubic") and len(parts) > 1:
        exponent = exponent or ("3" if parts[0] == "cubic" else "2")
        parts = parts[1:]
    if any(part in _NOT_UNITS for part in parts):
        return ""
    per = " ".join(parts).replace(" per ", "/").split("/")
    known = [UNITS.get(part.strip(), "") for part in per]
    if not all(known):
        if known_only or len(per) > 1:
            return ""
        known = [per[0].removesuffix("s")]
    return "/".join(known) + (f"^{exponent}" if exponent else "")
