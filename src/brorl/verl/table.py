"""Where each setting of a recipe goes: to a setting of verl, to our code inside verl, or nowhere.

The compiler, `brorl launch`, docs/scale-out.md and a test that walks every field of
TrainSettings all read this one table. No torch.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from brorl.train.settings import TrainSettings


class Place(StrEnum):
    """Who carries a setting out."""

    VERL = "verl"  # one or more of verl's own settings
    BRORL = "brorl"  # our code, in verl's processes
    LAUNCH = "launch"  # `brorl launch`, before verl starts
    REFUSED = "refused"  # any value but the default is refused by name
    EMBEDDED = "embedded"  # of the embedded engine or its machine; no part of the learning rule


class Entry(NamedTuple):
    """One setting's place.

    target: dotted names of verl's settings, or the function of ours that reads it.
    note: what a reader would not guess.
    """

    place: Place
    target: str
    note: str = ""


_V, _B, _L, _R, _E = Place.VERL, Place.BRORL, Place.LAUNCH, Place.REFUSED, Place.EMBEDDED
_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_COLLECT = "train.collect.Collector"
_SHAPE = "train.rewards.shape"
_ADVANTAGE = "train.rewards.assign_advantages"
_RATE = "train.rate.update_lr"
_GRADE = "verl.reward.BrorlRewardManager"
_UPDATE = "verl.update"

TABLE: dict[str, Entry] = {
    "name": Entry(_V, "trainer.experiment_name"),
    "seed": Entry(
        _V,
        f"data.seed, {_ROLLOUT}.seed, {_ACTOR}.data_loader_seed, {_ACTOR}.fsdp_config.seed",
        "prompts, mini-batches and random rewards use our named streams; tokens do not",
    ),
    "model.path": Entry(_V, "actor_rollout_ref.model.path"),
    "model.revision": Entry(_L, "verl.start.fetch_model", "verl has no revision: fetched first"),
    "model.dtype": Entry(
        _V,
        f"{_ACTOR}.fsdp_config.mixed_precision, {_ROLLOUT}.dtype",
        "master weights and moments stay in float32",
    ),
    "model.master_dtype": Entry(_R, "-", "verl's masters are float32"),
    "model.gradient_checkpointing": Entry(_E, "brorl train", "verl checkpoints layers by itself"),
    "lora": Entry(_R, "-", "adapters train in the embedded trainer"),
    "model.device": Entry(_V, "trainer.device", "auto is CUDA; others are refused"),
    "model.shape": Entry(_E, "brorl plan", "the checkpoint has a shape of its own"),
    "task": Entry(_L, "verl.data_files", "problems become Parquet; the verifier grades in verl"),
    "data.train": Entry(_L, "verl.data_files", "data.train_files names the Parquet file"),
    "data.eval": Entry(_L, "verl.data_files", "data.val_files names the Parquet file"),
    "data.prompt": Entry(_L, "verl.data_files"),
    "data.answer": Entry(_L, "verl.data_files"),
    "data.verifier": Entry(_B, _GRADE),
    "data.held_out": Entry(_L, "verl.data_files"),
    "data.solved_weight": Entry(_B, "train.prompts.PromptSource"),
    "data.solved_share": Entry(_B, "train.prompts.PromptSource"),
    "data.solved_visits": Entry(_B, "train.prompts.PromptSource"),
    "reward.source": Entry(_B, _GRADE, "labels by majority are refused"),
    "reward.options": Entry(_B, _GRADE),
    "warmstart": Entry(_R, "brorl warmstart", "run it first"),
    "init.from": Entry(_V, "actor_rollout_ref.model.path", "weights of an older run's checkpoint"),
    "init.restore": Entry(_R, "-", "weights alone"),
    "rollout.engine": Entry(_V, f"{_ROLLOUT}.name", "vLLM samples, whatever the recipe says"),
    "rollout.vllm": Entry(_E, "-", "of vLLM inside the embedded trainer; verl starts its own"),
    "rollout.openai": Entry(_E, "-", "of a server to evaluate; none can train"),
    "rollout.n": Entry(_V, f"{_ROLLOUT}.n"),
    "rollout.waves": Entry(_B, _COLLECT, "verl gets the widest as rollout.n; auto is refused"),
    "rollout.auto": Entry(_R, "-", "goes with waves: auto"),
    "rollout.stop_right": Entry(_B, _COLLECT),
    "rollout.keep_per_group": Entry(_B, _ADVANTAGE),
    "rollout.keep_rule": Entry(_B, _ADVANTAGE),
    "rollout.temperature": Entry(_V, f"{_ROLLOUT}.temperature"),
    "rollout.top_p": Entry(_V, f"{_ROLLOUT}.top_p", "1 in training, always"),
    "rollout.top_k": Entry(_V, f"{_ROLLOUT}.top_k", "0 is -1 in verl"),
    "rollout.max_new_tokens": Entry(
        _V, "data.max_response_length", "the larger of the training and evaluation limits"
    ),
    "rollout.memory_budget": Entry(_E, "-", "verl: rollout.gpu_memory_utilization"),
    "prompts_per_step": Entry(_V, "data.train_batch_size"),
    "num_minibatches": Entry(
        _B,
        f"train.batch.minibatches ({_ACTOR}.ppo_mini_batch_size)",
        "verl's counts prompts, ours deals a slice of every group to each update",
    ),
    "advantage.estimator": Entry(_B, f"{_ADVANTAGE} (algorithm.adv_estimator)"),
    "advantage.normalise": Entry(_B, f"{_ADVANTAGE} (algorithm.adv_estimator)"),
    "advantage.baseline": Entry(_B, _ADVANTAGE),
    "advantage.weight": Entry(_B, _UPDATE, "unbiased with kl_coef > 0 is refused"),
    "dynamic_sampling.enable": Entry(_B, _COLLECT, "algorithm.filter_groups stays off"),
    "dynamic_sampling.metric": Entry(_B, _COLLECT),
    "dynamic_sampling.max_gen_batches": Entry(_B, _COLLECT, "verl's own refill has no bound"),
    "dynamic_sampling.on_exhausted": Entry(_B, _COLLECT),
    "dynamic_sampling.oversample": Entry(_B, _COLLECT),
    "dynamic_sampling.surplus": Entry(_R, "-", "drop alone"),
    "dynamic_sampling.max_empty_steps": Entry(_B, "verl.trainer.BrorlTrainer"),
    "clip_ratio_low": Entry(_V, f"{_ACTOR}.clip_ratio_low, {_ACTOR}.clip_ratio"),
    "clip_ratio_high": Entry(_V, f"{_ACTOR}.clip_ratio_high"),
    "clip_ratio_c": Entry(
        _V,
        f"{_ACTOR}.policy_loss.loss_mode, {_ACTOR}.clip_ratio_c",
        "unset: no dual clip, by our loss; verl's own clips at 3 unasked",
    ),
    "loss_agg_mode": Entry(_V, f"{_ACTOR}.loss_agg_mode", "counts are global, padding left out"),
    "tis.type": Entry(_B, f"{_UPDATE}.corrections", "weights travel as rollout_is_weights"),
    "tis.cap": Entry(_B, f"{_UPDATE}.corrections"),
    "tis.min": Entry(_B, f"{_UPDATE}.corrections"),
    "reuse_engine_logprobs": Entry(
        _V,
        "algorithm.rollout_correction.bypass_mode",
        "unset means no here: vLLM's numbers are not the trainer's",
    ),
    "kl_coef": Entry(_V, f"{_ACTOR}.use_kl_loss, {_ACTOR}.kl_loss_coef"),
    "kl_estimator": Entry(_V, f"{_ACTOR}.kl_loss_type", "not cut at 10 nats, as ours is"),
    "ref.reset_every": Entry(_B, "train.reference.ResetRule, verl.worker.BrorlWorker"),
    "ref.reset_on": Entry(_B, "train.reference.ResetRule"),
    "ref.stall_evals": Entry(_B, "train.reference.ResetRule"),
    "ref.kl_spike": Entry(_B, "train.reference.ResetRule"),
    "ref.reset_optimizer": Entry(_B, "verl.worker.BrorlWorker"),
    "length_penalty.enable": Entry(_B, _SHAPE),
    "length_penalty.max": Entry(_B, _SHAPE),
    "length_penalty.min": Entry(_B, _SHAPE),
    "length_penalty.weight": Entry(_B, _SHAPE),
    "length_penalty.on_steps": Entry(_B, _SHAPE),
    "length_penalty.off_steps": Entry(_B, _SHAPE),
    "overlong.buffer": Entry(_B, _SHAPE),
    "overlong.factor": Entry(_B, _SHAPE),
    "overlong.stop_properly": Entry(_B, _SHAPE),
    "lr": Entry(_V, f"{_ACTOR}.optim.lr", "scaled; set again before each update"),
    "lr_scaling": Entry(_B, _RATE),
    "lr_base_samples": Entry(_B, _RATE),
    "lr_schedule": Entry(_B, _RATE, "verl's schedule stays constant"),
    "lr_warmup_updates": Entry(_B, _RATE, "verl's first warm-up update has rate 0, ours moves"),
    "lr_decay_updates": Entry(_B, _RATE),
    "lr_floor": Entry(_B, _RATE),
    "optimizer.beta1": Entry(_V, f"{_ACTOR}.optim.betas"),
    "optimizer.beta2": Entry(_V, f"{_ACTOR}.optim.betas"),
    "optimizer.eps": Entry(_V, f"{_ACTOR}.optim.override_optimizer_config"),
    "optimizer.weight_decay": Entry(_V, f"{_ACTOR}.optim.weight_decay"),
    "optimizer.grad_clip": Entry(_V, f"{_ACTOR}.optim.clip_grad, {_ACTOR}.grad_clip"),
    "micro_batch_tokens": Entry(
        _V,
        f"{_ACTOR}.ppo_max_token_len_per_gpu",
        "of one device; at least one longest row, which verl cannot cut",
    ),
    "steps": Entry(_V, "trainer.total_training_steps"),
    "max_samples": Entry(_R, "-", "verl counts steps"),
    "max_seconds": Entry(_R, "-", "verl counts steps"),
    "eval_every": Entry(_V, "trainer.test_freq", "unset: before the first and after the last step"),
    "eval_every_samples": Entry(_R, "-", "verl counts steps"),
    "eval.samples": Entry(_V, f"{_ROLLOUT}.val_kwargs.n"),
    "eval.temperature": Entry(_V, f"{_ROLLOUT}.val_kwargs.temperature"),
    "eval.top_p": Entry(_V, f"{_ROLLOUT}.val_kwargs.top_p"),
    "eval.top_k": Entry(_V, f"{_ROLLOUT}.val_kwargs.top_k", "0 is -1 in verl"),
    "eval.max_new_tokens": Entry(_B, "verl.agent_loop", "a limit of each request"),
    "eval.problems": Entry(_L, "verl.data_files"),
    "plateau": Entry(_E, "brorl report", "what the report says of progress that stopped"),
    "save_every": Entry(_V, "trainer.save_freq"),
    "keep_checkpoints": Entry(_V, "trainer.max_actor_ckpt_to_keep"),
    "logger": Entry(_V, "trainer.logger", "metrics.jsonl is written besides"),
    "record.tokens": Entry(_B, "train.recording.rollout_rows"),
    "grading.workers": Entry(_V, "reward.num_workers", "a grader process for each reward worker"),
    "grading.deadline_s": Entry(_B, _GRADE),
    "grading.check_golds": Entry(_L, "train.api.check_golds"),
    "run_dir": Entry(_L, "--out", "trainer.default_local_dir is its checkpoints folder"),
    "threads": Entry(_E, "-", "of torch on the CPU"),
}
"""Every setting, by its dotted name; `task` and `warmstart` and `model.shape` as wholes."""

WHOLES = (
    "task",
    "warmstart",
    "model.shape",
    "lora",
    "rollout.auto",
    "rollout.vllm",
    "rollout.openai",
    "reward.options",
    "plateau",
)
"""Sections and free mappings that have one place together."""


def fields(model: type[BaseModel] = TrainSettings, above: str = "") -> Iterator[str]:
    """Dotted names of every setting, wholes not opened."""
    for name, field in model.model_fields.items():
        dotted = f"{above}{field.alias or name}"
        section = _section(field.annotation)
        if section is None or dotted in WHOLES:
            yield dotted
        else:
            yield from fields(section, f"{dotted}.")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The settings class that a field holds, also where it may be None."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def value_of(settings: TrainSettings, dotted: str) -> Any:
    """The plain value of a setting."""
    value: Any = settings
    for part in dotted.split("."):
        value = getattr(value, "from_" if part == "from" else part)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
