"""What a recipe may ask of the embedded trainer and verl cannot do: each by the setting's name."""

import re
from collections.abc import Iterator
from pathlib import Path

from brorl.errors import ConfigError
from brorl.train.settings import TrainSettings

REFUSED = (
    "warmstart",
    "init.restore",
    "rollout.waves",
    "dynamic_sampling.surplus",
    "reward.source",
    "advantage.weight",
    "model.path",
    "model.device",
    "model.master_dtype",
    "lora",
    "max_samples",
    "max_seconds",
    "eval_every_samples",
)
"""Settings of which at least one value is refused; docs/scale-out.md lists them."""

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_hub_name(path: str) -> bool:
    """Whether a model's path is a name on the hub: owner/name, and no folder here."""
    return bool(_HUB.fullmatch(path)) and not Path(path).exists()


def refuse(settings: TrainSettings) -> None:
    """Raise ConfigError with everything that stands in the way of verl, in one line."""
    found = list(refusals(settings))
    if found:
        raise ConfigError("verl cannot run this recipe: " + "; ".join(found))


def refusals(s: TrainSettings) -> Iterator[str]:
    """One sentence for each setting that verl cannot express, with what to do instead."""
    if s.warmstart is not None:
        yield (
            "warmstart: run `brorl warmstart RECIPE` here, then launch with model.path=CHECKPOINT "
            "warmstart=null"
        )
    if s.model.path is None and s.init.from_ is None:
        yield "model.path: verl loads a checkpoint, it makes no policy; set a folder or hub name"
    if s.model.device not in ("auto", "cuda"):
        yield f"model.device={s.model.device}: verl trains on CUDA devices; leave it at auto"
    if s.model.master_dtype != "float32" and s.model.dtype != "float32":
        yield f"model.master_dtype={s.model.master_dtype}: verl's masters are float32; leave it so"
    if s.lora is not None:
        yield "lora: adapters train in the embedded trainer; set lora=null"
    if s.init.from_ is not None and tuple(s.init.restore) != ("weights",):
        yield (
            f"init.restore={list(s.init.restore)}: verl begins with weights alone; "
            "leave it at [weights]"
        )
    if s.rollout.waves == "auto":
        yield (
            "rollout.waves=auto: its switches are steered by the embedded trainer's loop; "
            "give the waves, or rollout.n"
        )
    if s.dynamic_sampling.surplus == "carry":
        yield (
            "dynamic_sampling.surplus=carry: verl clears its queue at the end of each step; "
            "set drop"
        )
    if "majority" in (s.reward.source, s.reward.options.get("labels")):
        yield (
            f"reward.source={s.reward.source} with majority labels: they are sampled from the "
            "starting policy by the embedded engine; use another source"
        )
    if s.advantage.weight == "unbiased" and s.kl_coef > 0:
        yield (
            "advantage.weight=unbiased with kl_coef > 0: verl's KL term takes no weights; "
            "set one of them to its default"
        )
    for name in ("max_samples", "max_seconds", "eval_every_samples"):
        if getattr(s, name) is not None:
            other = "eval_every" if name.startswith("eval") else "steps"
            yield f"{name}={getattr(s, name)}: verl counts steps; use {other}"
