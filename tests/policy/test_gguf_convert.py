"""A GGUF file becomes the model that it was made from: weights, tokenizer, chat template."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import PolicyError
from brorl.policy.gguf_convert import convert_gguf, file_sha256
from brorl.policy.load import load_policy

from .small_models import model_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of gguf and numpy

HEADS, KV = 4, 2
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
BYTES = [chr(c) for c in range(33, 127)]
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "model.layers.": "blk.",
}


def gguf_name(name):
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def rotated(weight, heads):
    """llama.cpp keeps the two halves of a head's rotary pairs interleaved, row by row."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def written(path, model):
    """A float32 GGUF file of a Llama, as llama.cpp lays it out, with a byte-level BPE."""
    gguf = pytest.importorskip("gguf")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    tokens = ["<|endoftext|>", "<bos>", "<eos>", *BYTES, "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        array = weight.numpy()
        if name == "lm_head.weight":
            continue  # tied
        if "q_proj" in name or "k_proj" in name:
            array = rotated(array, HEADS if "q_proj" in name else KV)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the model, the GGUF file, the converted folder)"""
    folder = tmp_path_factory.mktemp("gguf")
    model = model_of("llama", vocab_size=3 + len(BYTES) + 1, num_key_value_heads=KV)
    file = written(folder / "tiny.gguf", model)
    convert_gguf(file, folder / "hf")
    return model, file, folder / "hf"


def test_logits_are_those_of_the_model_it_was_made_from(made):
    """Oracle: the model before it was written, head by head rotated as llama.cpp does."""
    model, _, folder = made
    ids = torch.tensor([[5, 9, 14, 20, 3, 40, 60]])
    again = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits)
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    assert again.config.tie_word_embeddings


def test_it_is_an_ordinary_checkpoint_that_trains(made):
    """By hand: `ab` is one token by its merge, `ba` two; the EOS of the file; its template."""
    _, file, folder = made
    policy = load_policy(
        str(folder), revision=None, dtype="float32", device="cpu", trained_length=8
    )
    assert policy.eos_ids == {2}
    bare = AutoTokenizer.from_pretrained(folder)
    merged = 3 + len(BYTES)
    assert bare("abba", add_special_tokens=False).input_ids == [
        merged, 3 + BYTES.index("b"), 3 + BYTES.index("a")
    ]  # fmt: skip
    assert policy.decode(policy.encode("ab")) == "<user>ab"
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert json.loads((folder / "source.json").read_text()) == {
        "file": "tiny.gguf", "sha256": file_sha256(file)
    }  # fmt: skip


def test_a_file_that_is_no_gguf_is_one_line_and_leaves_nothing(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(PolicyError, match=r"bad\.gguf: cannot be read as GGUF") as found:
        convert_gguf(bad, tmp_path / "hf")
    assert "\n" not in str(found.value)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.gguf"]
