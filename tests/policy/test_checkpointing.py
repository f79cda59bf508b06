"""Layers that are run again backward: the same numbers, and less that is kept."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from brorl.errors import PolicyError
from brorl.policy.checkpointing import checkpoint_layers

from .small_models import padded, policy_of, ragged
from .test_architectures import FAMILIES


def score(policy, seed=7):
    prompts, groups, answers = ragged(np.random.default_rng(seed), [4, 1, 3], [5, 1, 9])
    tokens, lengths = padded(answers)
    return policy.score(prompts, torch.tensor(groups), tokens, lengths, temperature=0.8).logp_M


def gradients(policy):
    policy.model.zero_grad(set_to_none=True)
    logp = score(policy)
    logp.sum().backward()
    return logp.detach(), [p.grad for p in policy.model.parameters()]


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi", "opt", "gemma", "mixtral", "gpt_neox"])
def test_scores_and_gradients_are_the_same(name):
    """Identity: checkpointed and plain, to the last bit, or to what a sum in another order costs."""
    policy = policy_of(name, **FAMILIES.get(name, {}))
    logp, want = gradients(policy)
    checkpoint_layers(policy.model)
    again, got = gradients(policy)
    assert torch.equal(again, logp)
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_less_is_kept_for_the_backward_pass():
    """Count: numbers that autograd saves while a wide group is scored. A layer keeps its input
    alone, 32 a token, where it kept more than 200."""
    policy = policy_of("qwen3", head_dim=8)
    tokens = torch.randint(3, 37, (64, 8), generator=torch.Generator().manual_seed(0))
    group, lengths = torch.zeros(64, dtype=torch.int64), torch.full((64,), 8)

    def kept():
        seen = {}

        def pack(x):
            seen[x.data_ptr()] = x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            policy.score([[3, 4, 5]], group, tokens, lengths, temperature=1.0)
        return sum(seen.values())

    before = kept()
    checkpoint_layers(policy.model)
    assert kept() < before / 3


def test_a_copy_runs_its_own_layers_and_is_checkpointed_too():
    """Attack: a reference whose layers lead back to the policy's would follow every update."""
    policy = policy_of("llama")
    checkpoint_layers(policy.model)
    checkpoint_layers(policy.model)  # twice is once
    with torch.no_grad():
        before = score(policy)
        model = copy.deepcopy(policy.model)
        for p in policy.model.parameters():
            p.mul_(1.5)
        again = score(type(policy)(model, None, policy.eos_ids, "copy"))
    assert torch.equal(again, before)
    assert type(model.model.layers[0]).__name__ == "LlamaDecoderLayer"


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(PolicyError, match="Sequential has no layer to be run again"):
        checkpoint_layers(nn.Sequential(nn.Linear(2, 2)))
