"""vLLM's own server as engine of an evaluation: the same greedy words as the embedded engine's."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch

from brorl.policy.load import load_without_model, save_policy, tiny_policy
from brorl.policy.tiny import TinyShape
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling
from brorl.rollout.openai_engine import OpenAIEngine
from brorl.rollout.options import OpenAIOptions

from .parts import LONGEST

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = [tuple(range(5, 9)), tuple(range(10, 50))]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(policy, folder, address) while vLLM's server has it."""
    folder = tmp_path_factory.mktemp("served") / "tiny"
    shape = TinyShape("llama", 2, 64, 2, 1, 128, 128, True)
    policy = tiny_policy(shape, seed=1, device="cpu", trained_length=8)
    with torch.no_grad():  # sharp enough that two kernels agree on the likeliest token
        for p in policy.model.parameters():
            p.mul_(8.0 if p.dim() == 2 else 1.0)
    save_policy(policy, folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # `vllm serve` looks for a distribution called vllm, which the CPU build is not.
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    words += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    words += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(LONGEST)]
    words += ["--kv-cache-memory-bytes", str(1 << 24), "--block-size", "32"]
    process = subprocess.Popen(
        words, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True
    )
    try:
        wait(port, process)
        yield policy, folder, f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


def wait(port, process, timeout_s=800):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended by itself"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no server after {timeout_s} s")


def test_vllms_own_server(served):
    """Oracle: the embedded engine on the same checkpoint; identity: answers do not hang on how
    many are asked for at once, since the server seeds answer j with seed + j."""
    policy, folder, address = served
    without = load_without_model(str(folder), revision=None)
    requests = [Request(f"g{i}", f"p{i}", p, 0, 3, 7 + i) for i, p in enumerate(PROMPTS)]
    one = OpenAIEngine(without, OpenAIOptions(base_url=address, concurrency=2))
    assert (one.model, one.max_tokens) == ("tiny", LONGEST)
    greedy = Sampling(0.0, 1.0, 0, 6)
    want = EmbeddedEngine(policy, memory_budget=1 << 26).sample(requests, greedy)
    got = one.sample(requests, greedy)
    assert [c.tokens.tolist() for g in got for c in g] == [
        c.tokens.tolist() for g in want for c in g
    ]
    assert [c.stop for g in got for c in g] == [c.stop for g in want for c in g]
    how = Sampling(1.0, 0.9, 5, 6)
    three = OpenAIEngine(without, OpenAIOptions(base_url=address, samples_per_request=3))
    single, together = (
        [c.tokens.tolist() for g in e.sample(requests, how) for c in g] for e in (one, three)
    )
    assert single == together
    assert len({tuple(t) for t in single}) > 2
