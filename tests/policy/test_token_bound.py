"""The bound on tokens by characters: never above the truth, and near enough to be of use.

Oracle: the tokenizer itself, on made-up texts, for every kind of tokenizer that has a bound.
"""

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from brorl.policy.tiny import character_tokenizer
from brorl.policy.token_bound import TokenBound

MARK = "\N{LOWER ONE EIGHTH BLOCK}"
PIECES = ["<unk>", "a", "b", "ab", "abab", "é", "e", MARK, MARK + "a", "0", "1", "01"]


def fast(model, *, pre=None, normalizer=None, added=()):
    made = Tokenizer(model)
    if pre is not None:
        made.pre_tokenizer = pre
    if normalizer is not None:
        made.normalizer = normalizer
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    wrapped.add_tokens(list(added))
    return wrapped


def bpe(**kinds):
    merges = [("a", "b"), ("ab", "ab"), (MARK, "a"), ("0", "1")]
    vocabulary = {piece: i for i, piece in enumerate(PIECES)}
    return models.BPE(vocabulary, merges, unk_token="<unk>", **kinds)


def unigram():
    return models.Unigram([(piece, -float(len(piece))) for piece in PIECES], 0, False)


def byte_level():
    symbols = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {s: i for i, s in enumerate(["<unk>", *sorted(symbols), "ab", "abab"])}
    return models.BPE(vocabulary, [("a", "b"), ("ab", "ab")], unk_token="<unk>")


SPLIT = Regex(r"\s?\w+|\s+|[^\s\w]+")
BOUNDED = {
    "the tiny policy's": character_tokenizer,
    "fused unknowns": lambda: fast(bpe(fuse_unk=True)),
    "single unknowns": lambda: fast(bpe(fuse_unk=False)),
    "split": lambda: fast(bpe(), pre=pre_tokenizers.Split(SPLIT, "isolated")),
    "white space dropped": lambda: fast(bpe(fuse_unk=True), pre=pre_tokenizers.WhitespaceSplit()),
    "marked spaces": lambda: fast(unigram(), pre=pre_tokenizers.Metaspace()),
    "canonical composition": lambda: fast(bpe(fuse_unk=True), normalizer=normalizers.NFC()),
    "stripped": lambda: fast(unigram(), normalizer=normalizers.Strip()),
    "bytes": lambda: fast(byte_level(), pre=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "tokens that eat space": lambda: fast(
        bpe(), added=[AddedToken("<turn>", rstrip=True), AddedToken("zzzzzzzzzz")]
    ),
}
CHARACTERS = st.sampled_from(
    [*"abé01 \n日😀", "e\u0301", MARK, "abab", "<turn>   ", "zzzzzzzzzz", "日" * 50, " " * 50]
)


@pytest.mark.parametrize("kind", BOUNDED)
@examples(max_examples=60, deadline=None, derandomize=True)
@given(pieces=st.lists(CHARACTERS, max_size=30))
def test_it_is_never_above_what_the_tokenizer_gives(kind, pieces):
    tokenizer, text = BOUNDED[kind](), "".join(pieces)
    tokens = tokenizer(text, add_special_tokens=False).input_ids
    assert TokenBound(tokenizer).fewest(text) <= len(tokens)


def test_by_hand():
    """Longest entry 5 characters (<unk>): 1,000 letters are at least 200 tokens. 日 is unknown,
    so that a thousand of it are one <unk>, and bound nothing."""
    bound = TokenBound(fast(bpe(fuse_unk=True)))
    assert bound.fewest("ab" * 500) == 200
    assert bound.fewest("日" * 1000) == 0
    assert bound.fewest("") == 0


@pytest.mark.parametrize("kind", [k for k in BOUNDED if k != "tokens that eat space"])
def test_it_grows_with_the_text(kind):
    """At least a tenth of the characters, so that megabytes do not fit thousands of positions."""
    assert TokenBound(BOUNDED[kind]()).fewest("ab01" * 1000) >= 400


def test_words_of_any_length_have_no_bound():
    """Oracle: the tokenizers themselves give one token."""
    level = models.WordLevel({"<unk>": 0, "a": 1}, "<unk>")
    piece = models.WordPiece(
        vocab={"<unk>": 0, "a": 1, "##a": 2}, unk_token="<unk>", max_input_chars_per_word=10
    )
    for model in (level, piece):
        tokenizer = fast(model, pre=pre_tokenizers.WhitespaceSplit())
        assert len(tokenizer("a" * 5000, add_special_tokens=False).input_ids) == 1
        assert TokenBound(tokenizer).fewest("a" * 5000) == 0
    removed = fast(bpe(), pre=pre_tokenizers.Split(Regex("a"), "removed"))
    assert removed("a" * 5000, add_special_tokens=False).input_ids == []
    assert TokenBound(removed).fewest("a" * 5000) == 0
