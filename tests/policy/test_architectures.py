"""Families of models at toy size: scored, trained on and sampled from as by their plain forward."""

import numpy as np
import pytest
import torch

from brorl.errors import PolicyError
from brorl.policy.support import check_shared_prefix
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling

from .small_models import VOCABULARY, padded, plain, plain_rows, policy_of, ragged

MOE = {"num_experts": 4, "num_experts_per_tok": 2}
NO_CAPS = {"final_logit_softcapping": None, "attn_logit_softcapping": None}
FAMILIES = {
    "mistral": {},
    "qwen3": {"head_dim": 8},
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8, **NO_CAPS},
    "gemma3_text": {
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi": {"tie_word_embeddings": False},
    "phi3": {"tie_word_embeddings": False},
    "gpt_neox": {"tie_word_embeddings": False},
    "gptj": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "rotary_dim": 4,
        "n_positions": 64,
        "tie_word_embeddings": False,
    },
    "gpt_bigcode": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 64,
        "n_positions": 64,
    },
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "starcoder2": {},
    "olmo2": {},
    "smollm3": {},
    "olmoe": MOE,
    "qwen2_moe": MOE | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "qwen3_moe": MOE | {"moe_intermediate_size": 16, "head_dim": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.1},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
EXPERTS = ["olmoe", "qwen2_moe", "qwen3_moe", "mixtral", "granitemoe"]
REFUSED = {  # by what stands against a shared prompt
    "gemma2": ({"head_dim": 8}, "soft-capped"),
    "gpt_neo": (
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]},
        "0 of its 2 layers hand over",
    ),
    "bloom": ({"n_layer": 2, "n_head": 4}, "0 of its 2 layers hand over"),
    "stablelm": ({}, "did not pass `reader`"),
    "falcon": ({}, "cannot share prompts"),
    "deepseek_v3": ({}, "cannot share prompts"),
}


def batch(seed=7):
    """(prompts, group of each row, answers): uneven groups, answers of one token and of six."""
    return ragged(np.random.default_rng(seed), [4, 1, 3], [5, 1, 9])


def score(policy, prompts, groups, answers):
    tokens, lengths = padded(answers)
    return policy.score(prompts, torch.tensor(groups), tokens, lengths, temperature=0.8)


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_and_gradients_are_those_of_plain_forwards(name):
    """Oracle: one ordinary forward a row; every parameter's gradient, to 1e-5 of the whole."""
    policy = policy_of(name, **FAMILIES[name])
    check_shared_prefix(policy)
    prompts, groups, answers = batch()
    weight = torch.from_numpy(np.random.default_rng(1).standard_normal(sum(map(len, answers))))

    def gradients(logp):
        policy.model.zero_grad(set_to_none=True)
        (logp * weight).sum().backward()
        return {n: p.grad for n, p in policy.model.named_parameters() if p.grad is not None}

    got = score(policy, prompts, groups, answers)
    shared = gradients(got.logp_M)
    logp, entropy = plain_rows(policy, prompts, groups, answers, 0.8)
    rowwise = gradients(logp)
    torch.testing.assert_close(got.logp_M.double(), logp, rtol=0, atol=1e-5)
    torch.testing.assert_close(got.entropy_M.double(), entropy, rtol=0, atol=1e-5)
    whole = torch.cat([g.flatten() for g in rowwise.values()]).norm()
    assert whole > 1.0
    assert shared.keys() == rowwise.keys()
    for parameter, g in rowwise.items():
        assert (shared[parameter] - g).norm() <= 1e-5 * whole, parameter


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_sampled_has_the_log_probs_of_a_plain_forward(name):
    """Oracle, as above, of answers that the engine drew token by token."""
    policy = policy_of(name, **FAMILIES[name])
    engine = EmbeddedEngine(policy, memory_budget=1 << 24)
    prompts = [(5, 6, 7), (8,)]
    asked = [Request(f"g{i}", f"p{i}", p, 0, 4, seed=i) for i, p in enumerate(prompts)]
    for prompt, completions in zip(
        prompts, engine.sample(asked, Sampling(1.0, 1.0, 0, 6)), strict=True
    ):
        for c in completions:
            want, _ = plain(policy, prompt, c.tokens.tolist())
            np.testing.assert_allclose(c.logprobs, want.detach().numpy(), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_share_is_refused_by_name(name):
    config, message = REFUSED[name]
    policy = policy_of(name, **config)
    with pytest.raises(PolicyError, match=rf"{type(policy.model).__name__} \({name}\).*{message}"):
        check_shared_prefix(policy)


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_are_chosen_token_by_token(name):
    """Identity: 40 rows that all want the same experts at once score as one row alone does.

    An expert with a capacity would drop some of them, and a choice over the batch would move.
    """
    policy = policy_of(name, **FAMILIES[name])
    answer = [7, 3, 9, 9, 2, 30]
    with torch.no_grad():
        alone = score(policy, [[5, 6, 7]], [0], [answer]).logp_M
        crowd = score(policy, [[5, 6, 7]], [0] * 40, [answer] * 40).logp_M
    torch.testing.assert_close(crowd.view(40, -1), alone.expand(40, -1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", EXPERTS)
def test_no_loss_of_the_router_is_added(name):
    """Identity: whatever router_aux_loss_coef says, the gradient is that of the log-probs alone."""
    grads = []
    for coefficient in (0.0, 10.0):
        policy = policy_of(
            name, router_aux_loss_coef=coefficient, output_router_logits=True, **FAMILIES[name]
        )
        logp = score(policy, *batch()).logp_M
        logp.sum().backward()
        grads.append([p.grad for p in policy.model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert policy.vocabulary == VOCABULARY
