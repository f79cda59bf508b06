"""A tiny policy made on the spot: a stock Hugging Face architecture and a character tokenizer.

Nothing is downloaded. Saved with `save_pretrained`, it is an ordinary checkpoint folder that
`AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` open.
"""

import string
from typing import Any, NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from brorl.errors import ConfigError

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
ALPHABET = "".join(c for c in string.printable if c not in "\r\x0b\x0c")
ARCHITECTURES = ("llama", "qwen2", "gpt2")


class TinyShape(NamedTuple):
    """What a tiny policy looks like; widths in numbers per token."""

    architecture: str  # one of ARCHITECTURES
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int
    max_positions: int
    tied: bool  # output embedding = input embedding


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character: printable ASCII, newline and tab; others become <unk>.

    No BOS, so that nothing can be doubled; <pad> and <eos> are different tokens. Built as a
    byte-level BPE without merges, because AutoTokenizer takes every tokenizer beside a Qwen2
    model for one of those, and splits text by its own rule: it must find the same characters.
    """
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [to_bytes.pre_tokenize_str(c)[0][0] for c in ALPHABET]
    vocabulary = {piece: i for i, piece in enumerate([PAD, EOS, UNKNOWN, *pieces])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=UNKNOWN, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), to_bytes]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )


def tiny_model(shape: TinyShape, vocabulary: int, eos_id: int, pad_id: int, seed: int) -> Any:
    """A randomly initialised float32 causal LM of the given shape, the same for the same seed."""
    if shape.architecture not in ARCHITECTURES:
        raise ConfigError(
            f"model.shape.architecture must be one of {', '.join(ARCHITECTURES)}, "
            f"got {shape.architecture!r}"
        )
    common = {
        "vocab_size": vocabulary,
        "eos_token_id": eos_id,
        "bos_token_id": None,
        "pad_token_id": pad_id,
        "tie_word_embeddings": shape.tied,
    }
    if shape.architecture == "gpt2":
        config = AutoConfig.for_model(
            "gpt2",
            n_embd=shape.hidden,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_inner=shape.mlp,
            n_positions=shape.max_positions,
            **{f"{part}_pdrop": 0.0 for part in ("resid", "embd", "attn")},
            **common,
        )
    else:
        config = AutoConfig.for_model(
            shape.architecture,
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            intermediate_size=shape.mlp,
            max_position_embeddings=shape.max_positions,
            **common,
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)
