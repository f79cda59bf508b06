"""The reference policy stays where it was until a rule says otherwise."""

import math

import pytest
import torch

from brorl.train.batch import tensors
from brorl.train.reference import Reference, ResetRule
from brorl.train.settings import RefSettings

from .test_update import plain, random_rows, weights
from .toys import tiny


def moved(policy):
    with torch.no_grad():
        for p in policy.model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))


def test_a_reference_keeps_its_weights_while_the_policy_moves():
    policy = tiny()
    old = weights(policy)
    reference = Reference(policy, 0)
    moved(policy)
    assert torch.equal(weights(reference.policy), old)
    assert not torch.equal(weights(policy), old)
    assert not any(p.requires_grad for p in reference.policy.model.parameters())
    assert all(p.requires_grad for p in policy.model.parameters())


def test_its_logprobs_are_its_own_at_the_sampling_temperature():
    policy = tiny()
    reference = Reference(policy, 0)
    rows = random_rows(policy)
    want = torch.cat([plain(reference.policy, r, 0.7).detach() for r in rows])
    moved(policy)
    got = reference.logp(tensors(rows, policy.device), 0.7)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    assert not got.requires_grad


def test_a_hard_reset_makes_it_the_policy_and_apart_from_it_again():
    policy = tiny()
    reference = Reference(policy, 0)
    moved(policy)
    reference.reset(policy, 7)
    assert (reference.step, bool(torch.equal(weights(reference.policy), weights(policy)))) == (
        7,
        True,
    )
    before = weights(reference.policy)
    moved(policy)
    assert torch.equal(weights(reference.policy), before)


# When


def test_schedule_counts_from_the_last_reset():
    rule = ResetRule(RefSettings(reset_every=5))
    due = []
    for step in range(1, 18):
        if rule.reason(step, None):
            due.append(step)
            rule.did(step)
    assert due == [5, 10, 15]
    late = ResetRule(RefSettings(reset_every=5), last=7)
    assert [s for s in range(8, 14) if late.reason(s, None)] == [12, 13]


def test_stall_is_evaluations_in_a_row_without_a_better_one():
    rule = ResetRule(RefSettings(reset_on=("stall",), stall_evals=2))
    told = []
    for step, score in enumerate([0.1, 0.3, 0.3, 0.2, 0.25, 0.5]):
        rule.saw_eval(score)
        told.append(bool(rule.reason(step, None)))
    assert told == [False, False, False, True, True, False]
    rule.saw_eval(0.4)
    rule.saw_eval(0.5)
    assert "2 evaluations without a better one than 0.5000" in rule.reason(9, None)
    rule.did(9)
    assert (rule.reason(9, None), rule.best) == (None, -math.inf)
    rule.saw_eval(0.2)  # the first after a reset is the best since then
    assert (rule.best, rule.stale_evals) == (0.2, 0)


def test_spike_is_a_step_above_the_limit():
    rule = ResetRule(RefSettings(reset_on=("kl_spike",), kl_spike=0.5))
    assert rule.reason(1, 0.5) is None
    assert rule.reason(1, None) is None
    assert rule.reason(1, 0.51) == "KL spike: 0.5100 nats per token, limit 0.5"


@pytest.mark.parametrize("on", [(), ("stall",), ("kl_spike",)])
def test_nothing_is_reset_for_a_reason_that_was_not_asked_for(on):
    rule = ResetRule(RefSettings(reset_on=on, stall_evals=1))
    rule.saw_eval(0.5)
    rule.saw_eval(0.4)
    stalls = bool(rule.reason(100, 0.0))
    spikes = bool(ResetRule(RefSettings(reset_on=on)).reason(100, 9.0))
    assert (stalls, spikes) == ("stall" in on, "kl_spike" in on)
