"""Opening, saving and refusing policies; a refusal is one line that says what is wrong."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from brorl.errors import ConfigError, PolicyError
from brorl.policy.load import check_length, load_policy, save_policy, tiny_policy
from brorl.policy.tiny import ALPHABET, TinyShape, character_tokenizer

from .small_models import model_of, plain, policy_of, tokenizer_of

SHAPE = TinyShape("llama", 2, 32, 4, 2, 48, 64, True)
OPEN = {"revision": None, "dtype": "float32", "device": "cpu", "trained_length": 16}
WORDS = 100  # of the character tokenizer: 97 printable characters, <pad>, <eos>, <unk>


def saved(folder, model, tokenizer=None):
    model.save_pretrained(folder)
    (tokenizer or tokenizer_of()).save_pretrained(folder)
    return folder


def refusal(path, **change):
    with pytest.raises(PolicyError) as caught:
        load_policy(str(path), **(OPEN | change))
    message = str(caught.value)
    assert "\n" not in message
    return message


def changed(folder, name, **values):
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | values))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
def test_saved_policy_opens_elsewhere_with_the_same_bits(tmp_path, architecture, tied):
    """Identity: plain transformers and load_policy both give the logits of what was saved."""
    shape = SHAPE._replace(architecture=architecture, tied=tied)
    policy = tiny_policy(shape, seed=3, device="cpu", trained_length=16)
    save_policy(policy, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    again = load_policy(str(tmp_path), **OPEN)
    ids = torch.tensor([policy.encode("rev abc=")])
    for text in ("rev abc=", ALPHABET, "I'll pay  12\n\n 345 (now)"):
        assert tokenizer(text).input_ids == list(policy.encode(text))
        assert tokenizer.decode(policy.encode(text)) == text
        assert again.encode(text) == policy.encode(text)
    assert again.encode("é") == policy.encode("é")
    assert again.eos_ids == policy.eos_ids == {tokenizer.eos_token_id}
    with torch.no_grad():
        want = policy.model(input_ids=ids).logits
        assert torch.equal(model(input_ids=ids).logits, want)
        assert torch.equal(again.model(input_ids=ids).logits, want)


def test_tokenizer_of_its_own_beside_a_qwen2_model(tmp_path):
    """Attack: AutoTokenizer reads this folder as a Qwen2 tokenizer, and whole words fall apart."""
    own = Tokenizer(models.WordLevel({"<eos>": 0, "<unk>": 1, "two": 2, "words": 3}, "<unk>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<eos>", unk_token="<unk>")
    folder = saved(tmp_path, model_of("qwen2", vocab_size=4), tokenizer)
    assert load_policy(str(folder), **OPEN).encode("two words") == (2, 3)


def test_loaded_policy_is_ready_to_train():
    """Every weight learns, and no dropout: an answer is scored as it was sampled."""
    policy = tiny_policy(SHAPE, seed=0, device="cpu", trained_length=16)
    assert not policy.model.training
    assert all(p.requires_grad for p in policy.model.parameters())


def test_dropout_of_a_checkpoint_never_acts(tmp_path):
    """Identity: a GPT-2 saved with dropout scores the same twice, and like its plain forward."""
    folder = saved(tmp_path, model_of("gpt2", vocab_size=WORDS, resid_pdrop=0.5, attn_pdrop=0.5))
    policy = load_policy(str(folder), **OPEN)
    args = ([[3, 4]], torch.tensor([0]), torch.tensor([[5, 6]]), torch.tensor([2]))
    with torch.no_grad():
        first, second = (policy.score(*args, temperature=1.0).logp_M for _ in "ab")
        want = plain(policy, [3, 4], [5, 6])[0]
    assert torch.equal(first, second)
    torch.testing.assert_close(first.double(), want, rtol=0, atol=1e-5)


def test_every_eos_of_the_generation_config_counts(tmp_path):
    """By hand: the tokenizer's (1) and both of the generation config's (7, 9)."""
    model = model_of("llama", vocab_size=WORDS)
    model.generation_config.eos_token_id = [7, 9]
    assert load_policy(str(saved(tmp_path, model)), **OPEN).eos_ids == {1, 7, 9}


def test_tokenizer_without_eos_is_refused(tmp_path):
    """Attack: Llama's config names token 2 as EOS by default, whatever token 2 is."""
    folder = saved(tmp_path, model_of("llama", vocab_size=WORDS), tokenizer_of(eos=False))
    assert "tokenizer has no EOS" in refusal(folder)


def test_missing_folder_and_empty_folder(tmp_path):
    for path in (tmp_path / "nowhere", "nowhere", "a/b/c", "./a", "~/no/such/folder"):
        assert "no folder" in refusal(path)
    assert "cannot open" in refusal(tmp_path)


def test_home_is_found(tmp_path, monkeypatch):
    """Identity: ~/m is the folder m of the home; the shell leaves it alone in model.path=~/m."""
    monkeypatch.setenv("HOME", str(tmp_path))
    saved(tmp_path / "m", model_of("llama", vocab_size=WORDS))
    assert load_policy("~/m", **OPEN).vocabulary == WORDS


@pytest.mark.parametrize("kind", ["bert", "t5", "base", "classifier"])
def test_models_that_are_not_causal_are_refused(tmp_path, kind):
    """Attack: some of these open as a causal LM with a random head, and would train on noise."""
    if kind == "bert":
        config = AutoConfig.for_model(
            "bert", vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
        )
        model = AutoModel.from_config(config)
    elif kind == "t5":
        config = AutoConfig.for_model("t5", vocab_size=WORDS, d_model=16, num_layers=1, d_ff=16)
        model = AutoModel.from_config(config)
    elif kind == "base":
        model = model_of("llama", vocab_size=WORDS).base_model
    else:
        from transformers import AutoModelForSequenceClassification

        config = model_of("llama", vocab_size=WORDS).config
        model = AutoModelForSequenceClassification.from_config(config)
    message = refusal(saved(tmp_path, model))
    assert "causal" in message


def test_weights_that_are_missing_are_refused(tmp_path):
    """Attack: without its head a checkpoint opens all the same, with a head of random numbers."""
    folder = saved(tmp_path, model_of("llama", vocab_size=WORDS, tie_word_embeddings=False))
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lacks 1 of the weights of LlamaForCausalLM, the first is lm_head" in refusal(folder)


def test_code_in_a_checkpoint_is_neither_run_nor_asked_about(tmp_path, monkeypatch):
    """Attack: a folder that brings its own Python; a question at the terminal would hang a run."""
    folder = saved(tmp_path, model_of("llama", vocab_size=WORDS))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    changed(
        folder,
        "config.json",
        model_type="evil",
        auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},
    )
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked at the terminal"))
    assert "cannot open" in refusal(folder)
    assert not (tmp_path / "ran").exists()


def test_tokenizer_wider_than_the_model_is_refused(tmp_path):
    folder = saved(tmp_path, model_of("llama", vocab_size=WORDS - 1))
    assert f"knows {WORDS} tokens, the model only {WORDS - 1}" in refusal(folder)


def test_unknown_dtype_is_refused(tmp_path):
    assert "model.dtype must be one of float32, bfloat16, float16" in refusal(
        tmp_path, dtype="float64"
    )


def test_dtype_is_the_one_asked_for(tmp_path):
    folder = saved(tmp_path, model_of("llama", vocab_size=WORDS))
    policy = load_policy(str(folder), **(OPEN | {"dtype": "bfloat16"}))
    assert {p.dtype for p in policy.model.parameters()} == {torch.bfloat16}


WINDOWS = {
    "llama, positions": ("llama", {"max_position_embeddings": 24}, 24, "positions"),
    "gpt2, positions": ("gpt2", {"n_positions": 24}, 24, "positions"),
    "mistral, window": ("mistral", {"sliding_window": 8}, 8, "sliding window of 8"),
    "qwen2, window in one layer": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        8,
        "sliding window of 8",
    ),
    "qwen2, window switched off": ("qwen2", {"sliding_window": 8}, 64, "positions"),
    "qwen2, window in no layer": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
        64,
        "positions",
    ),
    "phi3, long factors": (
        "phi3",
        {
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
            },
        },
        16,
        "short factors",
    ),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_length_limits(case):
    """Oracle: at the limit the shared score is the plain forward's; beyond it, it is refused.

    That the refusal is needed where it comes from a window or a rotation: one token more, and
    the two differ by far more than float error.
    """
    architecture, config, limit, named = WINDOWS[case]
    policy = policy_of(architecture, **config)
    check_length(policy, limit)
    with pytest.raises(PolicyError, match=named):
        check_length(policy, limit + 1)

    def gap(tokens):
        ids = torch.randint(2, 37, (tokens,), generator=torch.Generator().manual_seed(5)).tolist()
        prompt, answer = ids[:3], ids[3:]
        lengths = torch.tensor([len(answer)])
        got = policy.score(
            [prompt], torch.tensor([0]), torch.tensor([answer]), lengths, temperature=1.0
        )
        return float((got.logp_M - plain(policy, prompt, answer)[0]).abs().max())

    with torch.no_grad():
        assert gap(limit) < 1e-5
        if named != "positions":
            assert gap(limit + 2) > 1e-2


def test_a_checkpoint_too_short_for_the_run_is_refused(tmp_path):
    folder = saved(tmp_path, model_of("mistral", vocab_size=WORDS, sliding_window=15))
    assert "exceed the sliding window of 15" in refusal(folder)


def test_tiny_policy_comes_from_its_seed_alone():
    """Identity: same seed, same bits, wherever torch's own generator stands, which stays there;
    another seed, another policy."""
    torch.manual_seed(1)
    first = tiny_policy(SHAPE, seed=5, device="cpu", trained_length=16)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = tiny_policy(SHAPE, seed=5, device="cpu", trained_length=16)
    assert torch.equal(torch.get_rng_state(), state)
    other = tiny_policy(SHAPE, seed=6, device="cpu", trained_length=16)
    for a, b, c in zip(*(p.model.parameters() for p in (first, second, other)), strict=True):
        assert torch.equal(a, b)
        assert a.ndim == 1 or not torch.equal(a, c)  # norms begin as ones


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        # embedding 100*32; a layer: q 32*32, k and v 32*16, o 32*32, MLP 3*32*48, norms 2*32
        (SHAPE, 3200 + 2 * (1024 + 2 * 512 + 1024 + 4608 + 64) + 32),
        (SHAPE._replace(kv_heads=4), 3200 + 2 * (4 * 1024 + 4608 + 64) + 32),
        (SHAPE._replace(tied=False), 2 * 3200 + 2 * (1024 + 2 * 512 + 1024 + 4608 + 64) + 32),
        # Qwen2 adds biases of q (32), k and v (16 each)
        (
            SHAPE._replace(architecture="qwen2"),
            3200 + 2 * (1024 + 2 * 512 + 1024 + 4608 + 64 + 64) + 32,
        ),
        # positions 64*32; a layer: attention 32*96+96 and 32*32+32, MLP 2*32*48+48+32, norms 4*32
        (
            SHAPE._replace(architecture="gpt2"),
            3200 + 2048 + 2 * (3168 + 1056 + 3152 + 128) + 64,
        ),
    ],
    ids=["llama", "more KV heads", "untied", "qwen2", "gpt2"],
)
def test_tiny_policy_has_the_shape_that_was_asked_for(shape, count):
    """Parameters counted by hand from the architecture."""
    policy = tiny_policy(shape, seed=0, device="cpu", trained_length=16)
    assert sum(p.numel() for p in policy.model.parameters()) == count
    check_length(policy, 64)
    with pytest.raises(PolicyError, match="need 65 positions"):
        check_length(policy, 65)


def test_tiny_policy_of_an_unknown_architecture():
    with pytest.raises(ConfigError, match="must be one of llama, qwen2, gpt2, got 'mamba'"):
        tiny_policy(SHAPE._replace(architecture="mamba"), seed=0, device="cpu", trained_length=16)


def test_character_tokenizer_round_trip():
    """Identity: every character of the alphabet is a token of its own and comes back; a stranger
    is <unk>, which is no character."""
    tokenizer = character_tokenizer()
    ids = tokenizer(ALPHABET).input_ids
    assert len(set(ids)) == len(ALPHABET) == 97
    assert tokenizer.decode(ids) == ALPHABET
    assert tokenizer("é").input_ids == [tokenizer.unk_token_id]
    assert tokenizer.unk_token_id not in ids
    assert len({tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}) == 3
