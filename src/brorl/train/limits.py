"""When a run ends before its last step, and when it is evaluated: by samples or seconds.

Both look at totals that are part of the checkpoint, so that a resumed run decides as one that
never stopped. Samples repeat bit for bit; seconds, of course, do not.
"""

from collections.abc import Mapping

from brorl.train.settings import TrainSettings


def limit_reached(settings: TrainSettings, totals: Mapping[str, float]) -> str | None:
    """Name of the limit that the run's totals have reached; None: it may go on.

    Args:
        settings: max_samples counts generated samples, max_seconds the wall clock of steps and
            evaluations, both over the whole run.
        totals: "generated" and "seconds/PHASE", as the loop tallies them.
    """
    if settings.max_samples is not None and totals.get("generated", 0.0) >= settings.max_samples:
        return "max_samples"
    if settings.max_seconds is not None:
        seconds = sum(v for name, v in totals.items() if name.startswith("seconds/"))
        if seconds >= settings.max_seconds:
            return "max_seconds"
    return None


def evaluation_due(settings: TrainSettings, step: int, before: float, after: float) -> bool:
    """Whether a step ends with an evaluation that was asked for.

    Args:
        settings: eval_every counts steps, eval_every_samples generated samples; either is enough.
        step: just done.
        before, after: generated samples of the run before and after it.
    """
    by_step = settings.eval_every is not None and step % settings.eval_every == 0
    every = settings.eval_every_samples
    return by_step or (every is not None and after // every > before // every)
