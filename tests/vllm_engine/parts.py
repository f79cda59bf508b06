"""What the tests of vLLM share: a policy with heads of a width it takes, and engines of it."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from policy.small_models import policy_of

from brorl.rollout.options import VllmOptions
from brorl.rollout.vllm_engine import VllmEngine
from brorl.rollout.vllm_process import import_vllm

if importlib.util.find_spec("vllm") is None:
    pytest.skip("needs vLLM: make test-vllm", allow_module_level=True)
vllm = import_vllm()

LONGEST = 128
WIDTH = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
GPT2 = {"n_embd": 64, "n_head": 2, "n_positions": LONGEST}


def policy(architecture: str = "llama", **config: Any) -> Any:
    base = GPT2 if architecture == "gpt2" else WIDTH | {"max_position_embeddings": LONGEST}
    return policy_of(architecture, eos=(1, 7, 20), **(base | config))


@contextmanager
def running(
    policy: Any, *, memory_budget: int = 1 << 24, max_tokens: int = LONGEST, **options: Any
) -> Iterator[VllmEngine]:
    engine = VllmEngine(
        policy,
        options=VllmOptions(**options),
        memory_budget=memory_budget,
        max_tokens=max_tokens,
    )
    try:
        yield engine
    finally:
        engine.close()


@torch.no_grad()
def shake(policy: Any, scale: float = 0.1, seed: int = 5) -> None:
    """An update of every weight."""
    noise = torch.Generator().manual_seed(seed)
    for p in policy.model.parameters():
        p.add_(scale * torch.randn(p.shape, generator=noise))
