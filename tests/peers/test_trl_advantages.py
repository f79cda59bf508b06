"""Advantages and corrections against TRL: equal where names agree, pinned where they differ on purpose.

Oracle: TRL 1.16 on the same tiny policy, rollouts and rewards (tests/peers/trl_trainer.py).
"""

import numpy as np
import pytest
import torch

pytest.importorskip("trl", reason="make test-peers has TRL in an environment of its own")

from brorl.algo.advantages import advantages
from brorl.algo.importance import importance_weights

from .trl_trainer import N, folder, policy, rollouts, scored, trainer

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
__all__ = ["folder", "policy"]
TRL_EPSILON = 1e-4  # added to the standard deviation; ours is 1e-6, verl's


def ours(given, estimator, normalise="none"):
    rewards = torch.tensor(given.rewards, dtype=torch.float64)
    group = torch.arange(len(given.prompts)).repeat_interleave(N)
    lengths = torch.tensor([len(a) for a in given.answers])
    return advantages(
        rewards, group, lengths, estimator=estimator, normalise=normalise, baseline_P=None
    )


def theirs(folder, given, tmp_path, **settings):
    made = trainer(folder, given, tmp_path, **settings)
    return scored(made)["advantages"].double()


FLAT = [0.5] * N + [1.0, 0.0, 0.0, 0.0] + [0.0, 1.0, 1.0, 0.25]


@pytest.mark.parametrize("rewards", [None, FLAT], ids=["spread", "one group without spread"])
def test_group_means_without_scale(folder, tmp_path, rewards):
    given = rollouts(rewards=rewards)
    got = theirs(folder, given, tmp_path, scale_rewards="none")
    torch.testing.assert_close(ours(given, "dr_grpo"), got, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rewards", [None, FLAT], ids=["spread", "one group without spread"])
def test_leave_one_out(folder, tmp_path, rewards):
    given = rollouts(rewards=rewards)
    got = theirs(folder, given, tmp_path, rloo=True, normalize_advantages=False)
    torch.testing.assert_close(ours(given, "rloo"), got, rtol=0, atol=1e-6)


def test_group_scale_differs_by_epsilon_only(folder, tmp_path):
    """On purpose: 1e-6 (verl) against TRL's 1e-4 beside the same standard deviation.

    By hand for rewards 1, 0, 0, 0: mean 1/4, std with divisor 3 is 1/2, so the right answer gets
    0.75 / 0.500001 = 1.499997 here and 0.75 / 0.5001 = 1.499700 there.
    """
    given = rollouts(rewards=FLAT)
    got, mine = theirs(folder, given, tmp_path, scale_rewards="group"), ours(given, "grpo")
    std = torch.tensor(given.rewards, dtype=torch.float64).view(-1, N).std(1).repeat_interleave(N)
    torch.testing.assert_close(mine * (std + 1e-6) / (std + TRL_EPSILON), got, rtol=0, atol=1e-6)
    assert float(mine[4]) == pytest.approx(1.499997, abs=1e-6)
    assert float(got[4]) == pytest.approx(1.499700, abs=1e-6)


def test_batch_scale_is_of_rewards_there_and_of_advantages_here(folder, tmp_path):
    """On purpose: the paper divides by the spread of advantages over kept groups; TRL divides by
    that of all rewards, so hard and easy prompts in one batch shrink its step.

    By hand: groups 1, 0, 0, 0 and 1, 1, 1, 0. Advantages 3/4, -1/4 and 1/4, -3/4: squares sum to
    3/4 each, so ours divides by sqrt(1.5 / 8) = 0.4330 (biased) or sqrt(1.5 / 7) = 0.4629; the
    rewards have mean 1/2 and sqrt(2 / 7) = 0.5345.
    """
    given = rollouts(prompts=2, rewards=[1.0, 0, 0, 0, 1, 1, 1, 0])
    got = theirs(folder, given, tmp_path, scale_rewards="batch")
    assert float(got[0]) == pytest.approx(0.75 / (0.5345225 + TRL_EPSILON), abs=1e-5)
    biased = ours(given, "reinforce_plus_plus_baseline", "trajectory")
    unbiased = ours(given, "reinforce_plus_plus_baseline", "trajectory_unbiased")
    assert float(biased[0]) == pytest.approx(0.75 / 0.4330127, abs=1e-5)
    assert float(unbiased[0]) == pytest.approx(0.75 / 0.4629100, abs=1e-5)
    equal_means = rollouts(prompts=2, rewards=[1.0, 0, 0, 1, 0, 1, 1, 0])
    got = theirs(folder, equal_means, tmp_path, scale_rewards="batch")
    mine = ours(equal_means, "reinforce_plus_plus_baseline", "trajectory_unbiased")
    std = torch.tensor(equal_means.rewards, dtype=torch.float64).std()
    torch.testing.assert_close(mine * std / (std + TRL_EPSILON), got, rtol=0, atol=1e-6)


# The correction between engine and trainer


def corrections(made, kind, cap, low):
    """(ours [M], TRL's [M]) on the same log-probs."""
    out = scored(made)
    mask = out["completion_mask"].bool()
    rows = torch.arange(len(mask))[:, None].expand(mask.shape)
    mine = importance_weights(
        out["old_per_token_logps"], out["sampling_per_token_logps"], mask, rows,
        tis_type=kind, cap=cap, min=low,
    )  # fmt: skip
    ratio = out["importance_sampling_ratio"].expand(mask.shape)
    return mine.weight[mask], ratio[mask]


@pytest.mark.parametrize(
    ("mode", "kind", "cap", "low"),
    [("token_truncate", "tis", 2.0, 0.0), ("token_truncate", "tis", 1.2, 0.5),
     ("token_mask", "icepop", 2.0, 0.5), ("token_mask", "icepop", 5.0, 0.2)],
)  # fmt: skip
def test_token_corrections(folder, tmp_path, mode, kind, cap, low):
    made = trainer(
        folder, rollouts(), tmp_path, corrected=True, vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_max=cap, vllm_importance_sampling_clip_min=low,
    )  # fmt: skip
    mine, got = corrections(made, kind, cap, low)
    torch.testing.assert_close(mine, got, rtol=1e-6, atol=1e-7)
    assert len(set(mine.tolist())) > 3, "every token was cut: says nothing"


def test_sequence_masks_differ_in_what_they_measure(folder, tmp_path):
    """On purpose: a sequence goes by the geometric mean of its tokens' ratios here (whatever its
    length), by their product there; and what stays keeps its token ratios here, the product there.

    By hand: an engine that is 0.3 nats low on each of L tokens has token ratios e^0.3 = 1.35,
    geometric mean 1.35 for every L, product e^(0.3 L): above 2 from three tokens on.
    """
    given = rollouts()
    made = trainer(
        folder, given, tmp_path, corrected=True, vllm_importance_sampling_mode="sequence_mask",
        vllm_importance_sampling_clip_max=2.0, vllm_importance_sampling_clip_min=0.5,
    )  # fmt: skip
    old = scored(made)
    mask = old["completion_mask"].bool()
    made.given = given._replace(
        engine_logps=[
            (x[m] - 0.3).tolist() for x, m in zip(old["old_per_token_logps"], mask, strict=True)
        ]
    )
    mine, got = corrections(made, "seq-mask-tis", 2.0, 0.5)
    length = mask.sum(1, keepdim=True).expand(mask.shape)[mask]
    torch.testing.assert_close(mine, torch.full_like(mine, np.exp(0.3)), rtol=1e-4, atol=0)
    want = torch.where(length <= 2, (0.3 * length).exp(), 0.0)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=0)
