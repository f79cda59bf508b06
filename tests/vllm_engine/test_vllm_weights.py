"""Weights into vLLM: all of them, after every update; the stale head, reproduced and caught."""

import numpy as np
import pytest
import torch

from brorl.errors import EngineError, PolicyError
from brorl.rollout import vllm_weights
from brorl.rollout.engine import Request, Sampling
from brorl.rollout.vllm_weights import Probe

from .parts import policy, running, shake

pytestmark = pytest.mark.vllm

REQUEST = Request("g", "problem-1", (3, 4, 8), 0, 2, seed=5)
HOW = Sampling(1.0, 1.0, 0, 4)


def with_head(whole, head):
    """A copy of a policy of tied embeddings with another output embedding."""
    copy = policy(tie_word_embeddings=False)
    copy.model.load_state_dict(whole.model.state_dict(), strict=False)
    with torch.no_grad():
        copy.model.lm_head.weight.copy_(head)
    return copy


def test_the_stale_head_is_real_and_the_probe_shows_it(monkeypatch):
    """Attack: vLLM's own reload on tied embeddings. Oracle: hybrids of old and new weights.

    Without packing the embeddings anew, vLLM computes with the new body and the old head, to
    1e-5 nats; nothing is raised by vLLM itself.
    """
    trained = policy("llama")
    with running(trained) as engine:
        old_head = trained.model.lm_head.weight.detach().clone()
        shake(trained)
        with monkeypatch.context() as bare:
            bare.setattr(vllm_weights, "repack_embeddings", lambda model: None)
            vllm_weights.copy_weights(engine._llm, trained)
        probe = engine._probe
        assert probe.difference(engine._llm, with_head(trained, old_head)) < 1e-5
        assert probe.difference(engine._llm, trained) > 0.05
        engine.weights_changed(1)
        engine.sample([REQUEST], HOW)
        assert engine.report().fingerprint < 1e-5


@pytest.mark.parametrize(
    ("architecture", "tied"),
    [("llama", False), ("qwen2", True), ("gpt2", True)],
)
def test_every_weight_arrives_at_the_start_and_after_an_update(architecture, tied):
    """Identity: vLLM begins with made-up weights, so a tensor left out would show at once."""
    trained = policy(architecture, tie_word_embeddings=tied)
    with running(trained) as engine:
        assert engine.report().fingerprint < 1e-5
        shake(trained)
        engine.weights_changed(1)
        engine.sample([REQUEST], HOW)
        assert engine.report().fingerprint < 1e-5


def test_what_does_not_follow_stops_the_sampling(monkeypatch):
    """Attack: the stale head again, and one weight forgotten; each on its first update.

    The error names the update and what is allowed; the next update that arrives is fine again.
    """
    trained = policy("llama")
    with running(trained) as engine:
        with monkeypatch.context() as bare:
            bare.setattr(vllm_weights, "repack_embeddings", lambda model: None)
            shake(trained, scale=0.01)
            engine.weights_changed(8)
            with pytest.raises(EngineError, match=r"update 8: .* nats .*tolerance allows 1e-04"):
                engine.sample([REQUEST], HOW)
        with monkeypatch.context() as bare:
            named = type(trained.model).named_parameters
            bare.setattr(
                type(trained.model),
                "named_parameters",
                lambda self, *a, **k: [
                    x for x in named(self, *a, **k) if "layers.1.mlp.up_proj" not in x[0]
                ],
            )
            shake(trained, seed=6)
            engine.weights_changed(9)
            with pytest.raises(EngineError, match="update 9"):
                engine.sample([REQUEST], HOW)
        engine.weights_changed(10)
        assert engine.sample([REQUEST], HOW)[0][0].policy_version == 10


def test_a_model_whose_weights_do_not_arrive_is_refused_before_any_sampling(monkeypatch):
    monkeypatch.setattr(vllm_weights, "repack_embeddings", lambda model: None)
    with (
        pytest.raises(PolicyError, match="does not fit test llama: vLLM does not sample"),
        running(policy("llama")),
    ):
        pass


def test_weights_that_are_not_numbers_do_not_pass_for_equal():
    trained = policy("llama")
    with running(trained) as engine:
        with torch.no_grad():
            trained.model.lm_head.weight[3] = torch.nan
        engine.weights_changed(1)
        with pytest.raises(EngineError, match="differ from the trainer's by nan"):
            engine.sample([REQUEST], HOW)


def test_the_tolerance_is_the_users():
    """Float error alone is more than 1e-12 nats."""
    with (
        pytest.raises(PolicyError, match="tolerance allows 1e-12"),
        running(policy("llama"), tolerance=1e-12),
    ):
        pass


def test_the_probe_by_the_trainer_is_a_plain_forward():
    """Oracle: log-softmax of plain logits; the probe is the same in every run and process."""
    trained = policy("llama")
    probe = Probe(trained.vocabulary, 32)
    again = Probe(trained.vocabulary, 32)
    assert np.array_equal(probe.ids_RT, again.ids_RT)
    assert probe.ids_RT.shape == (8, 32)
    assert set(np.unique(probe.ids_RT)) <= set(range(trained.vocabulary))
    ids = torch.from_numpy(probe.ids_RT)
    with torch.no_grad():
        logits = trained.model(input_ids=ids, use_cache=False).logits[:, :-1].double()
    want = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    np.testing.assert_allclose(probe.by_trainer(trained), want, rtol=0, atol=3e-5)


def test_one_update_of_many_is_handed_over_once(monkeypatch):
    """By hand: three updates before the next answer are one transfer, and one at rest is none."""
    handed = []
    copy = vllm_weights.copy_weights
    monkeypatch.setattr(
        "brorl.rollout.vllm_engine.copy_weights",
        lambda *a: (handed.append(1), copy(*a)),
    )
    trained = policy("llama")
    with running(trained) as engine:
        engine.sample([REQUEST], HOW)
        assert len(handed) == 1
        for version in (1, 2, 3):
            shake(trained, seed=version)
            engine.weights_changed(version)
        engine.sample([REQUEST], HOW)
        engine.sample([REQUEST], HOW)
        assert len(handed) == 2
