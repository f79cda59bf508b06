"""Gradients by hand: against finite differences in float64, and weights that come back."""

import numpy as np
import pytest
import torch

from brorl.policy.load import tiny_policy
from brorl.policy.tiny import TinyShape
from brorl.studies.runner import gradients as g


@pytest.fixture(scope="module")
def policy():
    shape = TinyShape("llama", 1, 16, 2, 1, 32, 64, True)
    made = tiny_policy(shape, seed=3, device="cpu", trained_length=16)
    made.model.double()
    return made


def answers(policy, prompt, texts, weights):
    tokens = [np.array(policy.tokenizer(t).input_ids, dtype=np.int32) for t in texts]
    arrays = [np.full(len(t), w, np.float32) for t, w in zip(tokens, weights, strict=True)]
    return g.Answers(policy.encode(prompt), tokens, arrays)


@pytest.fixture(scope="module")
def groups(policy):
    return [
        answers(policy, "ab=", ["ba", "b", "abc"], [0.5, -0.25, -0.25]),
        answers(policy, "xyz=", ["zyx", "q"], [1.0, -1.0]),
    ]


def objective(policy, groups):
    """The plain way: one answer after another, nothing shared."""
    total = 0.0
    for group in groups:
        for tokens, weights in zip(group.tokens, group.weights, strict=True):
            alone = g.Answers(group.prompt, [tokens], [weights])
            with torch.no_grad():
                logp = g.text_logprobs(policy, [alone], temperature=1.0)
            total += float(logp[0]) * float(weights[0])
    return total


def test_the_gradient_is_the_slope(policy, groups):
    """Central differences along the gradient and along a random direction.

    O(h^2), and float32 log-probs add about 1e-6 / h, so that h suits the slope.
    """
    step = g.policy_gradient(policy, groups, temperature=1.0, denominator=1.0)
    torch.manual_seed(0)
    random = g.Step([torch.randn_like(p) for p in step.parts])
    for direction, far, error in ((step, 1e-3, 1e-3), (random, 5e-3, 1e-2)):
        h = far / direction.norm
        with g.moved(policy, direction, h):
            above = objective(policy, groups)
        with g.moved(policy, direction, -h):
            below = objective(policy, groups)
        assert (above - below) / (2 * h) == pytest.approx(step.dot(direction), rel=error)


def test_parts_of_any_size_add_up(policy, groups, monkeypatch):
    whole = g.policy_gradient(policy, groups, temperature=1.0, denominator=5.0)
    monkeypatch.setattr(g, "ROWS", 2)
    parts = g.policy_gradient(policy, groups, temperature=1.0, denominator=5.0)
    assert parts.cosine(whole) == pytest.approx(1.0, abs=1e-6)
    assert parts.norm == pytest.approx(whole.norm, rel=1e-5)


def test_text_gradients_are_those_of_the_weighted_sum(policy, groups):
    """Identity: sum of weight * gradient of each text = the policy gradient."""
    texts = [
        g.Answers(x.prompt, [t], [w])
        for x in groups
        for t, w in zip(x.tokens, x.weights, strict=True)
    ]
    slopes = list(g.text_gradients(policy, texts, temperature=1.0))
    step = g.policy_gradient(policy, groups, temperature=1.0, denominator=1.0)
    expected = sum(float(t.weights[0][0]) * s.dot(step) for t, s in zip(texts, slopes, strict=True))
    assert expected == pytest.approx(step.dot(step), rel=1e-4)


def test_weights_come_back_bit_by_bit(policy, groups):
    before = [p.clone() for p in g.trainable(policy)]
    step = g.policy_gradient(policy, groups, temperature=1.0, denominator=1.0)
    with g.moved(policy, step, 0.3):
        assert any((a != b).any() for a, b in zip(before, g.trainable(policy), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, g.trainable(policy), strict=True))
