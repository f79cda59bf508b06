"""What two settings can say against each other. Asked when settings are made, before any work."""

from typing import TYPE_CHECKING

from brorl.rollout.options import LOWEST_VLLM_TEMPERATURE, NOT_FOR_TRAINING
from brorl.train.prompts import SOLVED

if TYPE_CHECKING:
    from brorl.train.settings import TrainSettings


def contradictions(s: "TrainSettings") -> list[str]:
    """Everything that two settings say against each other, in the words of the user's keys."""
    found = []
    r = s.rollout
    if (r.n is None) == (r.waves is None):
        found.append("rollout: set either rollout.n (fixed width) or rollout.waves (adaptive)")
        return found
    if r.n is not None and r.n < 2:
        found.append(f"rollout.n is {r.n}: a group baseline needs at least 2 rollouts a prompt")
    if r.waves is not None:
        name = "rollout.auto.ladder" if r.waves == "auto" else "rollout.waves"
        if any(b <= a for a, b in zip(r.totals, r.totals[1:], strict=False)):
            found.append(f"{name} are totals and must grow, got {list(r.totals)}")
        if r.totals[0] < 2:
            found.append(f"{name} must begin with at least 2, got {r.totals[0]}")
        if r.stop_right > r.totals[0]:
            found.append(
                f"rollout.stop_right is {r.stop_right}, more than the first wave of {r.totals[0]}"
            )
        if r.waves == "auto" and not s.evaluates and r.auto.replay is None:
            found.append("rollout.waves=auto watches held-out progress: set eval_every")
        if s.advantage.estimator == "rloo":
            found.append(
                "rollout.waves: rloo leaves one out of equal groups; use another estimator"
            )
        if not s.dynamic_sampling.enable:
            found.append("rollout.waves need dynamic_sampling.enable: unsolved groups are dropped")
    if s.advantage.baseline == "unbiased" and (
        r.waves is None or s.advantage.estimator in ("grpo", "rloo")
    ):
        found.append(
            "advantage.baseline=unbiased corrects for stopping on success: it needs rollout.waves "
            "and reinforce_plus_plus_baseline or dr_grpo"
        )
    if s.advantage.weight == "unbiased" and r.keep_per_group is None:
        found.append("advantage.weight=unbiased weighs cut groups: it needs rollout.keep_per_group")
    if r.keep_rule != "spread" and r.keep_per_group is None:
        found.append(
            f"rollout.keep_rule={r.keep_rule} says how groups are cut: it needs "
            "rollout.keep_per_group"
        )
    if r.keep_rule == "max_variance" and s.advantage.weight == "unbiased":
        found.append(
            "advantage.weight=unbiased with rollout.keep_rule=max_variance: rows that it leaves "
            "out have no chance, so no weight makes up for them"
        )
    if s.data.solved_weight == 1 and (s.data.solved_share != SOLVED or s.data.solved_visits != 1):
        found.append(
            "data.solved_share and solved_visits say which prompts are drawn less often: they need "
            "data.solved_weight below 1"
        )
    if r.keep_per_group is not None and r.keep_per_group > r.widest:
        found.append(
            f"rollout.keep_per_group={r.keep_per_group} exceeds the widest group of {r.widest}"
        )
    if r.keep_per_group is not None and r.keep_per_group < 2:
        found.append(f"rollout.keep_per_group must be at least 2, got {r.keep_per_group}")
    if r.top_p < 1 or r.top_k:
        found.append(
            f"rollout.top_p={r.top_p}, top_k={r.top_k}: training needs the full distribution, "
            "since log-probs are taken over the full vocabulary; set top_p=1 and top_k=0"
        )
    found += _of_the_engine(s)
    if s.task is not None and s.data.train is not None:
        found.append("task and data.train exclude each other; add task=null to use own data")
    if s.task is not None and s.data.eval is not None:
        found.append("task and data.eval exclude each other: a task brings its held-out problems")
    if s.task is None and s.warmstart is not None:
        found.append("warmstart needs a task with worked answers; add warmstart=null")
    if s.model.path is not None and s.warmstart is not None:
        found.append("warmstart is for a new tiny policy; with model.path add warmstart=null")
    if s.lora is not None:
        found += _lora(s)
    if s.clip_ratio_high < s.clip_ratio_low:
        found.append(
            f"clip_ratio_high must be at least clip_ratio_low, got {s.clip_ratio_high} "
            f"and {s.clip_ratio_low}"
        )
    if s.lr_scaling != "none" and s.lr_base_samples is None:
        found.append(f"lr_scaling={s.lr_scaling} needs lr_base_samples, the batch lr was tuned at")
    if s.lr_scaling == "none" and s.lr_base_samples is not None:
        found.append("lr_base_samples is set but lr_scaling is none: it would be ignored")
    if (s.lr_schedule == "cosine") != (s.lr_decay_updates is not None):
        found.append("lr_schedule=cosine and lr_decay_updates belong together; set both or neither")
    if s.lr_decay_updates is not None and s.lr_decay_updates <= s.lr_warmup_updates:
        found.append("lr_decay_updates must exceed lr_warmup_updates")
    if s.samples_per_step < s.num_minibatches:
        found.append(
            f"num_minibatches={s.num_minibatches} needs as many samples, a step has "
            f"{s.samples_per_step}"
        )
    if s.kl_coef == 0 and (s.ref.reset_every or s.ref.reset_on):
        found.append("ref.reset_* without kl_coef > 0: there is no reference policy to reset")
    if "stall" in s.ref.reset_on and not s.evaluates:
        found.append("ref.reset_on=stall needs eval_every: a stall is seen in held-out evaluations")
    if s.length_penalty.min > s.length_penalty.max:
        found.append(
            f"length_penalty.min must not exceed length_penalty.max, got {s.length_penalty.min} "
            f"and {s.length_penalty.max}"
        )
    if s.reuse_engine_logprobs and s.tis.type != "none":
        found.append(
            f"reuse_engine_logprobs with tis.type={s.tis.type}: the correction would always be 1"
        )
    if s.tis.min > s.tis.cap:
        found.append(f"tis.min must not exceed tis.cap, got {s.tis.min} and {s.tis.cap}")
    if s.overlong.buffer is not None:
        if s.overlong.stop_properly is not None:
            found.append("overlong.buffer and overlong.stop_properly exclude each other")
        if s.overlong.buffer > r.max_new_tokens:
            found.append(
                f"overlong.buffer={s.overlong.buffer} exceeds rollout.max_new_tokens="
                f"{r.max_new_tokens}"
            )
    if s.eval.temperature == 0 and s.eval.samples > 1:
        found.append(f"eval.temperature=0 is greedy: {s.eval.samples} samples would be equal")
    if "restore" in s.init.model_fields_set and s.init.from_ is None:
        found.append("init.restore without init.from: nothing to restore from")
    if "weights" not in s.init.restore:
        found.append(f"init.restore must name weights, got {list(s.init.restore)}")
    if "reference" in s.init.restore and s.kl_coef == 0:
        found.append("init.restore names reference, but kl_coef is 0: there is none")
    if s.advantage.estimator != "reinforce_plus_plus_baseline" and s.advantage.normalise:
        found.append(
            f"advantage.normalise belongs to reinforce_plus_plus_baseline, not to "
            f"{s.advantage.estimator}"
        )
    return found


def _of_the_engine(s: "TrainSettings") -> list[str]:
    """What an engine cannot do, and options that belong to another one."""
    r = s.rollout
    if r.engine == "openai":
        return [NOT_FOR_TRAINING]
    found = []
    if r.openai is not None:
        found.append(
            f"rollout.openai names a server, rollout.engine is {r.engine}: it would be ignored; "
            "servers are for `brorl eval`"
        )
    if r.engine != "vllm":
        if r.vllm != type(r.vllm)():
            found.append(
                f"rollout.vllm belongs to rollout.engine=vllm, got {r.engine}: it would be ignored"
            )
        return found
    for name, value in (
        ("rollout.temperature", r.temperature),
        ("eval.temperature", s.eval.temperature),
    ):
        if 0 < value < LOWEST_VLLM_TEMPERATURE:
            found.append(
                f"{name}={value:g}: vLLM would sample at {LOWEST_VLLM_TEMPERATURE} instead, "
                "without saying so"
            )
    return found


def _lora(s: "TrainSettings") -> list[str]:
    """What stands against an adapter."""
    found = []
    if s.lora is not None and s.lora.dropout:
        found.append(
            f"lora.dropout={s.lora.dropout}: an answer is scored by the very weights that sampled "
            "it; set 0"
        )
    if s.model.path is None:
        found.append("lora needs model.path: the frozen weights that every resume opens again")
    if s.init.from_ is not None:
        found.append(
            "lora and init.from exclude each other: set model.path to the older run's checkpoint, "
            "whose merged weights are then the frozen ones"
        )
    if s.rollout.engine != "embedded":
        found.append(f"lora with rollout.engine={s.rollout.engine}: only embedded knows adapters")
    return found
