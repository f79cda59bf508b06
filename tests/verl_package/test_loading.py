"""The compiled configuration through verl's own loading: hydra, its dataclasses, its validation."""

import pytest

from brorl.train.recipe import load_recipe
from brorl.verl.compile import ADDED, Cluster, compile_recipe, differences
from brorl.verl.flat import flat
from brorl.verl.overrides import override

pytest.importorskip("verl", reason="verl is not installed: make test-verl")
pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # of what verl imports
]

OWN = ["task=null", "data.train=rows.jsonl", "warmstart=null"]
CASES = {
    "brorl": [],
    "dapo": ["clip_ratio_c=10", "reuse_engine_logprobs=true"],
    "grpo": [
        "kl_estimator=k1",
        "loss_agg_mode=seq-mean-token-sum",
        "eval.temperature=0",
        "eval.samples=1",
    ],
    "quickstart": [
        "model.path=/models/it's a [model], really",
        "name='null'",
        "logger=[]",
        "seed=9999999999",
    ],
}


def loaded(words):
    """What verl's main function would get."""
    from hydra import compose, initialize_config_module

    with initialize_config_module(version_base=None, config_module="verl.trainer.config"):
        return compose("ppo_trainer", overrides=words)


@pytest.mark.parametrize("recipe", CASES)
def test_verl_reads_and_accepts_what_was_compiled(tmp_path, recipe):
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    settings = load_recipe(recipe, [*OWN, *CASES[recipe]])
    found = compile_recipe(settings, tmp_path, Cluster(2, 8, "10.0.0.1:6379"))
    config = loaded(found.command()[3:])
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert need_reference_policy(config) == (settings.kl_coef > 0)
    assert not need_critic(config)
    read = flat(OmegaConf.to_container(config, resolve=True))
    assert {k: read[k] for k in found.verl} == found.verl
    assert differences(settings, read) == []
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert (rollout.n, rollout.response_length) == (
        settings.rollout.n,
        found.verl["data.max_response_length"],
    )


def test_a_name_is_added_only_where_verl_lacks_it(tmp_path):
    """hydra refuses + on what exists, and a plain name on what does not: both lists are right."""
    settings = load_recipe("brorl", OWN)
    found = compile_recipe(settings, tmp_path, Cluster(2, 8, "10.0.0.1:6379"))
    for name, value in found.verl.items():
        if name in ADDED:
            with pytest.raises(Exception, match=r"Could not override|append"):
                loaded([override(name, value, added=False)])


def test_our_names_are_found_in_verl_s_registries():
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
    from verl.trainer.ppo.v1 import PPOTrainerSync, get_trainer_cls

    import brorl.verl.plugin  # noqa: F401
    from brorl.verl.names import CLIP, DUAL_CLIP, TRAINER, estimators

    assert [get_adv_estimator_fn(n).__name__ for n in estimators()] == list(estimators())
    assert [get_policy_loss_fn(n).__name__ for n in (CLIP, DUAL_CLIP)] == [CLIP, DUAL_CLIP]
    assert issubclass(get_trainer_cls(TRAINER), PPOTrainerSync)
    assert get_reward_manager_cls(TRAINER).__module__ == "brorl.verl.reward"
    assert _agent_loop_registry[TRAINER]["_target_"] == "brorl.verl.agent_loop.BrorlAgentLoop"


def test_a_changed_configuration_does_not_start(tmp_path):
    """Attack: verl's command edited by hand. The trainer compares it with config.yaml first."""
    from omegaconf import OmegaConf

    from brorl.errors import ConfigError
    from brorl.train.recipe import dump_settings
    from brorl.verl.trainer import BrorlTrainer

    settings = load_recipe("grpo", OWN)
    (tmp_path / "config.yaml").write_text(dump_settings(settings))
    found = compile_recipe(settings, tmp_path, Cluster())
    config = loaded(found.command()[3:])
    OmegaConf.update(config, "actor_rollout_ref.actor.clip_ratio_high", 0.5)
    with pytest.raises(ConfigError, match=r"clip_ratio_high must be 0\.2, got 0\.5"):
        BrorlTrainer(config)


def test_verl_s_own_advantage_step_calls_ours():
    """Identity: verl's compute_advantage with our name gives our numbers, written into its batch."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    import brorl.verl.plugin  # noqa: F401
    from brorl.verl.estimators import estimator

    scores = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.5, 0.0], [0.0, 1.0]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1]])
    uids = np.array(["a", "a", "b", "b"], dtype=object)
    name = "brorl_reinforce_plus_plus_baseline_trajectory"
    data = DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask}, non_tensors={"uid": uids}
    )
    done = compute_advantage(data, adv_estimator=name, config={})
    wanted, _ = estimator(name)(token_level_rewards=scores, response_mask=mask, index=uids)
    assert torch.equal(done.batch["advantages"], wanted)
    assert wanted.abs().sum() > 0


def test_paths_that_a_node_does_not_see_are_named(tmp_path, monkeypatch):
    """On a real local Ray: a task on each node looks."""
    from brorl.verl.start import unseen_by

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    missing = tmp_path / "model"
    found = unseen_by("local", [str(tmp_path), str(missing)])
    assert len(found) == 1
    assert found[0].endswith(f"does not see {missing}")
