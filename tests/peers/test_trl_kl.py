"""The pull towards the reference against TRL's: one value, and the gradients that it can have.

Oracle: TRL 1.16 on the same tiny policy, rollouts and rewards (tests/peers/trl_trainer.py).
"""

import numpy as np
import pytest
import torch

pytest.importorskip("trl", reason="make test-peers has TRL in an environment of its own")

from brorl.algo.kl import kl_penalty

from .trl_trainer import (
    assert_same,
    folder,
    gradient,
    policy,
    prepared,
    rollouts,
    scored_logps,
    trainer,
)

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
__all__ = ["folder", "policy"]


def kl_gradients(made, given, d, *, on_policy):
    """((loss, gradients) of TRL, (loss, gradients) of ours) of 0.5 KL alone, d nats at every token."""
    inputs = prepared(made, given)
    inputs["advantages"] = torch.zeros_like(inputs["advantages"])
    mask = inputs["completion_mask"].bool()
    own = scored_logps(made, inputs)
    if on_policy:
        inputs["old_per_token_logps"] = own.detach()
    inputs["ref_per_token_logps"] = own.detach() - d
    theirs_ = gradient(made, inputs)
    weight = torch.full((int(mask.sum()),), 1 / float(mask.sum()))
    flat = scored_logps(made, inputs)[mask]
    every = torch.ones(len(flat), dtype=torch.bool)
    kl = kl_penalty(flat, flat.detach() - d, weight, every, kl_estimator="k3")
    made.model.zero_grad(set_to_none=True)
    (0.5 * kl.loss).backward()
    mine = {n: p.grad for n, p in made.model.named_parameters() if p.grad is not None}
    return theirs_, (float(0.5 * kl.loss.detach()), mine)


def kl_trainer(folder, given, tmp_path, corrected):
    return trainer(
        folder,
        given,
        tmp_path,
        loss_type="dapo",
        beta=0.5,
        scale_rewards="none",
        use_bias_correction_kl=corrected,
    )


def test_kl_has_their_value_and_their_corrected_gradient(folder, tmp_path):
    """On-policy, TRL's default (k3 times the ratio, differentiated through both) is ours: the value
    k3, the gradient d times the score, since (1 - exp(-d)) + (exp(-d) - 1 + d) = d."""
    given = rollouts(seed=8)
    made = kl_trainer(folder, given, tmp_path, corrected=True)
    got, want = kl_gradients(made, given, 1.0, on_policy=True)
    assert want[0] == pytest.approx(0.5 * np.exp(-1.0), rel=1e-4)
    assert_same(want, got)


def test_kl_differs_from_autograd_through_k3(folder, tmp_path):
    """On purpose: without that correction autograd gives (1 - exp(-d)) times the score, the gradient
    of another divergence (docs/footguns.md). By hand at d = 1: 1 - 1/e = 0.632 of ours."""
    given = rollouts(seed=8)
    made = kl_trainer(folder, given, tmp_path, corrected=False)
    (loss, theirs_), (value, mine) = kl_gradients(made, given, 1.0, on_policy=True)
    assert value == pytest.approx(loss, rel=1e-5)
    smaller = {n: g * (1 - np.exp(-1.0)) for n, g in mine.items()}
    assert_same((value, smaller), (loss, theirs_))


def test_kl_is_not_weighted_by_the_ratio(folder, tmp_path):
    """On purpose: off-policy TRL's default multiplies each token's term by its ratio of new to old
    weights; ours is of the tokens as they were sampled."""
    given = rollouts(seed=8)
    made = kl_trainer(folder, given, tmp_path, corrected=True)
    (weighted, _), (value, _) = kl_gradients(made, given, 1.0, on_policy=False)
    inputs = prepared(made, given)
    ratio = (scored_logps(made, inputs) - inputs["old_per_token_logps"]).exp()
    mean = float(ratio[inputs["completion_mask"].bool()].mean())
    assert abs(mean - 1) > 0.02
    assert weighted == pytest.approx(mean * value, rel=1e-4)
