"""Refuse what does not fit this machine before anything starts, by the planner's estimate."""

import os

from brorl.errors import ConfigError
from brorl.train.plan import memory_parts, model_shape
from brorl.train.settings import TrainSettings

PROMPT_TOKENS = 256
"""Of a prompt, assumed as `brorl plan` does: the data is not opened yet."""


def check_memory(arm: str, settings: TrainSettings, *, workers: int, bytes_here: int = 0) -> None:
    """Refuse an arm whose runs would need more memory than there is.

    Nothing is known, and nothing refused, where the model's shape is not: a hub name without
    model.shape.

    Args:
        arm: its name.
        settings: of one of its runs.
        workers: how many run at once.
        bytes_here: of this machine; 0 asks it.

    Raises:
        ConfigError: needed and there, in GiB, and the largest part.
    """
    try:
        shape = model_shape(settings)
    except ConfigError:
        return
    here = bytes_here or _memory_of(settings.model.device)
    parts, _ = memory_parts(settings, shape, PROMPT_TOKENS)
    needed = workers * parts["total"]
    if needed <= here:
        return
    largest = max((p for p in parts if p != "total"), key=lambda p: parts[p])
    at_once = f" times {workers} runs at once" if workers > 1 else ""
    raise ConfigError(
        f"arm {arm} (rollout width {settings.rollout.widest}) needs about "
        f"{parts['total'] / 2**30:,.1f} GiB{at_once}, this machine has {here / 2**30:,.1f}; the "
        f"largest part is {largest}: take narrower widths, lower rollout.max_new_tokens or "
        "prompts_per_step, or --workers 1"
    )


def _memory_of(device: str) -> int:
    """Bytes of the device that a run would take: the GPU's where it takes one."""
    import torch

    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return int(torch.cuda.mem_get_info(device if device != "auto" else None)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
