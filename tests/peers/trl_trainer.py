"""TRL's GRPO and RLOO trainers on a tiny policy, with rollouts and rewards given by hand.

Everything below `_generate` is TRL's own: padding, scoring, advantages, corrections, losses.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch

trl = pytest.importorskip("trl", reason="make test-peers has TRL in an environment of its own")

from datasets import Dataset  # noqa: E402
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # noqa: E402

from brorl.policy.load import save_policy, tiny_policy  # noqa: E402
from brorl.policy.tiny import TinyShape  # noqa: E402

N = 4  # answers a prompt
LONGEST = 6  # answer tokens
SHAPE = TinyShape("llama", 2, 16, 2, 1, 32, 64, True)


@pytest.fixture(scope="module")
def policy():
    made = tiny_policy(SHAPE, seed=0, device="cpu", trained_length=LONGEST)
    with torch.no_grad():  # sharp, so that a wrong position costs nats
        for parameter in made.model.parameters():
            parameter.mul_(4.0)
    return made


@pytest.fixture(scope="module")
def folder(policy, tmp_path_factory):
    where = tmp_path_factory.mktemp("policy")
    save_policy(policy, where)
    return where


class Rollouts(NamedTuple):
    """P prompts with N answers each, in order of prompts; what an engine would hand over."""

    prompts: list[list[int]]
    answers: list[list[int]]
    rewards: list[float]
    engine_logps: list[list[float]]


def rollouts(seed=0, prompts=3, rewards=None):
    """Prompts of 2 to 6 tokens, answers of 1 to LONGEST, in ids that the tiny tokenizer knows."""
    rng = np.random.default_rng(seed)
    asked = [rng.integers(3, 90, rng.integers(2, 7)).tolist() for _ in range(prompts)]
    lengths = rng.integers(1, LONGEST + 1, prompts * N)
    lengths[0] = LONGEST
    answers = [rng.integers(3, 90, n).tolist() for n in lengths]
    if rewards is None:
        rewards = rng.normal(size=prompts * N).round(3).tolist()
    engine = [(-3 + rng.normal(size=n)).tolist() for n in lengths]
    return Rollouts(asked, answers, rewards, engine)


def _fixed(base):
    """A trainer class whose rollouts are `given`, whatever the prompts of its data set."""

    class Fixed(base):
        given: Rollouts

        def _generate(self, prompts):
            g = self.given
            asked = [list(p) for p in g.prompts for _ in range(N)]
            texts = ["x"] * len(asked)
            if base is RLOOTrainer:
                return asked, g.answers, texts
            engine = [list(x) for x in g.engine_logps]
            return asked, g.answers, None, texts, engine, {}, None, None

    return Fixed


def trainer(policy_folder, given, folder, *, rloo=False, corrected=False, **settings):
    """A trainer over one batch that holds all of `given`, CPU, float32, SGD-free and silent.

    Args:
        corrected: compute the correction between engine and trainer as after vLLM.
    """
    config, base = (RLOOConfig, RLOOTrainer) if rloo else (GRPOConfig, GRPOTrainer)
    batch = len(given.answers)
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": batch, "num_generations": N,
        "max_completion_length": LONGEST, "temperature": 1.0, "beta": 0.0, "num_iterations": 1,
        "learning_rate": 0.0, "max_grad_norm": 1e9, "max_steps": 1, "report_to": [], "bf16": False,
        "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no",
        "gradient_checkpointing": False, "shuffle_dataset": False,
    } | settings  # fmt: skip

    def reward(prompts, completions, **kwargs):
        return list(given.rewards)

    made = _fixed(base)(
        model=str(policy_folder),
        reward_funcs=reward,
        args=config(**settings),
        train_dataset=Dataset.from_list([{"prompt": "a"}] * len(given.prompts)),
    )
    made.given = given
    if corrected:
        made.use_vllm, made.vllm_importance_sampling_correction = True, True
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    return made


def scored(made):
    """What TRL makes of the rollouts before its loss: advantages, corrections, reference."""
    asked = [{"prompt": "a"} for p in made.given.prompts for _ in range(N)]
    return made._generate_and_score_completions(asked)


def gradient(made, inputs):
    """(loss, gradient of every parameter by name) of TRL's own loss on prepared inputs."""
    made.model.zero_grad(set_to_none=True)
    loss = made._compute_loss(made.model, inputs)
    loss.backward()
    found = {n: p.grad.clone() for n, p in made.model.named_parameters() if p.grad is not None}
    made.model.zero_grad(set_to_none=True)
    return float(loss.detach()), found


def tokens(values_BT, mask_BT):
    """[M] of a padded [B, T]: real tokens in order of rows."""
    return torch.as_tensor(values_BT)[mask_BT.bool()]


def scored_logps(made, inputs):
    """TRL's own log-probs [B, T] of the completions, with gradient."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    return made._get_per_token_logps_and_entropies(
        made.model, ids, attention, inputs["completion_ids"].size(1)
    )[0]


def prepared(made, given, seed=5, **more):
    """TRL's inputs with old log-probs 0.4 nats beside the policy's own, and advantages at hand."""
    out = scored(made)
    rng = np.random.default_rng(seed)
    mask = out["completion_mask"].bool()
    with torch.no_grad():
        ids = torch.cat([out["prompt_ids"], out["completion_ids"]], 1)
        attention = torch.cat([out["prompt_mask"], out["completion_mask"]], 1)
        own, _, _ = made._get_per_token_logps_and_entropies(
            made.model, ids, attention, out["completion_ids"].size(1)
        )
    noise = torch.from_numpy(rng.normal(size=tuple(mask.shape))).float()
    out["old_per_token_logps"] = own + 0.4 * noise
    return out | more


def assert_same(got, want, scale=1.0):
    """Losses to 1e-5, every parameter's gradient to 1e-5 of the whole one's norm."""
    (loss, grads), (want_loss, want_grads) = got, want
    whole = torch.cat([g.flatten() for g in want_grads.values()]).norm()
    assert whole > 1e-3
    assert loss * scale == pytest.approx(want_loss, rel=1e-5, abs=1e-6)
    assert grads.keys() == want_grads.keys()
    for name, g in want_grads.items():
        assert (grads[name] * scale - g).norm() <= 1e-5 * whole, name
