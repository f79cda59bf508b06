"""The logits a simulation starts from, correct tokens first."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from brorl.errors import ConfigError
from brorl.seeds import generator
from brorl.simulator.settings import FromFile, Seeded, SimulatorSettings, Zipf
from brorl.theory.distribution import zipf

SUM_TOLERANCE = 1e-6
"""How far from 1 the probabilities of a file may sum; they are normalised by the softmax."""


def initial_logits(settings: SimulatorSettings) -> NDArray[np.float64]:
    """Logits z at step 0: float64 [V], finite, the correct tokens in 0 ... correct - 1.

    A wrong anchor, token 0 of the paper, stands at index `correct` here: the simulation knows
    tokens by their logit and by which side they are on, and two slices are faster than a mask.

    Raises:
        ConfigError: a file that cannot be read, has another length, or holds no distribution.
    """
    start = settings.initial
    if isinstance(start, FromFile):
        return _read(start, settings.vocab)
    if isinstance(start, Zipf):
        logits = np.log(zipf(settings.vocab, exponent=start.exponent))
        if start.order == "shuffled":
            generator(settings.seed, "simulator", "zipf-order").shuffle(logits)
        return logits
    logits = np.zeros(settings.vocab)
    if isinstance(start, Seeded):
        logits[: settings.correct] = start.correct_logit
        logits[0 if start.anchor_correct else settings.correct] = start.anchor_logit
    return logits


def _read(start: FromFile, vocab: int) -> NDArray[np.float64]:
    values = read_numbers(start.path)
    if values.shape != (vocab,):
        raise ConfigError(
            f"{start.path}: need {vocab} numbers, one per token of the vocabulary, "
            f"got shape {list(values.shape)}"
        )
    if not np.isfinite(values).all():
        token = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ConfigError(
            f"{start.path}: need finite numbers, got {values[token]} at token {token}"
        )
    if start.values == "logits":
        return values
    if values.min() <= 0:  # a logit of -inf has no steps to take
        token = int(values.argmin())
        raise ConfigError(
            f"{start.path}: need probabilities > 0, got {values[token]:.6g} at token {token}"
        )
    if abs(values.sum() - 1) > SUM_TOLERANCE:
        raise ConfigError(f"{start.path}: need probabilities that sum to 1, got {values.sum():.9g}")
    return np.log(values)


def read_numbers(path: Path) -> NDArray[np.float64]:
    """A .npy array, or numbers in text separated by blanks or line ends: float64.

    Raises:
        ConfigError: the file cannot be read as either.
    """
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        return np.array(path.read_text(encoding="utf-8").split(), dtype=np.float64)
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{path}: need a .npy vector or numbers as text ({reason})") from error
