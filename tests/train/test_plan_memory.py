"""The plan's memory against runs: within a quarter of the peak above the imports.

Slow: each case is a process of its own (docs/measure_memory.py).
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from brorl.policy import joint_attention, layer_halves, token_logprobs
from brorl.train import plan_memory
from brorl.train.plan_memory import adapter_parameters, memory_parts
from brorl.train.settings import ShapeSettings

from .toys import settings

ROOT = Path(__file__).parents[2]
CASES = ["tiny", "small", "middle, with a reference", "large, another kind of layer", "SmolLM2"]
SMOLLM2 = Path("~/.cache/brorl/models/SmolLM2-135M-Instruct").expanduser()
SHAPE = ShapeSettings(layers=2, hidden=32, heads=4, kv_heads=2, mlp=64)


def measuring():
    spec = importlib.util.spec_from_file_location("measure", ROOT / "docs/measure_memory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cases_are_those_of_the_script_and_of_the_record():
    recorded = json.loads((ROOT / "docs/results/memory.json").read_text())
    assert list(measuring().CASES) == CASES == [c["name"] for c in recorded["cases"]]
    for case in recorded["cases"]:
        assert case["planned"]["total"] == pytest.approx(case["measured"], rel=0.25), case["name"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
@pytest.mark.parametrize("name", CASES)
def test_a_run_takes_what_was_planned_within_a_quarter(name):
    if name == "SmolLM2" and not SMOLLM2.exists():
        pytest.skip("SmolLM2 is not fetched: make smollm2")
    found = measuring().measure(name)
    assert found["planned"]["total"] == pytest.approx(found["measured"], rel=0.25)


def parts(**changes):
    return memory_parts(settings(**changes), SHAPE, 10)[0]


def test_masters_and_adapters_by_hand():
    """By hand, from n weights and an adapter of rank 4.


    bfloat16 has 2 bytes a weight; float32 masters add 4, with 4 of gradient and 8 of moments.
    """
    full = parts()
    n = full["weights"] // 4
    assert (full["gradients"], full["optimizer"]) == (4 * n, 8 * n)
    half = parts(model={"dtype": "bfloat16"})
    assert (half["weights"], half["gradients"], half["optimizer"]) == (2 * n, 4 * n, 12 * n)
    same = parts(model={"dtype": "bfloat16", "master_dtype": "same"})
    assert (same["gradients"], same["optimizer"]) == (2 * n, 4 * n)
    # q, o: 2 (32 + 32); k, v: 2 (32 + 16); gate, up, down: 3 (32 + 64); rank 4, two layers
    thin = 4 * 2 * (128 + 96 + 288)
    assert adapter_parameters(SHAPE, 4) == thin
    lora = parts(lora={"rank": 4}, model={"path": "x"}, kl_coef=0.1)
    assert lora["weights"] == 4 * (n + thin)
    assert (lora["gradients"], lora["optimizer"]) == (4 * thin, 8 * thin)
    assert lora["reference"] == 4 * thin


def test_layers_that_are_run_again_keep_their_input_alone():
    """By hand: two layers of 4·32 + 32 + 2·64 = 288 numbers a token, against 2·32 + 288."""
    kept, again = parts(), parts(model={"gradient_checkpointing": True})
    tokens = kept["activations"] // (4 * (2 * 288 + 4 * 32 + 4 * 64 + 3 * 32))
    assert tokens == 2 * 4 * 8 + 2 * 10  # answers of 8 tokens, prompts of 10
    assert kept["activations"] - again["activations"] == 4 * tokens * (2 * 288 - 2 * 32 - 288)


def test_gates_are_counted_a_piece_at_a_time():
    """By hand: 64 wide gates, pieces of 2^19 / 64 = 8,192 tokens on the CPU, 2^20 elsewhere; a
    micro-batch of 40,000 tokens. What is not in pieces: all of them."""
    long = {"micro_batch_tokens": 40_000, "rollout": {"n": 64, "max_new_tokens": 1024}}
    layers = 2 * 288 + 4 * 32 + 3 * 32
    for device, at_once in (("cpu", 8_192), ("auto", 8_192), ("cuda:0", 40_000)):
        found = parts(model={"device": device}, **long)["activations"]
        assert found == 4 * (40_000 * layers + at_once * 4 * 64)


def test_sizes_are_those_of_the_code_that_runs():
    """Policy: the plan, which imports no torch, repeats them."""
    assert plan_memory.CHUNK_ELEMENTS == token_logprobs.CHUNK_ELEMENTS
    assert plan_memory.PIECE_ELEMENTS == layer_halves.AT_ONCE * joint_attention.CPU_ELEMENTS
    assert plan_memory.PIECE_TOKENS == layer_halves.LEAST_TOKENS
    assert plan_memory.GPU_PIECE_ELEMENTS == joint_attention.GPU_ELEMENTS


def test_the_table_of_the_document_is_current(monkeypatch):
    """Policy: `make docs` would change nothing."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import blocks
    import render_models

    page = (ROOT / "docs/models.md").read_text()
    assert blocks.names(page) == set(render_models.BLOCKS)
    assert blocks.fill(page, render_models.BLOCKS) == page
