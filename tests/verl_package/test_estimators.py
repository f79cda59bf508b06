"""Registered estimators and losses against the algorithms they wrap (oracle), without verl."""

from types import SimpleNamespace

import pytest
import torch

from brorl.algo.advantages import advantages
from brorl.errors import ConfigError, ShapeError
from brorl.verl.estimators import estimator
from brorl.verl.losses import denominator, policy_loss
from brorl.verl.names import estimators

UIDS = ["b", "a", "b", "a", "b", "pad", "a", "c", "c", "pad"]
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.5, 1.0, 1.0, 0.0]
LENGTHS = [3, 1, 2, 4, 1, 0, 2, 3, 1, 0]
REAL = [i for i, n in enumerate(LENGTHS) if n]


def padded():
    """Rewards on the last token, masks of the lengths; two rows are verl's padding."""
    mask = torch.arange(4)[None] < torch.tensor(LENGTHS)[:, None]
    scores = torch.zeros(10, 4)
    for row, (length, reward) in enumerate(zip(LENGTHS, REWARDS, strict=True)):
        scores[row, max(length - 1, 0)] = reward
    return scores, mask.long()


@pytest.mark.parametrize("name", estimators())
def test_an_estimator_is_ours_on_the_real_rows(name):
    parts = estimators()[name]
    scores, mask = padded()
    found, returns = estimator(name)(token_level_rewards=scores, response_mask=mask, index=UIDS)
    groups = torch.tensor([{"a": 1, "b": 0, "c": 2}[UIDS[i]] for i in REAL])
    wanted = advantages(
        torch.tensor([REWARDS[i] for i in REAL], dtype=torch.float64),
        groups,
        torch.tensor([LENGTHS[i] for i in REAL]),
        estimator=parts.estimator,
        normalise=parts.normalise,
        baseline_P=None,
    )
    for row, i in enumerate(REAL):
        length = LENGTHS[i]
        assert found[i, :length].tolist() == pytest.approx([float(wanted[row])] * length, rel=1e-6)
    assert not found[~mask.bool()].any()
    assert torch.equal(found, returns)
    assert (wanted != 0).any()


def test_padding_moves_nobody():
    """Identity: verl's padding rows, with a group of their own, change no other row."""
    scores, mask = padded()
    name = "brorl_reinforce_plus_plus_baseline_token"
    whole, _ = estimator(name)(token_level_rewards=scores, response_mask=mask, index=UIDS)
    bare, _ = estimator(name)(
        token_level_rewards=scores[REAL], response_mask=mask[REAL], index=[UIDS[i] for i in REAL]
    )
    assert torch.equal(whole[REAL], bare)


def test_what_an_estimator_refuses():
    scores, mask = padded()
    with pytest.raises(ConfigError, match="need one of brorl_"):
        estimator("grpo")
    with pytest.raises(ShapeError, match="needs the group"):
        estimator("brorl_grpo")(token_level_rewards=scores, response_mask=mask, index=UIDS[:3])


def config(mask, mode, dp_size=1, **more):
    tokens, rows = int(mask.sum()), int((mask.sum(-1) > 0).sum())
    info = {"dp_size": dp_size, "batch_num_tokens": tokens, "global_batch_size": rows}
    given = {"clip_ratio_low": 0.1, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0} | more
    return SimpleNamespace(global_batch_info=info, loss_agg_mode=mode, **given)


def tensors(seed=0):
    rng = torch.Generator().manual_seed(seed)
    _, mask = padded()
    logp = -torch.rand(10, 4, generator=rng) * 3
    old = logp + 0.3 * torch.randn(10, 4, generator=rng)
    advantage = torch.randn(10, 1, generator=rng).expand(-1, 4)
    return logp, old, advantage, mask


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
@pytest.mark.parametrize("dual", [False, True])
def test_a_loss_by_hand(mode, dual):
    """Scalar loops over real tokens: PPO's clip, the third bound, and the mode's denominator."""
    logp, old, advantage, mask = tensors()
    total, rows = 0.0, sum(n > 0 for n in LENGTHS)
    for i, length in enumerate(LENGTHS):
        terms = []
        for t in range(length):
            r, a = float((logp[i, t] - old[i, t]).exp()), float(advantage[i, t])
            j = min(r * a, min(max(r, 0.9), 1.2) * a)
            if dual and a < 0:
                j = max(j, 1.3 * a)
            terms.append(-j)
        if mode == "token-mean":
            total += sum(terms) / sum(LENGTHS)
        elif length:
            total += sum(terms) / rows / (length if mode == "seq-mean-token-mean" else 1)
    loss, metrics = policy_loss("x", dual=dual)(
        old_log_prob=old,
        log_prob=logp,
        advantages=advantage,
        response_mask=mask,
        loss_agg_mode=mode,
        config=config(mask, mode, clip_ratio_c=1.3),
    )
    assert float(loss) == pytest.approx(total, rel=1e-5)
    assert metrics["brorl/tokens"] == sum(LENGTHS)
    assert metrics["brorl/clipped_low"] > 0


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_ranks_and_micro_batches_add_up(mode):
    """Identity: two ranks whose losses are averaged, each in two parts, give the whole's loss."""
    logp, old, advantage, mask = tensors()
    loss = policy_loss("x", dual=False)

    def part(rows, dp_size):
        value, _ = loss(
            old_log_prob=old[rows],
            log_prob=logp[rows],
            advantages=advantage[rows],
            response_mask=mask[rows],
            loss_agg_mode=mode,
            config=config(mask, mode, dp_size),
        )
        return float(value)

    whole = part(slice(None), 1)
    ranks = [[slice(0, 2), slice(2, 5)], [slice(5, 9), slice(9, 10)]]
    mean = sum(sum(part(rows, 2) for rows in rank) for rank in ranks) / 2
    assert mean == pytest.approx(whole, rel=1e-5)


def test_weights_multiply_tokens():
    """Identity: weight 0 on a row is the loss without it, over the same denominator."""
    logp, old, advantage, mask = tensors()
    weights = torch.ones(10, 4)
    weights[3] = 0.0
    c = config(mask, "token-mean")
    given = {"loss_agg_mode": "token-mean", "config": c}
    loss = policy_loss("x", dual=False)
    cut, _ = loss(old, logp, advantage, mask, rollout_is_weights=weights, **given)
    fewer = mask.clone()
    fewer[3] = 0
    without, _ = loss(old, logp, advantage, fewer, **given)
    assert float(cut) == pytest.approx(float(without), rel=1e-6)


def test_a_denominator_that_is_not_given_is_counted_unless_there_are_ranks():
    _, _, _, mask = tensors()
    assert denominator(mask.bool(), "token-mean", {}) == sum(LENGTHS)
    assert denominator(mask.bool(), "seq-mean-token-sum", {}) == 8
    with pytest.raises(ConfigError, match="several ranks"):
        denominator(mask.bool(), "token-mean", {"dp_size": 2})


def test_a_padding_micro_batch_has_a_gradient_of_zero():
    logp = torch.zeros(2, 1, requires_grad=True)
    mask = torch.zeros(2, 1)
    loss, _ = policy_loss("x", dual=True)(
        torch.zeros(2, 1),
        logp,
        torch.zeros(2, 1),
        mask,
        config=config(torch.ones(2, 1), "token-mean"),
    )
    loss.backward()
    assert loss.item() == 0.0
    assert logp.grad.tolist() == [[0.0], [0.0]]
