"""What a recipe asks for, before anything starts: samples, updates, rate, memory, disk, grading.

Counted from settings and the model's shape alone; neither model nor data is opened. Memory is
that of brorl.train.plan_memory.
"""

import json
import os
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from brorl.errors import ConfigError
from brorl.train.plan_memory import BYTES, memory_parts, parameters
from brorl.train.settings import ShapeSettings, TrainSettings

__all__ = ["BYTES", "Plan", "memory_parts", "model_shape", "parameters", "plan"]

_LOWER = {
    "kv_cache": "rollout.memory_budget",
    "sampling": "rollout.memory_budget",
    "activations": "micro_batch_tokens or rollout.max_new_tokens",
    "rollouts": "prompts_per_step or rollout.max_new_tokens",
}
FEW_PROMPTS = 32
"""Below this many prompts a step the sqrt rule hurt in this project's trials (docs/log.md)."""


@dataclass(frozen=True)
class Plan:
    """The answer of `brorl plan`; `to_json` is its `--json` form."""

    recipe: str
    rollout_n: int
    waves: list[int] | None
    prompts_per_step: int
    samples_per_step: int
    samples_generated_least: int
    samples_generated_most: int
    samples_per_prompt_expected: dict[str, float] | None
    tokens_per_step_most: int
    updates_per_step: int
    samples_per_update: int
    lr: float
    lr_derivation: str
    rows_per_wave: int
    parameters: int
    prompt_tokens: int
    memory_bytes: dict[str, int]
    disk_bytes_per_step: int
    grader_calls: int
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def plan(settings: TrainSettings, *, prompt_tokens: int) -> Plan:
    """Count a step of a recipe.

    Args:
        settings: of the recipe.
        prompt_tokens: tokens of a typical prompt, assumed: the data is not opened.

    Raises:
        ConfigError: the model's shape is not known: no model.shape, and model.path is no folder.
    """
    s, shape = settings, model_shape(settings)
    r = s.rollout
    kept = s.samples_per_step
    first, widest = r.totals[0], r.widest
    dynamic = s.dynamic_sampling
    least_prompts = s.prompts_per_step
    most_prompts = least_prompts
    if dynamic.enable:
        most_prompts = dynamic.max_gen_batches * ceil(dynamic.oversample * s.prompts_per_step)
    memory, rows = memory_parts(s, shape, prompt_tokens)
    return Plan(
        recipe=s.name or "recipe",
        rollout_n=widest,
        waves=list(r.totals) if r.waves is not None else None,
        prompts_per_step=s.prompts_per_step,
        samples_per_step=kept,
        samples_generated_least=least_prompts * first,
        samples_generated_most=most_prompts * widest,
        samples_per_prompt_expected=_expected(s),
        tokens_per_step_most=kept * r.max_new_tokens,
        updates_per_step=s.num_minibatches,
        samples_per_update=ceil(kept / s.num_minibatches),
        lr=s.lr * s.lr_scale,
        lr_derivation=_derivation(s),
        rows_per_wave=rows,
        parameters=parameters(shape),
        prompt_tokens=prompt_tokens,
        memory_bytes=memory,
        disk_bytes_per_step=_disk(s, least_prompts * first, prompt_tokens),
        grader_calls=least_prompts * first,
        warnings=_warnings(s, memory),
    )


def model_shape(settings: TrainSettings) -> ShapeSettings:
    """The shape in the model's own config.json where it is a folder here, else model.shape."""
    path = Path(settings.model.path).expanduser() / "config.json" if settings.model.path else None
    if path is not None and path.is_file():
        return _shape_of(path)
    if settings.model.shape is None:
        raise ConfigError(
            "plan needs the model's shape: set model.shape.{layers,hidden,heads,kv_heads,mlp,"
            "vocabulary}, or a model.path that is a folder here"
        )
    return settings.model.shape


def _expected(s: TrainSettings) -> dict[str, float] | None:
    """Samples a prompt costs under waves, by its success probability."""
    if s.rollout.waves is None:
        return None
    from brorl.algo.waves import expected_samples

    return {
        str(p): expected_samples(p, waves=s.rollout.totals, stop_right=s.rollout.stop_right)
        for p in (0.0, 0.001, 0.01, 0.1, 0.5)
    }


def _derivation(s: TrainSettings) -> str:
    if s.lr_scaling == "none":
        return f"lr = {s.lr:g}, held: lr_scaling is none"
    sign = "sqrt" if s.lr_scaling == "sqrt" else ""
    return (
        f"lr = {s.lr:g} · {sign}({s.samples_per_step} / {s.lr_base_samples}) = "
        f"{s.lr:g} · {s.lr_scale:.4g} = {s.lr * s.lr_scale:.4g}"
    )


def _disk(s: TrainSettings, samples: int, prompt_tokens: int) -> int:
    """Bytes of a step's rollout file before compression takes its share: an upper estimate."""
    row = 200 + 4 * min(s.rollout.max_new_tokens, 4096)  # fixed columns and the text
    if s.record.tokens == "all":
        row += 9 * s.rollout.max_new_tokens  # ids, log-probs, mask
    if s.record.tokens == "kept":
        row += 9 * s.rollout.max_new_tokens // 2
    return samples * row + s.prompts_per_step * 4 * prompt_tokens


def _warnings(s: TrainSettings, memory: dict[str, int]) -> list[str]:
    found = []
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory["total"] > here:
        largest = max((k for k in memory if k != "total"), key=lambda k: memory[k])
        found.append(
            f"{memory['total'] / 2**30:,.0f} GiB do not fit this machine's {here / 2**30:,.0f}; "
            f"the largest part is {largest}: lower "
            f"{_LOWER.get(largest, 'rollout.max_new_tokens or the model')}"
        )
    if s.lr_scaling == "sqrt" and s.lr_scale > 1 and s.prompts_per_step < FEW_PROMPTS:
        found.append(
            f"prompts_per_step={s.prompts_per_step} with lr_scaling=sqrt: below {FEW_PROMPTS} "
            "prompts the raised rate hurt in this project's trials; lr_scaling=none holds it"
        )
    if s.lr_scale < 1:
        found.append(
            f"lr_scaling={s.lr_scaling} lowers the rate {1 / s.lr_scale:.3g} times, since "
            f"{s.samples_per_step:,} samples a step are fewer than "
            f"lr_base_samples={s.lr_base_samples:,}: set that to what lr was chosen for"
        )
    if s.rollout.waves is not None and s.rollout.keep_per_group is None:
        found.append(
            f"waves up to {s.rollout.widest} without keep_per_group: kept groups may differ in "
            "size by that factor; keep_per_group bounds the update"
        )
    return found


def _shape_of(path: Path) -> ShapeSettings:
    """Read a Hugging Face config.json without importing transformers."""
    try:
        config = json.loads(path.read_text())
        gpt2 = config.get("model_type") == "gpt2"
        heads = config["n_head" if gpt2 else "num_attention_heads"]
        hidden = config["n_embd" if gpt2 else "hidden_size"]
        return ShapeSettings(
            architecture=str(config.get("model_type", "llama")),
            layers=config["n_layer" if gpt2 else "num_hidden_layers"],
            hidden=hidden,
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            mlp=(config.get("n_inner") or 4 * hidden) if gpt2 else config["intermediate_size"],
            vocabulary=config["vocab_size"],
            max_positions=config["n_positions" if gpt2 else "max_position_embeddings"],
            tied=bool(config.get("tie_word_embeddings", True)),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: no shape of a causal LM in it: {error!r}") from error
