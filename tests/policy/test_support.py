"""The start-up check: what shares a prompt exactly is let in, all else is refused by name."""

import pytest
import torch

from brorl.errors import PolicyError
from brorl.policy.model import Policy
from brorl.policy.support import check_shared_prefix

from .small_models import policy_of

SUPPORTED = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gpt2": {},
    "mistral": {},
    "olmo2": {},
    "phi3": {},
    "gemma": {"head_dim": 8},
}

REFUSED = {
    "mamba": ({"state_size": 4}, r"MambaForCausalLM \(mamba\)"),
    "gemma2": ({"head_dim": 8}, r"Gemma2ForCausalLM \(gemma2\).*soft-capped"),
    "gemma3_text": (
        {"head_dim": 8, "final_logit_softcapping": 30.0},
        r"Gemma3ForCausalLM \(gemma3_text\).*soft-capped",
    ),
    "jamba": ({"num_experts": 2}, r"JambaForCausalLM \(jamba\).*(mamba|linear_attention) layers"),
    "qwen3_next": ({"head_dim": 8}, r"Qwen3NextForCausalLM \(qwen3_next\).*linear_attention"),
    "cohere": ({}, r"CohereForCausalLM \(cohere\).*differ"),
    "granite": ({"logits_scaling": 8.0}, r"GraniteForCausalLM \(granite\).*differ"),
    "gpt_oss": ({"head_dim": 8, "num_local_experts": 2}, r"GptOssForCausalLM.*s_aux"),
    "bert": ({"max_position_embeddings": 64}, r"BertLMHeadModel \(bert\)"),
}


@pytest.mark.parametrize("name", SUPPORTED)
@pytest.mark.parametrize("scale", [0.02, 0.25])
def test_ordinary_architectures_pass(name, scale):
    check_shared_prefix(policy_of(name, initializer_range=scale, **SUPPORTED[name]))


@pytest.mark.filterwarnings("ignore")  # of optional kernels that these models would like to have
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("scale", [0.02, 0.25], ids=["as initialised", "sharp"])
def test_what_cannot_share_is_refused_by_name(name, scale):
    """Attack: each would train on log-probs of another distribution, in silence.

    At Hugging Face's own initial scale (0.02) some differ by less than the probe's tolerance,
    so the reason must come from what the model is.
    """
    config, message = REFUSED[name]
    policy = policy_of(name, initializer_range=scale, **config)
    with pytest.raises(PolicyError, match=message) as caught:
        check_shared_prefix(policy)
    assert "\n" not in str(caught.value)


def test_a_head_that_is_more_than_a_linear_map_is_refused():
    """Attack: a model that adds to its logits after the head."""
    policy = policy_of("llama")
    policy.model.lm_head.register_forward_hook(lambda m, i, out: out + torch.arange(37.0))
    with pytest.raises(PolicyError, match=r"LlamaForCausalLM \(llama\).*differ"):
        check_shared_prefix(policy)


def test_a_model_that_gives_nan_is_refused():
    policy = policy_of("llama")
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(PolicyError, match="differ from a plain forward by nan"):
        check_shared_prefix(policy)


def test_a_layer_that_keeps_its_keys_is_refused():
    """Attack: one of two layers attends by itself, so answers would not see the prompt there."""
    policy = policy_of("llama")
    layer = policy.model.model.layers[1]
    forward = layer.self_attn.forward
    layer.self_attn.forward = lambda *a, **k: (torch.zeros_like(k["hidden_states"]), None)
    assert forward is not layer.self_attn.forward
    with pytest.raises(PolicyError, match="1 of its 2 layers hand over"):
        check_shared_prefix(policy)


def test_bfloat16_passes():
    """The tolerance is that of the dtype: 8 bits against 24."""
    policy = policy_of("llama", initializer_range=0.1)
    policy.model.to(torch.bfloat16)
    check_shared_prefix(Policy(policy.model, None, policy.eos_ids, "bf16"))
