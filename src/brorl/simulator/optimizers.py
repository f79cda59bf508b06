"""Optimisers of one logit vector, in place and without a temporary per operation.

Axes: V tokens of the vocabulary; L live ones, the first of them (see brorl.simulator.step).
Written out instead of taken from torch, because importing torch takes longer than the simulation
and all arrays stay numpy's.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from brorl.simulator.settings import AdamW, NormalisedSgd, SimulatorSettings

ArrayV = NDArray[np.floating]
ArrayL = NDArray[np.floating]


class LogitOptimizer(Protocol):
    """Moves logits down a gradient."""

    @property
    def arrays(self) -> tuple[ArrayV, ...]:
        """State per token: what a token that gets a state of its own takes along."""
        ...

    def update(self, logits_L: ArrayL, gradient_L: ArrayL) -> ArrayL:
        """One step, in place on the logits: first decay, then what it returns is subtracted.

        Overwrites the gradient. What it returns is valid until the next call.
        """
        ...

    @property
    def kept_per_update(self) -> float:
        """What decay leaves of a logit in one update, 1 without decay."""
        ...


class AdamWState:
    """AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2), with three passes fewer.

        m <- beta1 m + g            v <- beta2 v + g**2
        s = sqrt((1 - beta2) / (1 - beta2^t))
        z <- (1 - lr * decay) z - lr (1 - beta1) / (1 - beta1^t) / s * m / (sqrt(v) + eps / s)

    The moments are sums here, not means: their factors 1 - beta are constants of the last line.
    """

    def __init__(self, config: AdamW, vocab: int, dtype: np.dtype[np.floating]) -> None:
        self._config = config
        self._steps = 0
        self.arrays: tuple[ArrayV, ...] = (np.zeros(vocab, dtype), np.zeros(vocab, dtype))  # m, v
        self._scratch_V = np.empty(vocab, dtype)

    @property
    def kept_per_update(self) -> float:
        return 1 - self._config.lr * self._config.decay

    def update(self, logits_L: ArrayL, gradient_L: ArrayL) -> ArrayL:
        c = self._config
        m_L, v_L, step_L = (x[: logits_L.size] for x in (*self.arrays, self._scratch_V))
        self._steps += 1
        s = math.sqrt((1 - c.beta2) / (1 - c.beta2**self._steps))
        m_L *= c.beta1
        m_L += gradient_L
        gradient_L *= gradient_L
        v_L *= c.beta2
        v_L += gradient_L
        np.sqrt(v_L, out=step_L)
        step_L += c.eps / s
        np.divide(m_L, step_L, out=step_L)
        step_L *= c.lr * (1 - c.beta1) / (1 - c.beta1**self._steps) / s
        logits_L *= self.kept_per_update
        logits_L -= step_L
        return step_L


class SgdState:
    """z <- z - rate * gradient."""

    kept_per_update = 1.0
    arrays: tuple[ArrayV, ...] = ()

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def update(self, logits_L: ArrayL, gradient_L: ArrayL) -> ArrayL:
        gradient_L *= self._rate
        logits_L -= gradient_L
        return gradient_L


def make_optimizer(
    settings: SimulatorSettings, n: int, dtype: np.dtype[np.floating]
) -> LogitOptimizer:
    """A fresh optimiser for one curve of width N."""
    config = settings.optimizer
    if isinstance(config, AdamW):
        return AdamWState(config, settings.vocab, dtype)
    return SgdState(config.lr * n if isinstance(config, NormalisedSgd) else config.lr)
