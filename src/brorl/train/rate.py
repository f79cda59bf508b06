"""The learning rate of an update: batch rule, warm-up and decay together. No torch."""

from brorl.algo.schedules import cosine_factor, warmup_factor
from brorl.train.settings import TrainSettings


def update_lr(settings: TrainSettings, updates: int) -> float:
    """lr · scale of the batch rule · warm-up · decay.

    Args:
        settings: of the run.
        updates: optimizer steps done before this one.
    """
    s = settings
    rate = s.lr * s.lr_scale * warmup_factor(updates, warmup=s.lr_warmup_updates)
    if s.lr_decay_updates is not None:
        rate *= cosine_factor(
            updates, start=s.lr_warmup_updates, total=s.lr_decay_updates, floor=s.lr_floor
        )
    return rate
