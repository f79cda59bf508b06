"""verl 0.9.1's public functions beside ours, for every name that both have (oracle).

Where ours differs on purpose, both values are pinned and the difference is said.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from brorl.algo.advantages import dr_grpo, grpo, reinforce_plus_plus_baseline, rloo
from brorl.algo.aggregation import loss_denominator, token_weights
from brorl.algo.importance import importance_weights
from brorl.algo.kl import kl_estimates, kl_penalty
from brorl.algo.losses import clipped_policy_loss

pytest.importorskip("verl", reason="verl is not installed: make test-verl")
pytestmark = pytest.mark.verl
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


@pytest.fixture(scope="module")
def core():
    from verl.trainer.ppo import core_algos

    return core_algos


@pytest.fixture(scope="module")
def helper():
    from verl.trainer.ppo import rollout_corr_helper

    return rollout_corr_helper


def batch(seed=0, rows=12, groups=3, width=6):
    """Ragged answers in groups that all have spread: (rewards_B, group_B, mask_BT, scores_BT)."""
    rng = np.random.default_rng(seed)
    group = torch.from_numpy(np.repeat(np.arange(groups), rows // groups))
    rewards = torch.from_numpy(rng.random(rows)).float()
    lengths = torch.from_numpy(rng.integers(1, width + 1, rows))
    mask = torch.arange(width)[None] < lengths[:, None]
    scores = torch.zeros(rows, width)
    scores[torch.arange(rows), lengths - 1] = rewards
    return rewards, group, mask, scores


def verl_advantage(core, name, scores, mask, group, **more):
    index = np.array([f"g{int(i)}" for i in group], dtype=object)
    found, _ = core.get_adv_estimator_fn(name)(
        token_level_rewards=scores.clone(),
        response_mask=mask.float(),
        index=index,
        config=None,
        **more,
    )
    return found


def spread_out(values_B, mask):
    return values_B.float()[:, None] * mask


@pytest.mark.parametrize("seed", range(3))
def test_grpo(core, seed):
    rewards, group, mask, scores = batch(seed)
    wanted = spread_out(grpo(rewards, group), mask)
    for name in ("grpo", "grpo_vectorized"):
        assert torch.allclose(verl_advantage(core, name, scores, mask, group), wanted, atol=1e-5)
    plain = verl_advantage(core, "grpo", scores, mask, group, norm_adv_by_std_in_grpo=False)
    assert torch.allclose(
        plain, spread_out(dr_grpo(rewards, group, baseline_P=None), mask), atol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_rloo(core, seed):
    rewards, group, mask, scores = batch(seed)
    wanted = spread_out(rloo(rewards, group), mask)
    for name in ("rloo", "rloo_vectorized"):
        assert torch.allclose(verl_advantage(core, name, scores, mask, group), wanted, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_reinforce_plus_plus_baseline_by_tokens(core, seed):
    """verl whitens over tokens with Bessel's correction: our token_unbiased, not our default."""
    rewards, group, mask, scores = batch(seed)
    found = verl_advantage(core, "reinforce_plus_plus_baseline", scores, mask, group)
    ours = {
        form: spread_out(
            reinforce_plus_plus_baseline(
                rewards, group, mask.sum(-1), normalise=form, baseline_P=None
            ),
            mask,
        )
        for form in ("token_unbiased", "trajectory")
    }
    assert torch.allclose(found, ours["token_unbiased"], atol=1e-5)
    assert not torch.allclose(found, ours["trajectory"], atol=1e-2)


def test_a_group_of_one_teaches_nothing_here_and_something_there(core):
    """On purpose: verl subtracts no mean from a lone answer (and divides by 1), we give 0."""
    scores, mask = torch.tensor([[0.0, 0.7]]), torch.ones(1, 2, dtype=torch.bool)
    group = torch.zeros(1, dtype=torch.int64)
    for name in ("grpo", "rloo"):
        assert verl_advantage(core, name, scores, mask, group)[0].tolist() == pytest.approx(
            [0.7, 0.7], abs=1e-5
        )
    assert grpo(torch.tensor([0.7]), group).tolist() == [0.0]
    assert rloo(torch.tensor([0.7]), group).tolist() == [0.0]


def test_a_group_without_spread_counts_there_and_not_here(core):
    """On purpose: an equal group stays 0 here; verl's whitening moves it off 0 and widens the rest.

    Two groups of two with two tokens each, scores 1, 0 and 1, 1: centred 0.5, -0.5, 0, 0; verl's
    variance over 8 tokens is 4 · 0.25 / 7, ours over the 4 that count is 4 · 0.25 / 3.
    """
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0])
    group, mask = torch.tensor([0, 0, 1, 1]), torch.ones(4, 2, dtype=torch.bool)
    scores = torch.stack([torch.zeros(4), rewards], 1)
    found = verl_advantage(core, "reinforce_plus_plus_baseline", scores, mask, group)
    assert found[:, 0].tolist() == pytest.approx(
        [0.5 / (1 / 7) ** 0.5, -0.5 / (1 / 7) ** 0.5, 0, 0], abs=1e-5
    )
    ours = reinforce_plus_plus_baseline(
        rewards, group, mask.sum(-1), normalise="token_unbiased", baseline_P=None
    )
    assert ours.tolist() == pytest.approx(
        [0.5 / (1 / 3) ** 0.5, -0.5 / (1 / 3) ** 0.5, 0, 0], abs=1e-5
    )


def loss_inputs(seed=0):
    rng = torch.Generator().manual_seed(seed)
    _, _, mask, _ = batch(seed)
    logp = (-3 * torch.rand(mask.shape, generator=rng)).requires_grad_()
    old = logp.detach() + torch.randn(mask.shape, generator=rng)
    advantage = torch.randn(len(mask), 1, generator=rng).expand(-1, mask.shape[1])
    weight = 0.5 + torch.rand(mask.shape, generator=rng)
    return logp, old, advantage, weight, mask


def ours_loss(logp, old, advantage, weight, mask, mode, clip_c):
    row = torch.arange(len(mask))[:, None].expand_as(mask)
    base = token_weights(
        mask,
        row,
        loss_agg_mode=mode,
        denominator=loss_denominator(mask.sum(-1), loss_agg_mode=mode),
        dtype=logp.dtype,
    )
    return clipped_policy_loss(
        logp,
        old,
        advantage,
        base * weight,
        mask,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=clip_c,
    )


def verl_loss(core, logp, old, advantage, weight, mask, mode, clip_c):
    config = SimpleNamespace(
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        global_batch_info={},
        get=lambda name, default: clip_c if name == "clip_ratio_c" else default,
    )
    return core.get_policy_loss_fn("vanilla")(
        old_log_prob=old,
        log_prob=logp,
        advantages=advantage,
        response_mask=mask.float(),
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=weight,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clip_c", [1.5, 3.0])
def test_the_dual_clip_loss_and_its_gradient(core, mode, clip_c):
    logp, old, advantage, weight, mask = loss_inputs()
    ours = ours_loss(logp, old, advantage, weight, mask, mode, clip_c)
    (own_grad,) = torch.autograd.grad(ours.loss, logp)
    theirs, metrics = verl_loss(core, logp, old, advantage, weight, mask, mode, clip_c)
    (their_grad,) = torch.autograd.grad(theirs, logp)
    assert ours.loss.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert torch.allclose(own_grad, their_grad, atol=1e-7)
    share = metrics["actor/pg_clipfrac"] * int(mask.sum())
    assert int(ours.clipped_low + ours.clipped_high) == pytest.approx(share, abs=1e-3)


def test_without_a_third_bound_ours_goes_on_where_verl_stops(core):
    """On purpose: unset clip_ratio_c is no dual clip here; verl's own loss clips at 3 unasked."""
    mask = torch.ones(1, 1, dtype=torch.bool)
    given = (
        torch.tensor([[2.0]]).log(),
        torch.tensor([[0.4]]).log(),
        torch.tensor([[-1.0]]),
        torch.ones(1, 1),
    )
    assert float(ours_loss(*given, mask, "token-mean", None).loss) == pytest.approx(5.0)
    assert float(verl_loss(core, *given, mask, "token-mean", 3.0)[0]) == pytest.approx(3.0)


@pytest.mark.parametrize("mode", MODES)
def test_aggregation(core, mode):
    _, _, _, weight, mask = loss_inputs(1)
    row = torch.arange(len(mask))[:, None].expand_as(mask)
    denominator = loss_denominator(mask.sum(-1), loss_agg_mode=mode)
    ours = token_weights(mask, row, loss_agg_mode=mode, denominator=denominator, dtype=weight.dtype)
    theirs = core.agg_loss(weight, mask.float(), mode)
    assert float((ours * weight).sum()) == pytest.approx(float(theirs), rel=1e-5)


@pytest.mark.parametrize("name", ["k1", "k2", "k3"])
def test_kl_values_and_the_gradient_of_the_straight_through_forms(core, name):
    """Value: verl's k1, k2, k3. Gradient: verl's k1+, k2, k3+, which is ours whatever the value."""
    logp, ref, _, weight, mask = loss_inputs(2)
    theirs = core.kl_penalty(logp, ref, name)
    assert torch.allclose(kl_estimates(logp, ref, kl_estimator=name), theirs, atol=1e-5)
    ours = kl_penalty(logp, ref, weight, mask, kl_estimator=name)
    (own_grad,) = torch.autograd.grad(ours.loss, logp, retain_graph=True)
    plus = core.kl_penalty(logp, ref, name if name == "k2" else f"{name}+")
    total = (plus * weight)[mask].sum()
    (their_grad,) = torch.autograd.grad(total, logp)
    assert ours.loss.item() == pytest.approx(total.item(), rel=1e-5)
    assert torch.allclose(own_grad, their_grad, atol=1e-6)


def test_a_distance_beyond_ten_nats_is_cut_here_and_not_there(core):
    """On purpose: k2 at 12 nats is 50 here (cut at 10) and 72 there."""
    logp, ref = torch.tensor([0.0]), torch.tensor([-12.0])
    assert float(kl_estimates(logp, ref, kl_estimator="k2")) == 50.0
    assert float(core.kl_penalty(logp, ref, "k2")) == 72.0


def corrected(helper, old, engine, mask, **given):
    weights, kept, _ = helper.compute_rollout_correction_and_rejection_mask(
        old_log_prob=old, rollout_log_prob=engine, response_mask=mask.float(), **given
    )
    return (weights.batch["rollout_is_weights"] if weights is not None else None), kept


def mismatched(seed=0):
    rng = torch.Generator().manual_seed(seed)
    _, _, mask, _ = batch(seed)
    old = -3 * torch.rand(mask.shape, generator=rng)
    return old, old + 0.5 * torch.randn(mask.shape, generator=rng), mask


def ours_weights(old, engine, mask, kind, low, cap):
    row = torch.arange(len(mask))[:, None].expand_as(mask)
    return importance_weights(old, engine, mask, row, tis_type=kind, min=low, cap=cap)


def test_truncated_importance_sampling(helper):
    old, engine, mask = mismatched()
    theirs, kept = corrected(
        helper, old, engine, mask, rollout_is="token", rollout_is_threshold=1.2
    )
    ours = ours_weights(old, engine, mask, "tis", 0.0, 1.2)
    assert torch.allclose(ours.weight, theirs, atol=1e-6)
    assert bool(kept[mask].all())
    assert ours.cut > 0


def test_icepop(helper):
    old, engine, mask = mismatched(1)
    theirs, _ = corrected(
        helper, old, engine, mask, rollout_is="token", rollout_is_threshold="0.7_1.3"
    )
    ours = ours_weights(old, engine, mask, "icepop", 0.7, 1.3)
    assert torch.allclose(ours.weight, theirs, atol=1e-6)
    assert 0 < ours.masked < int(mask.sum())


def test_whole_sequences_by_their_geometric_mean(helper):
    """seq-mask-tis is verl's seq_mean_k1 with bounds turned over (it looks at engine / trainer)."""
    old, engine, mask = mismatched(2)
    low, cap = 0.8, 1.25
    _, kept = corrected(
        helper,
        old,
        engine,
        mask,
        rollout_rs="seq_mean_k1",
        rollout_rs_threshold=f"{1 / cap}_{1 / low}",
    )
    ours = ours_weights(old, engine, mask, "seq-mask-tis", low, cap)
    assert torch.equal(ours.kept[mask], kept.bool()[mask])
    assert 0 < int(kept.sum()) < int(mask.sum())
