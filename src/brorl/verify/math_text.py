r"""One spelling for each way of writing the same LaTeX: what is compared is never raw text."""

import re

_UNICODE = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full-width ASCII
    **dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xAD), ""),  # invisible
    **dict.fromkeys((0xA0, 0x2007, 0x2009, 0x200A, 0x202F, 0x3000), " "),
    **dict.fromkeys((0x2212, 0x2010, 0x2011, 0x2012, 0x2013, 0x2014), "-"),
    ord("×"): r"\times ",
    ord("·"): r"\cdot ",
    ord("⋅"): r"\cdot ",
    ord("÷"): "/",
    ord("±"): r"\pm ",
    ord("∓"): r"\mp ",
    ord("≤"): r"\leq ",
    ord("≥"): r"\geq ",
    ord("≠"): r"\neq ",
    ord("≈"): r"\approx ",
    ord("∞"): r"\infty ",
    ord("π"): r"\pi ",
    ord("∈"): r"\in ",
    ord("∪"): r"\cup ",
    ord("∩"): r"\cap ",
    ord("…"): r"\ldots ",
    ord("°"): r"^{\circ}",
    ord("½"): r"\frac{1}{2}",
    ord("¼"): r"\frac{1}{4}",
    ord("¾"): r"\frac{3}{4}",
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\w+))")


_SAME = {
    "dfrac": r"\frac",
    "tfrac": r"\frac",
    "cfrac": r"\frac",
    "dbinom": r"\binom",
    "tbinom": r"\binom",
    "ge": r"\geq",
    "geqslant": r"\geq",
    "gt": ">",
    "le": r"\leq",
    "leqslant": r"\leq",
    "lt": "<",
    "ne": r"\neq",
    "cdots": r"\ldots",
    "dots": r"\ldots",
    "dotsb": r"\ldots",
    "dotsc": r"\ldots",
    "lbrace": r"\{",
    "rbrace": r"\}",
    "lbrack": "[",
    "rbrack": "]",
    "colon": ":",
    "ast": "*",
    "mid": "|",
    "vert": "|",
    "lvert": "|",
    "rvert": "|",
    "simeq": r"\approx",
    "land": r"\text{and}",
    "wedge": r"\text{and}",
    "lor": r"\text{or}",
    "vee": r"\text{or}",
    "degree": r"^{\circ}",
    "textdollar": r"\text{dollars}",
    "quad": "",
    "qquad": "",
    "thinspace": "",
}
_DROPPED = frozenset(
    {"left", "right", "middle", "displaystyle", "textstyle", "limits", "nolimits", "boxed", "fbox"}
    | {"big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "nonumber"}
    | {"rm", "bf", "it", "phantom", "hphantom", "vphantom", "mathstrut"}
)
_THIN = "\x00"  # a thin space, until it is known whether it groups digits
_SYMBOLS = {"!": _THIN, ",": _THIN, ";": " ", ":": " ", " ": " ", "\\": "\\\\ ", "$": "", "%": "%"}
_COMMAND = re.compile(r"\\([A-Za-z]+)|\\(.)", re.DOTALL)
_WORDY = re.compile(
    r"\\(text(?:rm|bf|it|sf|tt|normal)?|[mh]box|math(?:rm|bf|it|sf|tt)|operatorname|boldsymbol|bm)"
    r"\s*\{([^{}]*)\}"
)
_FUNCTION = re.compile(
    r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)|(?:sin|cos|tan|coth?)h|log|ln|exp|max|min|gcd|lcm|det"
)
_NULL_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_DIGIT_GROUP = re.compile(r"(?<=[0-9])(?:,?\s*\x00+|\{,\})\s*(?=[0-9]{3}(?![0-9]))")
_DELIMITERS = re.compile(r"\$|\\[()\[\]]")
_NUMPY = re.compile(r"\b(?:np|numpy|math)\.(arcsin|arccos|arctan|sin|cos|tan|sqrt|exp|log)\b")
_SHORT = 2_000
_ROOT_INDEX = re.compile(r"\s*\[[^\[\]]{1,20}\]")
_LOOSE = re.compile(r"(\\[A-Za-z]+) (?![A-Za-z])")
_NOTHING = re.compile(r"(?<![A-Za-z0-9.]) |(?<=[A-Za-z]) (?![A-Za-z])|(?<=[0-9.]) (?![0-9.])")
_END = re.compile(r"(?:[\s.,;:]|\\\\)+$")


def clean(text: str) -> str:
    r"""Canonical LaTeX: delimiters, sizes, spacing and emphasis gone; synonyms made one.

    Words stay recognisable as \text{...}; separators between digit groups that cannot mean
    anything else ("10{,}000", "11,\! 111") vanish; a full stop at the end is dropped.
    """
    text = text.translate(_UNICODE)
    text = _SUPERSCRIPT.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _ROOT.sub(lambda m: rf"\sqrt{{{m[1] or m[2]}}}", text)
    text = _NUMPY.sub(lambda m: "\\" + m[1] + " ", text)
    text = _NULL_DELIMITER.sub(" ", text)
    text = _DELIMITERS.sub(" ", text.replace(r"\$", r"\text{dollars}"))
    text = _WORDY.sub(_wordy, text)
    text = _COMMAND.sub(_command, text)
    text = _DIGIT_GROUP.sub("", text).replace(_THIN, " ")
    if len(text) <= _SHORT:  # finding braces takes time that grows with the square
        text = _braced(text)
    return _END.sub("", _LOOSE.sub(r"\1", " ".join(text.split())))


def squeeze(text: str) -> str:
    """Cleaned text without the spaces that mean nothing: the key for "equal text"."""
    return _NOTHING.sub("", text)


def _braced(text: str) -> str:
    r"""\frac12, \frac{1}2 and \sqrt2 with the braces that LaTeX puts there itself."""
    for command, count in ((r"\frac", 2), (r"\binom", 2), (r"\sqrt", 1)):
        start = 0
        while (start := text.find(command, start)) >= 0:
            start += len(command)
            if text[start : start + 1].isalpha():
                continue  # a longer command
            position = start
            if command == r"\sqrt" and (index := _ROOT_INDEX.match(text, position)):
                position = index.end()
            for _ in range(count):
                if (end := _argument_end(text, position)) is None:
                    break
                begin, stop, bare = end
                if bare:
                    text = f"{text[:position]}{{{text[begin:stop]}}}{text[stop:]}"
                    position += stop - begin + 2
                else:
                    position = stop
    return text


def _argument_end(text: str, position: int) -> tuple[int, int, bool] | None:
    """(begin, end, without braces) of the argument that starts at `position` or after spaces."""
    while position < len(text) and text[position] == " ":
        position += 1
    if position == len(text) or text[position] in "})]&=+-":
        return None
    if text[position] == "\\":
        match = _COMMAND.match(text, position)
        return (position, match.end(), True) if match else None
    if text[position] != "{":
        return position, position + 1, True
    depth = 0
    for end in range(position, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return position, end + 1, False
    return None


def _wordy(match: re.Match[str]) -> str:
    r"""A letter or function name set in a mathematical font is itself; the rest is a \text.

    Upright letters other than e, i and d are units: 5\mathrm{m}.
    """
    font, word = match[1], match[2].replace("~", " ").strip()
    mathematical = not font.startswith(("text", "mbox", "hbox"))
    if mathematical and len(word) == 1 and (font != "mathrm" or word in "eid"):
        return f" {word} "
    if mathematical and _FUNCTION.fullmatch(word):
        return f"\\{word} "
    if mathematical and any(c.isdigit() for c in word):
        return f" {word} "
    return f"\\text{{{word}}}"


def _command(match: re.Match[str]) -> str:
    name, symbol = match[1], match[2]
    if symbol is not None:
        return _SYMBOLS.get(symbol, "\\" + symbol)
    if name in _DROPPED:
        return " "
    same = _SAME.get(name, "\\" + name)
    return same if name == "text" or not same[-1:].isalpha() else same + " "
