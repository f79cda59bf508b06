"""vLLM within its limits: pools, widths, ends, and one engine at a time; each test opens its own."""

import pytest
import torch

from brorl.errors import ConfigError, EngineError, PolicyError
from brorl.rollout.engine import Request, Sampling, Stop

from .parts import policy, running

pytestmark = pytest.mark.vllm

HOW = Sampling(1.0, 1.0, 0, 4)
LONG = tuple(2 + i % 30 for i in range(100))


def request(n, prompt=LONG, seed=1):
    return Request("g", "problem-1", prompt, 0, n, seed)


def test_more_answers_than_fit_at_once_wait_for_their_turn():
    """Identity: eight at once, in a pool of three prompts, give what 256 in a wide one give."""
    wide = policy()
    with running(wide) as engine:
        want = [c.tokens.tolist() for c in engine.sample([request(24)], HOW)[0]]
    with running(wide, max_num_seqs=8, memory_budget=3 * 128 * 512) as engine:
        got = [c.tokens.tolist() for c in engine.sample([request(24)], HOW)[0]]
        assert engine.report().kv_cache == 3 * 128 * 512
    assert got == want


def test_a_pool_that_holds_no_answer_is_refused_by_its_setting():
    with (
        pytest.raises(ConfigError, match=r"rollout.memory_budget=32768: .* must hold 128 tokens"),
        running(policy(), memory_budget=1 << 15),
    ):
        pass


def test_a_head_width_that_vllm_does_not_take_is_refused_by_name():
    with (
        pytest.raises(PolicyError, match="attention heads of width 16; on a CPU vLLM takes 32, 64"),
        running(policy(num_attention_heads=4)),
    ):
        pass


def test_every_stop_is_told_and_none_is_lost():
    """By the contract: each of the policy's three ends, and the limit."""
    sharp = policy()
    with running(sharp) as engine:
        (group,) = engine.sample([request(200, prompt=(5, 6))], Sampling(1.5, 1.0, 0, 12))
    ends = {int(c.tokens[-1]) for c in group if c.stop is Stop.EOS}
    assert ends == {1, 7, 20}
    assert any(c.stop is Stop.LENGTH for c in group)


def test_a_policy_that_broke_is_told_at_the_token():
    """Attack: weights go bad between the probe and the answer. Oracle: the first answer token."""
    fine = policy()
    with running(fine) as engine:
        core = engine._llm.engine_core.engine_core
        worker = core.model_executor.driver_worker
        model = getattr(worker, "worker", worker).model_runner.get_model()
        with torch.no_grad():
            model.model.norm.weight.fill_(torch.nan)
        with pytest.raises(
            EngineError, match=r"problem-1: .* non-finite log-prob at answer token 0"
        ):
            engine.sample([request(2)], HOW)


def test_a_closed_engine_says_so_and_may_be_closed_again():
    with running(policy()) as engine:
        pass
    engine.close()
    engine.forget()
    with pytest.raises(EngineError, match="not running any more"):
        engine.sample([request(1)], HOW)


def test_there_is_one_engine_at_a_time_and_one_after_another():
    """vLLM keeps what workers share in the process, and closing one takes it from the other."""
    with running(policy()) as first:
        want = [c.tokens.tolist() for c in first.sample([request(3)], HOW)[0]]
        with (
            pytest.raises(ConfigError, match="one vLLM engine at a time in a process"),
            running(policy()),
        ):
            pass
        assert [c.tokens.tolist() for c in first.sample([request(3)], HOW)[0]] == want
    with running(policy()) as second:
        assert [c.tokens.tolist() for c in second.sample([request(3)], HOW)[0]] == want
