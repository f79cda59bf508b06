"""A recipe compiled into verl's settings: a flat mapping of dotted names, and who does the rest.

Nothing here needs verl, a GPU, the network or the model. What is compiled is held against the
settings again when verl's trainer starts (`differences`), so that a value of the learning rule
cannot be changed behind our code's back.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from brorl.errors import ConfigError
from brorl.train.settings import TrainSettings
from brorl.verl import names
from brorl.verl.overrides import override
from brorl.verl.refusals import is_hub_name, refuse
from brorl.verl.table import TABLE, Place, fields, value_of

MAX_PROMPT_TOKENS = 1024
_ACTOR = "actor_rollout_ref.actor"
_REF = "actor_rollout_ref.ref"
_ROLLOUT = "actor_rollout_ref.rollout"
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

ADDED = (
    "brorl.run",
    "ray_kwargs.ray_init.address",
    "ray_kwargs.ray_init.runtime_env.env_vars",
    f"{_ACTOR}.fsdp_config.mixed_precision",
    f"{_REF}.fsdp_config.mixed_precision",
)
"""Settings that verl's configuration has room for and does not list: hydra wants a + there."""

MACHINE = (
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "trainer.default_local_dir",
    "trainer.device",
    "data.train_files",
    "data.val_files",
    "actor_rollout_ref.model.path",
    f"{_ROLLOUT}.name",
    "ray_kwargs.",
    "brorl.run",
)
"""Beginnings of settings that say where verl runs, not what it computes."""


class Cluster(NamedTuple):
    """Where verl runs.

    ray_address: of a running Ray cluster ("auto", "host:port"), None to start a local one.
    max_prompt_tokens: of the longest prompt; verl sizes its engine by it.
    """

    nodes: int = 1
    gpus_per_node: int = 1
    ray_address: str | None = None
    max_prompt_tokens: int = MAX_PROMPT_TOKENS


class Compiled(NamedTuple):
    """A recipe on verl.

    Attributes:
        verl: flat dotted names of verl's settings.
        brorl: our settings that our own code carries out, in verl or before it starts.
        not_used: settings of the embedded engine or its machine, with the reason.
        unmapped: settings without a place: empty, or a bug (tests/verl_package/test_compile.py).
    """

    settings: TrainSettings
    verl: dict[str, Any]
    brorl: dict[str, Any]
    not_used: dict[str, str]
    unmapped: list[str]

    def command(self, python: str = sys.executable) -> list[str]:
        """The words that start verl's own trainer."""
        words = [override(k, v, added=k in ADDED) for k, v in self.verl.items()]
        return [python, "-m", "verl.trainer.main_ppo", *words]


def compile_recipe(
    settings: TrainSettings,
    run: Path,
    cluster: Cluster,
    more: Mapping[str, Any] | None = None,
) -> Compiled:
    """Verl's settings for a recipe.

    Args:
        settings: of the recipe.
        run: folder of the run, seen by every node.
        cluster: see Cluster.
        more: further settings of verl, by dotted name: engine and memory, never the learning rule.

    Raises:
        ConfigError: a setting that verl cannot express, or one in `more` that the recipe decides.
    """
    refuse(settings)
    if cluster.nodes < 1 or cluster.gpus_per_node < 1 or cluster.max_prompt_tokens < 1:
        raise ConfigError(f"nodes, GPUs and prompt tokens must be at least 1, got {cluster}")
    flat = learning_rule(settings, cluster.max_prompt_tokens) | _machine(settings, run, cluster)
    decided = set(flat) - {"ray_kwargs.ray_init.num_cpus"}
    for name, value in (more or {}).items():
        if name in decided:
            raise ConfigError(
                f"--verl {name}: the recipe decides it ({flat[name]!r}); change the recipe"
            )
        flat[name] = value
    ours, unused, unmapped = {}, {}, []
    for dotted in fields():
        entry = TABLE.get(dotted)
        if entry is None:
            unmapped.append(dotted)
        elif entry.place in (Place.BRORL, Place.LAUNCH):
            ours[dotted] = value_of(settings, dotted)
        elif entry.place is Place.EMBEDDED:
            unused[dotted] = entry.note or "of the embedded engine"
    return Compiled(settings, flat, ours, unused, unmapped)


def learning_rule(settings: TrainSettings, max_prompt_tokens: int) -> dict[str, Any]:
    """What verl must hold for the recipe's rule; the trainer compares it again (`differences`)."""
    s = settings
    longest = max(s.rollout.max_new_tokens, s.eval.max_new_tokens or 0)
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": names.TRAINER,
        "trainer.total_training_steps": s.steps,
        "trainer.total_epochs": s.steps + 1,  # verl also stops at an epoch; steps decide
        "trainer.critic_warmup": 0,
        "trainer.test_freq": s.eval_every or max(s.steps, 1),
        "trainer.val_before_train": True,
        "trainer.save_freq": s.save_every,
        "critic.enable": False,
        "data.train_batch_size": s.prompts_per_step,
        "data.max_prompt_length": max_prompt_tokens,
        "data.max_response_length": longest,
        "data.seed": s.seed % 2**31,
        "reward.reward_manager.source": "register",
        "reward.reward_manager.name": names.TRAINER,
        **_algorithm(s),
        **_actor(s, max_prompt_tokens + longest),
        **_reference(s),
        **_rollout(s),
    }


def _algorithm(s: TrainSettings) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": names.estimator_name(s.advantage),
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": False,
        "algorithm.rollout_correction.bypass_mode": bool(s.reuse_engine_logprobs),
        "algorithm.rollout_correction.rollout_is": None,
        "algorithm.rollout_correction.rollout_rs": None,
    }


def _actor(s: TrainSettings, longest_row: int) -> dict[str, Any]:
    o = s.optimizer
    actor: dict[str, Any] = {
        "strategy": "fsdp2",
        "ppo_epochs": 1,
        "shuffle": False,
        "ppo_mini_batch_size": minibatch_prompts(s),
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": max(s.micro_batch_tokens, longest_row),
        "policy_loss.loss_mode": names.loss_name(s),
        "clip_ratio": s.clip_ratio_low,
        "clip_ratio_low": s.clip_ratio_low,
        "clip_ratio_high": s.clip_ratio_high,
        "loss_agg_mode": s.loss_agg_mode,
        "entropy_coeff": 0,
        "calculate_entropy": True,
        "use_kl_loss": s.kl_coef > 0,
        "kl_loss_coef": s.kl_coef,
        "kl_loss_type": names.kl_loss_type(s),
        "data_loader_seed": s.seed % 2**31,
        "grad_clip": o.grad_clip,
        "optim.optimizer": "AdamW",
        "optim.lr": s.lr * s.lr_scale,
        "optim.betas": [o.beta1, o.beta2],
        "optim.weight_decay": o.weight_decay,
        "optim.clip_grad": o.grad_clip,
        "optim.override_optimizer_config": {"eps": o.eps},
        "optim.lr_scheduler_type": "constant",
        "optim.lr_warmup_steps": 0,
        "optim.lr_warmup_steps_ratio": 0.0,
        "fsdp_config.seed": s.seed % 2**31,
        "fsdp_config.model_dtype": "fp32",
        "fsdp_config.mixed_precision": _precision(s),
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "checkpoint.load_contents": ["model", "optimizer", "extra"],
    }
    if s.clip_ratio_c is not None:
        actor["clip_ratio_c"] = s.clip_ratio_c
    return {f"{_ACTOR}.{k}": v for k, v in actor.items()}


def _reference(s: TrainSettings) -> dict[str, Any]:
    if s.kl_coef == 0:
        return {}
    return {
        f"{_REF}.fsdp_config.model_dtype": "fp32",
        f"{_REF}.fsdp_config.mixed_precision": _precision(s),
    }


def _rollout(s: TrainSettings) -> dict[str, Any]:
    rollout = {
        "n": s.rollout.widest,
        "temperature": s.rollout.temperature,
        "top_p": s.rollout.top_p,
        "top_k": s.rollout.top_k or -1,
        "do_sample": True,
        "dtype": s.model.dtype,
        "seed": s.seed % 2**31,
        "calculate_log_probs": True,
        "enable_prefix_caching": True,
        "agent.default_agent_loop": names.TRAINER,
        "val_kwargs.n": s.eval.samples,
        "val_kwargs.temperature": s.eval.temperature,
        "val_kwargs.top_p": s.eval.top_p,
        "val_kwargs.top_k": s.eval.top_k or -1,
        "val_kwargs.do_sample": s.eval.temperature > 0,
    }
    return {f"{_ROLLOUT}.{k}": v for k, v in rollout.items()}


def minibatch_prompts(s: TrainSettings) -> int:
    """actor.ppo_mini_batch_size, which counts prompts: prompts_per_step / num_minibatches.

    verl multiplies it by rollout.n. Written as samples it would ask for n times too large a
    mini-batch, and one update where several were meant. It is at least 1: with fewer prompts than
    mini-batches verl could not split at all, and our own dealing does.
    """
    return max(1, s.prompts_per_step // s.num_minibatches)


def _precision(s: TrainSettings) -> dict[str, str]:
    return {"param_dtype": _DTYPES[s.model.dtype], "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def _machine(s: TrainSettings, run: Path, cluster: Cluster) -> dict[str, Any]:
    """Where it runs: paths, nodes, processes, loggers."""
    flat: dict[str, Any] = {
        "actor_rollout_ref.model.path": str(model_path(s, run)),
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        "data.train_files": str(run / "data" / "train.parquet"),
        "data.val_files": str(run / "data" / "heldout.parquet"),
        "reward.num_workers": max(1, s.grading.workers if s.grading.workers is not None else 8),
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.gpus_per_node,
        "trainer.device": "cuda",
        "trainer.project_name": "brorl",
        "trainer.experiment_name": s.name or "recipe",
        "trainer.logger": list(s.logger) or ["console"],
        "trainer.default_local_dir": str(run / "checkpoints"),
        "trainer.max_actor_ckpt_to_keep": s.keep_checkpoints,
        "trainer.resume_mode": "auto",
        "brorl.run": str(run),
        "ray_kwargs.ray_init.runtime_env.env_vars": {
            "VERL_USE_EXTERNAL_MODULES": names.PLUGIN,
            "TENSORBOARD_DIR": str(run / "tensorboard"),
        },
    }
    if cluster.ray_address is not None:
        flat["ray_kwargs.ray_init.address"] = cluster.ray_address
    return flat


def model_path(s: TrainSettings, run: Path) -> Path | str:
    """The folder or hub name that verl loads; a pinned revision is fetched into the run."""
    if s.init.from_ is not None:
        from brorl.train.checkpoint import find_checkpoint

        return find_checkpoint(Path(s.init.from_)).resolve()
    path = s.model.path or ""
    if is_hub_name(path):
        return run / "model" if s.model.revision is not None else path
    return Path(path).expanduser().resolve()


def differences(settings: TrainSettings, flat: Mapping[str, Any]) -> list[str]:
    """Settings of the learning rule whose value in verl is not the recipe's, in words.

    Args:
        settings: of the run's config.yaml.
        flat: verl's configuration by dotted name, as it runs.
    """
    rule = learning_rule(settings, int(flat.get("data.max_prompt_length", MAX_PROMPT_TOKENS)))
    found = []
    for name, wanted in rule.items():
        came = flat.get(name)
        if not _same(wanted, came):
            found.append(f"{name} must be {wanted!r}, got {came!r}")
    return found


def _same(wanted: Any, came: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(came, Mapping) and all(_same(v, came.get(k)) for k, v in wanted.items())
    if isinstance(wanted, list | tuple):
        came = list(came) if isinstance(came, Sequence) else []
        return len(wanted) == len(came) and all(map(_same, wanted, came))
    if isinstance(wanted, float) and isinstance(came, int | float):
        return math.isclose(wanted, came, rel_tol=1e-12)
    return bool(wanted == came)
