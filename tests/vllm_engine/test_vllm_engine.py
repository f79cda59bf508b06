"""vLLM as engine, beyond the contract that all engines share: its scheduler, pool and faults."""

from itertools import pairwise

import numpy as np
import pytest

from brorl.errors import EngineError
from brorl.rollout.engine import Request, Sampling
from brorl.rollout.vllm_engine import sample_seed

from .parts import policy, running, vllm

pytestmark = pytest.mark.vllm

HOW = Sampling(1.0, 1.0, 0, 4)
LONG = tuple(2 + i % 30 for i in range(100))


@pytest.fixture(scope="module")
def engine():
    with running(policy()) as made:
        yield made


@pytest.fixture
def watched(engine, monkeypatch):
    """Tokens that each step of the model reads, in order."""
    executor = engine._llm.engine_core.engine_core.model_executor
    run, seen = executor.execute_model, []

    def execute(scheduled, *args, **kwargs):
        seen.append(scheduled.total_num_scheduled_tokens)
        return run(scheduled, *args, **kwargs)

    monkeypatch.setattr(executor, "execute_model", execute)
    engine.forget()
    return seen


def request(n, first=0, prompt=LONG, seed=1):
    return Request("g", "problem-1", prompt, first, n, seed)


def test_the_prompt_is_read_once_for_all_answers_of_all_waves(engine, watched):
    """By hand: 100 tokens are three blocks of 32 and 4 more: 100 once, 4 for each other answer.

    The first wave of 16 reads 100 + 15 * 4 = 160, a second of 16 reads 16 * 4 = 64.
    """
    engine.sample([request(16)], HOW)
    assert watched[0] == 160
    watched.clear()
    engine.sample([request(16, first=16)], HOW)
    assert watched[0] == 64


def test_a_group_is_one_request(engine, monkeypatch):
    asked = []
    add = engine._llm.add_request
    monkeypatch.setattr(engine._llm, "add_request", lambda *a: (asked.append(a[2]), add(*a)))
    engine.sample([request(16), request(3, first=5, seed=2)], HOW)
    assert [how.n for how in asked] == [16, 3]
    assert [how.seed for how in asked] == [sample_seed(1, 0), sample_seed(2, 5)]


def test_seeds_of_a_group_follow_each_other_and_groups_do_not_meet():
    bases = sorted(sample_seed(s, 0) for s in range(500))
    assert all(b - a > 1024 for a, b in pairwise(bases))
    assert max(bases) < 2**62
    assert sample_seed(3, 17) == sample_seed(3, 0) + 17


def test_an_update_drops_the_prompts_of_the_old_weights(engine, watched):
    """By hand: the same prompt is read whole again; an update with the same weights counts too."""
    engine.sample([request(1)], HOW)
    engine.sample([request(1)], HOW)
    engine.weights_changed(1)
    engine.sample([request(1)], HOW)
    firsts = [n for n in watched if n > 1]
    probe = engine._probe.ids_RT.size
    assert firsts == [100, 4, probe, 100]


def test_the_pool_is_the_memory_budget(engine):
    """By hand: 2 layers, 1 head of width 32, keys and values, float32: 512 bytes a token."""
    assert engine.report().kv_cache == 1 << 24
    blocks = engine._llm.vllm_config.cache_config.num_gpu_blocks
    assert blocks * 32 * 512 == 1 << 24


def test_logprobs_that_vllm_cannot_tell_over_the_whole_vocabulary_are_nan(engine):
    for how in (Sampling(0.7, 0.9, 0, 4), Sampling(0.7, 1.0, 5, 4)):
        for c in engine.sample([request(4)], how)[0]:
            assert np.isnan(c.logprobs).all()
    for c in engine.sample([request(1)], Sampling(0.0, 0.9, 5, 4))[0]:
        assert np.isfinite(c.logprobs).all()


def test_a_temperature_that_vllm_would_raise_is_refused(engine):
    with pytest.raises(EngineError, match=r"would sample at 0.01 instead of temperature 0.009"):
        engine.sample([request(1)], Sampling(0.009, 1.0, 0, 4))


def test_greedy_is_made_once_and_given_n_times(engine, watched):
    (group,) = engine.sample([request(5)], Sampling(0.0, 1.0, 0, 4))
    assert watched[0] == 100
    assert len({c.tokens.tobytes() for c in group}) == 1
    assert len(group) == 5


class Lost(RuntimeError):
    """What a device raises in the middle of a step."""


def test_an_engine_lost_in_a_step_is_one_line_and_leaves_nothing_behind(engine, monkeypatch):
    """Attack: the second step fails. The next call gets its own answers and no others."""
    want = [c.tokens.tolist() for c in engine.sample([request(3, seed=9)], HOW)[0]]
    step, calls = vllm.LLMEngine.step, []

    def failing(self):
        calls.append(1)
        if len(calls) == 2:
            raise Lost("out of\nmemory")
        return step(self)

    with monkeypatch.context() as broken:
        broken.setattr(vllm.LLMEngine, "step", failing)
        with pytest.raises(EngineError, match="vLLM failed while sampling: Lost: out of memory;"):
            engine.sample([request(4)], HOW)
    assert not engine._llm.has_unfinished_requests()
    assert [c.tokens.tolist() for c in engine.sample([request(3, seed=9)], HOW)[0]] == want


def test_a_grader_that_breaks_on_the_way_leaves_nothing_behind(engine):
    def broken(index, offset, completions):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.sample([request(4), request(4, seed=2)], HOW, broken)
    assert not engine._llm.has_unfinished_requests()


def test_no_prompt_is_read_in_parts(engine, watched):
    """Report: 31 tokens fill no block, so each of 200 answers reads them: more than a step takes. On
    a CPU vLLM fails where the last prompt of a step is cut and its answer has a seed."""
    prompt = LONG[:31]
    groups = engine.sample([request(100, prompt=prompt), request(100, prompt=prompt)], HOW)
    assert [len(g) for g in groups] == [100, 100]
    assert max(watched) < 200 * len(prompt)
