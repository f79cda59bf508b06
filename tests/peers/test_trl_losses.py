"""Log-probs, losses, gradients and a whole training step against TRL's.

Oracle: TRL 1.16 on the same tiny policy, rollouts and rewards (tests/peers/trl_trainer.py).
"""

import numpy as np
import pytest
import torch

pytest.importorskip("trl", reason="make test-peers has TRL in an environment of its own")

from brorl.rollout.engine import Completion, Stop
from brorl.tasks.problem import Problem
from brorl.train.batch import rows_of
from brorl.train.groups import Group, Sample
from brorl.train.recipe import settings_from
from brorl.train.update import update
from brorl.verify.verdict import correct

from .trl_trainer import (
    LONGEST,
    N,
    assert_same,
    folder,
    gradient,
    policy,
    prepared,
    rollouts,
    scored,
    tokens,
    trainer,
)

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
__all__ = ["folder", "policy"]


def row_settings(agg, **changes):
    values = {
        "rollout": {"n": N, "max_new_tokens": LONGEST}, "prompts_per_step": 3,
        "num_minibatches": 1, "lr": 1.0, "steps": 1, "loss_agg_mode": agg,
        "optimizer": {"grad_clip": 1e9},
    } | changes  # fmt: skip
    return settings_from(values, "test")


def groups_of(given, advantage_B):
    """Our groups of TRL's rollouts, each answer with the advantage that TRL gave it."""
    made, values = [], advantage_B.tolist()
    for g, prompt in enumerate(given.prompts):
        samples = []
        for i in range(N):
            answer = given.answers[g * N + i]
            ids = np.array(answer, np.int32)
            lp = np.zeros(len(answer), np.float32)
            c = Completion(ids, lp, np.ones(len(answer), bool), Stop.LENGTH, 0)
            s = Sample(i, c, "x", correct("x", ""), given.rewards[g * N + i])
            s.advantage = values[g * N + i]
            samples.append(s)
        problem = Problem(f"p{g}", "a", "x", row={}, task="toy")
        made.append(Group(f"g{g}", problem, tuple(prompt), 0, 1, samples))
    return made


class Recorder(torch.optim.SGD):
    """Keeps the gradient that the update hands over, and changes nothing."""

    def __init__(self, model):
        super().__init__(model.parameters(), lr=0.0)
        self.found = {}
        self._named = dict(model.named_parameters())

    def step(self):
        self.found = {n: p.grad.clone() for n, p in self._named.items() if p.grad is not None}


def our_gradient(policy, given, inputs, s, denominator=None):
    """(loss, gradient by name) of `train.update` on the same tokens."""
    rows = rows_of(groups_of(given, inputs["advantages"]))
    old, mask = inputs["old_per_token_logps"], inputs["completion_mask"].bool()
    for i, row in enumerate(rows):
        row.old_logp = old[i][mask[i]].numpy()
    optimizer = Recorder(policy.model)
    report = update(
        policy, optimizer, [rows], s, whole_lengths=[], reference=None, lr=lambda n: 0.0,
        updates_done=0, after_update=lambda n: None,
    )  # fmt: skip
    return report.loss, optimizer.found


LOSSES = {  # TRL's loss_type to our loss_agg_mode and a constant between them
    "dapo": ("token-mean", 1.0),
    "bnpo": ("token-mean", 1.0),
    "grpo": ("seq-mean-token-mean", 1.0),
    "dr_grpo": ("seq-mean-token-sum", 1 / LONGEST),  # it divides by a constant length too
}


@pytest.mark.parametrize("loss_type", LOSSES)
@pytest.mark.parametrize("delta", [None, 1.5])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_losses_and_gradients(policy, folder, tmp_path, loss_type, delta, temperature):
    """Off-policy by 0.4 nats a token, so that both bounds and the third one cut."""
    given = rollouts(seed=len(loss_type))
    made = trainer(
        folder, given, tmp_path, loss_type=loss_type, epsilon=0.2, epsilon_high=0.28,
        temperature=temperature, scale_rewards="none", delta=delta,
    )  # fmt: skip
    inputs = prepared(made, given)
    agg, scale = LOSSES[loss_type]
    s = row_settings(
        agg, clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_c=delta,
        rollout={"n": N, "max_new_tokens": LONGEST, "temperature": temperature},
    )  # fmt: skip
    got = our_gradient(policy, given, inputs, s)
    assert_same(got, gradient(made, inputs), scale)


def test_micro_batches_add_up_to_their_whole_batch(policy, folder, tmp_path):
    """Ours, cut by a budget of 16 tokens, against TRL's whole batch at once."""
    given = rollouts(seed=11)
    made = trainer(
        folder, given, tmp_path, loss_type="dapo", epsilon_high=0.28, scale_rewards="none"
    )
    inputs = prepared(made, given)
    s = row_settings("token-mean", micro_batch_tokens=16)
    assert_same(our_gradient(policy, given, inputs, s), gradient(made, inputs))


def test_one_step_of_their_training_loop(policy, folder, tmp_path):
    """`GRPOTrainer.train` itself, on-policy, two accumulated micro-batches: the gradient before its
    optimizer steps is ours."""
    from transformers import TrainerCallback

    given = rollouts(seed=4, prompts=4)
    seen = {}

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            seen.update({n: p.grad.clone() for n, p in model.named_parameters()})

    made = trainer(
        folder, given, tmp_path, loss_type="dapo", epsilon_high=0.28, scale_rewards="none",
        per_device_train_batch_size=8, gradient_accumulation_steps=2, steps_per_generation=2,
        shuffle_dataset=False,
    )  # fmt: skip
    made.add_callback(Watch())
    torch.manual_seed(0)
    made.train()
    reference = trainer(
        folder, given, tmp_path, loss_type="dapo", epsilon_high=0.28, scale_rewards="none"
    )
    inputs = prepared(reference, given)
    with torch.no_grad():  # on-policy: old log-probs are the policy's own
        rows = rows_of(groups_of(given, inputs["advantages"]))
    optimizer = Recorder(policy.model)
    for row in rows:
        row.old_logp = own_logps(policy, row)
    update(
        policy, optimizer, [rows], row_settings("token-mean", prompts_per_step=4),
        whole_lengths=[], reference=None, lr=lambda n: 0.0, updates_done=0,
        after_update=lambda n: None,
    )  # fmt: skip
    whole = torch.cat([g.flatten() for g in seen.values()]).norm()
    assert whole > 1e-3
    for name, g in optimizer.found.items():
        assert (g - seen[name]).norm() <= 1e-5 * whole, name


@torch.no_grad()
def own_logps(policy, row):
    ids = torch.tensor([[*row.prompt, *row.sample.completion.tokens.tolist()]])
    logp = policy.model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1].log_softmax(-1)
    return logp.gather(-1, ids[0, len(row.prompt) :, None])[:, 0].numpy()


def test_log_probs_and_entropies(policy, folder, tmp_path):
    """Scoring with a shared prompt against TRL's padded forward, at a temperature."""
    given = rollouts(seed=9)
    made = trainer(folder, given, tmp_path, temperature=0.6)
    inputs = scored(made)
    mask = inputs["completion_mask"]
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], mask], 1)
    with torch.no_grad():
        logp, entropy, _ = made._get_per_token_logps_and_entropies(
            made.model, ids, attention, mask.size(1), compute_entropy=True
        )
        group = torch.arange(len(given.prompts)).repeat_interleave(N)
        got = policy.score(
            given.prompts, group, inputs["completion_ids"], mask.sum(1), temperature=0.6
        )
    torch.testing.assert_close(got.logp_M, tokens(logp, mask), rtol=0, atol=2e-5)
    torch.testing.assert_close(got.entropy_M, tokens(entropy, mask), rtol=0, atol=2e-5)
