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
        ConfigError: needed and there, in GiB, and the largest part; or a device that is not there.
    """
    try:
        shape = model_shape(settings)
    except ConfigError:
        return
    here = bytes_here or _memory_of(settings)
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


def _memory_of(settings: TrainSettings) -> int:
    """Bytes of the device that a run would take. Raises ConfigError where it is not there."""
    import torch

    from brorl.train.opening import device_of

    device = device_of(settings)
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
