"""Model output made fit for eyes: nothing invisible, nothing that moves a cursor, not endless."""

import json
import re
from typing import Any

# C0 and C1 controls but tab and newline, soft hyphen, bidirectional marks, embeddings, overrides
# and isolates, zero-width space and word joiner, line and paragraph separators, byte order mark,
# tag characters, lone surrogates. The two joiners stay: Persian and Indic scripts need them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""`text` with every control or invisible character written out, as \x1b or \u202e.

    A terminal escape, a carriage return or a direction override in a model's answer could
    otherwise rewrite what a person sees, verdict and all.
    """
    return _UNSEEN.sub(_written, text)


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters and a marker that says how many are left out of the middle.

    The end is kept too, since that is where an answer stands.
    """
    if len(text) <= limit:
        return text
    tail = limit // 3
    left_out = len(text) - limit
    end = text[len(text) - tail :]
    return f"{text[: limit - tail]} […{left_out:,} characters left out…] {end}"


def one_line(text: str, limit: int) -> str:
    """`text` as one printable line of about `limit` characters; newlines become ⏎."""
    return shorten(printable(text.replace("\n", "⏎").replace("\t", " ")), limit)


def safe_json(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can close the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _written(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
