"""Whole curves: every width and replicate of some settings, on as many threads as there are cores.

Threads and not processes: nearly all the time is inside numpy operations on whole vocabularies,
which release the interpreter's lock. Streams are named by (seed, replicate, N), so that the
number of threads changes nothing.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import RunError
from brorl.seeds import generator
from brorl.simulator.sampling import TokenSampler
from brorl.simulator.settings import SimulatorSettings
from brorl.simulator.step import Record, TokenSimulator

REPORT_EVERY = 20
"""Steps between two calls of the progress function."""


class Curve(NamedTuple):
    """One width, one replicate."""

    n: int
    replicate: int
    values_TR: NDArray[np.float64]  # [steps + 1, fields of Record]; row 0 is the start

    def column(self, name: str) -> NDArray[np.float64]:
        """One field of Record over the steps: float64 [steps + 1]."""
        return self.values_TR[:, Record._fields.index(name)]


Progress = Callable[[int], None]


def simulate_curve(
    settings: SimulatorSettings,
    n: int,
    replicate: int,
    *,
    on_steps: Progress,
    stop: threading.Event,
) -> Curve:
    """Run one width once.

    Args:
        settings: the simulation.
        n: draws per step.
        replicate: 0 ... settings.seeds - 1.
        on_steps: told how many steps were done since it was last told.
        stop: leave early, with RunError, when set.

    Raises:
        ConfigError: the initial distribution cannot be read.
        RunError: the logits are no longer finite, or `stop` was set.
    """
    simulator = TokenSimulator(settings, n)
    rng = generator(settings.seed, "simulator", "draws", replicate, n)
    sampler = TokenSampler(rng, settings.vocab, settings.correct, np.dtype(settings.dtype))
    values_TR = np.empty((settings.steps + 1, len(Record._fields)))
    values_TR[0] = simulator.start
    for step in range(1, settings.steps + 1):
        values_TR[step] = simulator.step(simulator.draw(sampler))
        if step % REPORT_EVERY == 0 or step == settings.steps:
            on_steps(step % REPORT_EVERY or REPORT_EVERY)
            if stop.is_set():
                raise RunError(f"N={n}: stopped after step {step} of {settings.steps}")
    if not np.isfinite(values_TR).all():
        raise RunError(f"N={n}: recorded changes are no longer finite; lower the learning rate")
    return Curve(n, replicate, values_TR)


def simulate(
    variants: Sequence[SimulatorSettings], *, workers: int, on_steps: Progress
) -> list[list[Curve]]:
    """All curves of all variants: a list per variant, by width and then replicate.

    Needs some 200 bytes of memory per token of the vocabulary and thread.

    Args:
        variants: settings, for instance the cells of a sweep.
        workers: threads, >= 1.
        on_steps: told how many steps were done, from any thread.

    Raises:
        ConfigError: an initial distribution cannot be read.
        RunError: logits are no longer finite in some curve; the others are stopped.
    """
    jobs = [
        (variant, n, replicate)
        for variant, settings in enumerate(variants)
        for n in settings.widths
        for replicate in range(settings.seeds)
    ]
    stop = threading.Event()

    def work(job: tuple[int, int, int]) -> Curve:
        variant, n, replicate = job
        return simulate_curve(variants[variant], n, replicate, on_steps=on_steps, stop=stop)

    with ThreadPoolExecutor(max_workers=workers) as pool:
        # Longest first, so that no thread idles while the widest curve runs alone at the end.
        order = sorted(range(len(jobs)), key=lambda i: -jobs[i][1])
        futures = {i: pool.submit(work, jobs[i]) for i in order}
        try:
            for future in wait(futures.values(), return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:  # also Ctrl-C: no thread may outlive this call
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    done = [futures[i].result() for i in range(len(jobs))]
    curves: list[list[Curve]] = [[] for _ in variants]
    for (variant, _, _), curve in zip(jobs, done, strict=True):
        curves[variant].append(curve)
    return curves
