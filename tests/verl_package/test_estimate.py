"""Counts of a recipe on GPUs, by hand."""

import pytest

from brorl.train.recipe import load_recipe
from brorl.verl.estimate import estimate

SHAPE = (
    "model.shape={layers: 2, hidden: 8, heads: 2, kv_heads: 1, mlp: 16, vocabulary: 10, tied: true}"
)


def test_by_hand():
    """Weights 80 + 2 (8 (8 + 2 4) + 8 8 + 3 8 16 + 2 8) + 8 = 1272; 4 bytes · 2 · 2 layers · 1 · 4 = 64
    a token; 2 · 64 samples of 10 + 12 tokens; 10 · 1272 · 2816 FLOPs (no reference) on 2 cards."""
    s = load_recipe("quickstart", ["warmstart=null", SHAPE, "prompts_per_step=2"])
    found = estimate(s, gpus=2, max_prompt_tokens=10)
    assert found.parameters == 1272
    assert found.sharded == 1272 * 16 // 2
    assert found.reference == 0
    assert found.engine_weights == 1272 * 4
    assert (found.kv_token, found.kv_answer) == (64, 64 * 12)
    assert found.tokens == 128 * 22
    assert found.update_s == pytest.approx(10 * 1272 * 2816 / (2 * 989e12 * 0.4))


def test_a_reference_costs_memory_and_a_pass():
    s = load_recipe("quickstart", ["warmstart=null", SHAPE, "prompts_per_step=2"])
    k = load_recipe("quickstart", ["warmstart=null", SHAPE, "prompts_per_step=2", "kl_coef=0.1"])
    plain, with_kl = (estimate(x, gpus=2, max_prompt_tokens=10) for x in (s, k))
    assert with_kl.reference == 1272 * 4 // 2
    assert with_kl.update_s / plain.update_s == pytest.approx(1.2)
