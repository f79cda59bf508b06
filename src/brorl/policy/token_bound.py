"""At least how many tokens a text must give, from its characters alone.

Ten megabytes take a tokenizer the better part of a minute; that they do not fit a model of a
thousand positions is known from a count of characters.
"""

import json
from typing import Any

from tokenizers import pre_tokenizers

_KEEPS = ("ByteLevel", "Metaspace", "Digits")
_DROPS_SPACE = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")
_TO_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


class TokenBound:
    """A lower bound of the number of tokens of any text.

        tokens >= (characters that the vocabulary knows) / (characters of its longest entry)

    Characters that it does not know are not counted, since a run of them may become one <unk>;
    white space is not where a rule may drop it. Where the kind of tokenizer allows no bound it is
    0: WordPiece and WordLevel make one token of a word of any length.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._vocabulary: dict[str, int] | None = None
        self._known: dict[str, bool] = {}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return
        rules = json.loads(backend.to_str())
        model, steps = rules["model"], _steps(rules["pre_tokenizer"])
        renamed = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
        if model["type"] not in ("BPE", "Unigram") or renamed or not all(map(_bounded, steps)):
            return
        kinds = {step["type"] for step in steps}
        self._vocabulary = backend.get_vocab()
        self._longest = max(map(len, self._vocabulary))
        self._normalizer = backend.normalizer
        self._drops_space = not kinds.isdisjoint(_DROPS_SPACE) or any(
            token["lstrip"] or token["rstrip"] for token in rules["added_tokens"]
        )
        self._bytes, self._fallback = "ByteLevel" in kinds, bool(model.get("byte_fallback"))
        self._spaces_marked = "Metaspace" in kinds

    def fewest(self, text: str) -> int:
        """The bound for a text as it would be tokenised: chat template applied, no specials."""
        if self._vocabulary is None:
            return 0
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        known = sum(text.count(c) for c in set(text) if self._counts(c))
        return -(-known // self._longest)

    def _counts(self, character: str) -> bool:
        if character not in self._known:
            dropped = self._drops_space and character.isspace()
            self._known[character] = not dropped and self._in_vocabulary(character)
        return self._known[character]

    def _in_vocabulary(self, character: str) -> bool:
        """Whether a token of its own stands for it, so that no <unk> can swallow it."""
        assert self._vocabulary is not None
        if self._bytes:
            (symbols, _), *_ = _TO_BYTES.pre_tokenize_str(character)
            return all(symbol in self._vocabulary for symbol in symbols)
        if self._spaces_marked and character == " ":
            character = "\N{LOWER ONE EIGHTH BLOCK}"
        return self._fallback or character in self._vocabulary


def _bounded(step: dict[str, Any]) -> bool:
    """Whether a part of the pre-tokenizer drops nothing but white space."""
    if step["type"] in ("Split", "Punctuation"):
        return bool(step["behavior"] != "Removed")
    return step["type"] in (*_KEEPS, *_DROPS_SPACE)


def _steps(described: Any) -> list[dict[str, Any]]:
    """The pre-tokenizer's parts, in order."""
    if described is None:
        return []
    if described["type"] == "Sequence":
        return [step for each in described["pretokenizers"] for step in _steps(each)]
    return [described]
