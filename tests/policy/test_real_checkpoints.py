"""Runs on checkpoints with the habits of real ones: families, pads, several ends, foreign tokenizers."""

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from train.runs import Killed, Stopper, lines, newest, no_report, same_end
from train.toys import recipe
from transformers import PreTrainedTokenizerFast

from brorl.record.rollouts import read_rollouts
from brorl.train import api

from .small_models import model_of, tokenizer_of
from .test_architectures import FAMILIES

__all__ = ["no_report"]
pytestmark = pytest.mark.usefixtures("no_report")
WORDS = 100  # of the character tokenizer


def checkpoint(folder, architecture="llama", tokenizer=None, ends=None, **config):
    """A saved model of toy size beside its tokenizer."""
    config = {"vocab_size": WORDS, "initializer_range": 0.1} | config
    model = model_of(architecture, **config)
    if ends is not None:
        model.generation_config.eos_token_id = ends
    model.save_pretrained(folder)
    (tokenizer or tokenizer_of()).save_pretrained(folder)
    return folder


def made(folder, model, **changes):
    """A recipe that trains a checkpoint; see tests/train/toys.py."""
    folder.mkdir(exist_ok=True)
    return str(recipe(folder, model={"shape": None, "path": str(model)}, **changes))


def train(folder, model, **changes):
    """The metrics of a run of two steps."""
    api.train(made(folder, model, steps=2, save_every=2, **changes), {"run_dir": folder / "run"})
    return lines(folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_on_any_family_resumes_bit_for_bit(tmp_path, name):
    """Identity: killed after step 3 and resumed, with a reference and carried groups, as unbroken."""
    model = checkpoint(tmp_path / "model", name, **FAMILIES[name])
    recipe_ = made(
        tmp_path / "recipe", model, steps=4, save_every=2, eval_every=None, kl_coef=0.05,
        ref={"reset_every": 2}, dynamic_sampling={"surplus": "carry"},
    )  # fmt: skip
    api.train(recipe_, {"run_dir": tmp_path / "whole"})
    with pytest.raises(Killed):
        api.train(recipe_, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "whole", tmp_path / "run")
    for metrics in lines(tmp_path / "run")[1:]:
        assert abs(metrics.get("mismatch/kl", 0.0)) < 1e-4


@pytest.mark.slow
def test_bfloat16_with_float32_masters_resumes_bit_for_bit(tmp_path):
    """Identity, as above; and the masters hold what the saved weights do not.

    At a rate of 1e-5 plain bfloat16 weights would not move at all.
    """
    model = checkpoint(tmp_path / "model", "llama")
    recipe_ = made(
        tmp_path / "recipe", model, steps=4, save_every=2, eval_every=None, lr=1e-5,
        optimizer={"grad_clip": 1.0},
    )  # fmt: skip
    over = {"model.dtype": "bfloat16", "model.gradient_checkpointing": True}
    api.train(recipe_, over | {"run_dir": tmp_path / "whole"})
    with pytest.raises(Killed):
        api.train(recipe_, over | {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "whole", tmp_path / "run")
    end = newest(tmp_path / "run")
    weights = load_file(end / "model.safetensors")
    masters = torch.load(end / "trainer" / "optimizer.pt", weights_only=True)["masters"]
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}
    assert {m.dtype for m in masters} == {torch.float32}
    assert any(not torch.equal(m, m.bfloat16().float()) for m in masters)


@pytest.mark.slow
def test_the_pad_token_decides_nothing(tmp_path):
    """Identity: a pad of its own, pad = EOS and no pad give the same numbers to the last bit."""
    seen = []
    for i, pad in enumerate(("own", "EOS", "none")):
        tokenizer = tokenizer_of()
        if pad != "own":
            tokenizer.pad_token = tokenizer.eos_token if pad == "EOS" else None
        model = checkpoint(tmp_path / f"model{i}", tokenizer=tokenizer, ends=[1, *range(10, 60)])
        seen.append(train(tmp_path / f"run{i}", model))
    assert seen[0] == seen[1] == seen[2]
    assert any(m["response/length_mean"] < 4 for m in seen[0][1:]), "no answer ended: says nothing"


def test_every_end_ends_an_answer(tmp_path):
    """By hand: of answers that stopped at EOS the last id is an end, and no other id of theirs is."""
    ends = [1, *range(10, 60)]
    model = checkpoint(tmp_path / "model", ends=ends)
    train(tmp_path / "run", model)
    rows = read_rollouts(tmp_path / "run" / "run", 1).to_pylist()
    stopped = [r for r in rows if r["stop"] == "eos"]
    assert {r["response_ids"][-1] for r in stopped} > {1} or len(stopped) > 10
    for row in rows:
        ids = list(row["response_ids"])
        assert all(i not in ends for i in ids[:-1])
        assert (ids[-1] in ends) == (row["stop"] == "eos")


@pytest.mark.slow
@pytest.mark.parametrize("bos", ["<bos>", "<eos>", None], ids=["BOS", "BOS = EOS", "no BOS"])
def test_bos_stands_once_before_every_prompt_or_not_at_all(tmp_path, bos):
    tokenizer = tokenizer_of(bos=bos)
    vocabulary = len(tokenizer)
    model = checkpoint(tmp_path / "model", tokenizer=tokenizer, vocab_size=vocabulary)
    train(tmp_path / "run", model)
    for row in read_rollouts(tmp_path / "run" / "run", 1).to_pylist():
        ids = list(row["prompt_ids"])
        assert (ids[0] == tokenizer.bos_token_id) == (bos is not None)
        assert ids.count(tokenizer.bos_token_id) == (bos is not None)


def lossy_tokenizer():
    """Lower case, words apart, "ab" for "a" + "b": no text that was sampled need come back as it was."""
    letters = {c: i + 3 for i, c in enumerate("abcdefghijklmnopqrstuvwxyz0123456789=")}
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **letters}
    for word in ("ab", "aba", "12", "123", "q0"):
        vocabulary[word] = len(vocabulary)
    merges = [("a", "b"), ("ab", "a"), ("1", "2"), ("12", "3"), ("q", "0")]
    own = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    own.normalizer = normalizers.Lowercase()
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=own, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def test_what_was_sampled_is_trained_on_and_not_its_text(tmp_path):
    """Attack: read again, these texts are other tokens; the update must score the sampled ones.

    Seen in the mismatch of engine and trainer, which would be whole nats, and in the record.
    """
    tokenizer = lossy_tokenizer()
    model = checkpoint(tmp_path / "model", tokenizer=tokenizer, vocab_size=len(tokenizer))
    metrics = train(tmp_path / "run", model, rollout={"max_new_tokens": 8})
    rows = read_rollouts(tmp_path / "run" / "run", 1).to_pylist()
    again = [tokenizer(r["text"]).input_ids for r in rows]
    ids = [[i for i in r["response_ids"] if i != 1] for r in rows]
    assert sum(a != b for a, b in zip(again, ids, strict=True)) > len(rows) // 10
    assert all(abs(m["mismatch/ratio_max"] - 1) < 1e-3 for m in metrics[1:])
