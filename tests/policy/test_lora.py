"""Adapters: what learns, what is saved, and that a run goes on from them bit for bit."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from train.runs import Killed, Stopper, lines, newest, no_report, same_end
from train.toys import recipe
from transformers import AutoModelForCausalLM

from brorl.errors import PolicyError
from brorl.policy.load import load_policy, save_policy
from brorl.policy.lora import add_lora, has_lora, restore_lora
from brorl.train import api
from brorl.train.reference import Reference

from .small_models import model_of, padded, plain_rows, policy_of, ragged, tokenizer_of

pytest.importorskip("peft", reason="the extra peft is not installed")
__all__ = ["no_report"]
LORA = {"rank": 4, "alpha": 8, "target_modules": "all-linear", "seed": 1}
IDS = torch.tensor([[5, 9, 3, 20, 7]])
WORDS = 100


def adapted(architecture="llama", seed=0, moved=True, **config):
    """A policy with an adapter; moved: away from the 0 that it begins as."""
    policy = policy_of(architecture, seed=seed, tokenizer=tokenizer_of(), **config)
    add_lora(policy, **LORA)
    if moved:
        g = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, p in policy.model.named_parameters():
                if "lora_B" in name:
                    p.normal_(0.0, 0.1, generator=g)
    return policy


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_it_begins_as_the_base_and_only_the_adapter_learns():
    """Identity: B is 0. By hand: a layer's seven projections have rank 4 · (in + out) weights each:
    q, o 4·64, k, v 4·48, gate, up, down 4·96, two layers."""
    policy = adapted(moved=False)
    assert torch.equal(logits(policy.model), logits(model_of("llama")))
    learning = {n: p for n, p in policy.model.named_parameters() if p.requires_grad}
    assert all("lora_" in n for n in learning)
    assert sum(p.numel() for p in learning.values()) == 2 * 4 * (2 * 64 + 2 * 48 + 3 * 96)
    assert any(p.abs().sum() > 0 for n, p in learning.items() if "lora_A" in n)


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi"])
def test_scores_and_gradients_are_those_of_plain_forwards(name):
    """Oracle: one ordinary forward a row of the same adapted model."""
    policy = adapted(name, tie_word_embeddings=False)
    prompts, groups, answers = ragged(np.random.default_rng(7), [4, 1, 3], [5, 1, 9])
    tokens, lengths = padded(answers)

    def gradients(logp):
        policy.model.zero_grad(set_to_none=True)
        logp.sum().backward()
        return {n: p.grad for n, p in policy.model.named_parameters() if p.grad is not None}

    got = policy.score(prompts, torch.tensor(groups), tokens, lengths, temperature=1.0).logp_M
    shared = gradients(got)
    want, _ = plain_rows(policy, prompts, groups, answers)
    torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-5)
    rowwise = gradients(want)
    whole = torch.cat([g.flatten() for g in rowwise.values()]).norm()
    assert shared.keys() == rowwise.keys()
    assert all((shared[n] - g).norm() <= 1e-5 * whole for n, g in rowwise.items())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_saved_model_is_merged_and_peft_reads_the_adapter(tmp_path, name, tied):
    """Oracle: plain transformers opens the folder; peft puts adapter/ on a fresh base."""
    from peft import PeftModel

    policy = adapted(name, tie_word_embeddings=tied)
    save_policy(policy, tmp_path)
    want = logits(policy.model)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(merged).__name__ == type(policy.model).__name__
    torch.testing.assert_close(logits(merged), want, rtol=0, atol=1e-5)
    base = model_of(name, tie_word_embeddings=tied)
    assert not torch.allclose(logits(base), want, atol=1e-2)
    with_adapter = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(logits(with_adapter), want, rtol=0, atol=1e-6)


def test_it_is_restored_to_the_bit_and_only_on_its_own_base(tmp_path):
    policy = adapted()
    save_policy(policy, tmp_path)
    again = adapted(moved=False)
    restore_lora(again, tmp_path)
    assert torch.equal(logits(again.model), logits(policy.model))
    with pytest.raises(PolicyError, match="weights of test llama have changed since"):
        restore_lora(adapted(seed=1), tmp_path)
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    held = load_file(weights)
    held.pop(sorted(held)[0])
    save_file(held, weights, metadata={"format": "pt"})
    with pytest.raises(PolicyError, match="another shape than lora asks for"):
        restore_lora(again, tmp_path)
    weights.unlink()
    with pytest.raises(PolicyError, match="no adapter to go on from"):
        restore_lora(again, tmp_path)


@pytest.mark.parametrize(
    ("modules", "message"),
    [(("nowhere",), "lora.target_modules"), (("lm_head",), "one linear map; leave it out")],
)
def test_modules_that_cannot_be_adapted_are_refused(modules, message):
    policy = policy_of("llama", tie_word_embeddings=False)
    with pytest.raises(PolicyError, match=message) as found:
        add_lora(policy, **(LORA | {"target_modules": modules}))
    assert "\n" not in str(found.value)


def test_a_reference_shares_the_base_and_not_the_adapter():
    """Identity: frozen weights lie where the policy's do; a step of the adapter leaves it alone."""
    policy = adapted()
    reference = Reference(policy, 0)
    before = logits(reference.policy.model)
    for (name, ours), theirs in zip(
        policy.model.named_parameters(), reference.policy.model.parameters(), strict=True
    ):
        assert (ours.data_ptr() == theirs.data_ptr()) == ("lora_" not in name)
    with torch.no_grad():
        for name, p in policy.model.named_parameters():
            if "lora_" in name:
                p.add_(0.1)
    assert torch.equal(logits(reference.policy.model), before)
    reference.reset(policy, 1)
    assert torch.equal(logits(reference.policy.model), logits(policy.model))


# Whole runs


def run_of(tmp_path, **changes):
    model = model_of("llama", vocab_size=WORDS, initializer_range=0.1)
    model.save_pretrained(tmp_path / "base")
    tokenizer_of().save_pretrained(tmp_path / "base")
    changes = {
        "model": {"shape": None, "path": str(tmp_path / "base")}, "lora": {"rank": 4, "alpha": 8},
        "steps": 4, "save_every": 2, "eval_every": None, "kl_coef": 0.05, "ref": {"reset_every": 2},
    } | changes  # fmt: skip
    return str(recipe(tmp_path, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_resumes_bit_for_bit_and_leaves_the_base_alone(tmp_path, no_report, dtype):
    """Identity, with a reference that is reset, checkpointed layers and, in bfloat16, masters."""
    made = run_of(tmp_path)
    over = {"model.dtype": dtype, "model.gradient_checkpointing": True}
    api.train(made, over | {"run_dir": tmp_path / "whole"})
    with pytest.raises(Killed):
        api.train(made, over | {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "whole", tmp_path / "run")
    ends = [load_file(newest(tmp_path / r) / "adapter" / "adapter_model.safetensors")
            for r in ("whole", "run")]  # fmt: skip
    assert all(torch.equal(ends[0][k], ends[1][k]) for k in ends[0])
    assert any(t.abs().sum() > 0 for k, t in ends[0].items() if "lora_B" in k)
    opened = load_policy(
        str(newest(tmp_path / "run")), revision=None, dtype=dtype, device="cpu", trained_length=8
    )
    assert not has_lora(opened)
    assert [m["step"] for m in lines(tmp_path / "run")] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_base_that_changed_is_one_line_on_resume(tmp_path, no_report):
    made = run_of(tmp_path)
    with pytest.raises(Killed):
        api.train(made, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    weights = tmp_path / "base" / "model.safetensors"
    held = load_file(weights)
    held["model.norm.weight"] += 1
    save_file(held, weights, metadata={"format": "pt"})
    with pytest.raises(PolicyError, match=r"model\.path: the weights of .* have changed since"):
        api.resume(tmp_path / "run")
