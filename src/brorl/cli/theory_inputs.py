"""What `brorl theory` reads from its command line: distributions, token sets, numbers.

All raise ConfigError or ShapeError in one line for what they cannot read.
"""

from pathlib import Path

import numpy as np

from brorl.errors import ConfigError
from brorl.seeds import generator
from brorl.simulator.initial import read_numbers
from brorl.theory.distribution import FloatV, MaskV, check_distribution
from brorl.theory.distribution import zipf as zipf_distribution

MOST_TOKENS = 10**8
MOST_DRAWS = 10**18


def distribution(probs: str | None, zipf: str | None) -> FloatV:
    """The probability vector of --probs (numbers, or a file of them) or of --zipf V,EXPONENT."""
    if (probs is None) == (zipf is None):
        raise ConfigError("need one of --probs and --zipf, got " + ("both" if probs else "none"))
    if probs is None:
        return _zipf(zipf or "")
    try:
        p_V = np.array([float(x) for x in probs.split(",")])
    except ValueError:
        p_V = read_numbers(Path(probs))
    check_distribution(p_V)
    return p_V


def _zipf(text: str) -> FloatV:
    try:
        vocab_text, exponent_text = text.split(",")
        vocab, exponent = int(vocab_text), float(exponent_text)
    except ValueError as error:
        raise ConfigError(f"need --zipf V,EXPONENT such as 1000,1.1, got {text!r}") from error
    if vocab > MOST_TOKENS:
        raise ConfigError(f"need at most {MOST_TOKENS:,} tokens in --zipf, got {vocab:,}")
    return zipf_distribution(vocab, exponent=exponent)


def tokens(name: str, text: str, vocab: int) -> MaskV:
    """A mask from numbers and ranges such as 0,3,10-19: bool [V]."""
    mask_V = np.zeros(vocab, dtype=np.bool_)
    for start, stop in _ranges(name, text, vocab):
        mask_V[start : stop + 1] = True
    return mask_V


def _ranges(name: str, text: str, vocab: int) -> list[tuple[int, int]]:
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_is_number(first) and (_is_number(last) if dash else True)):
            raise ConfigError(
                f"need --{name} as numbers and ranges such as 0,3,10-19, got {part!r}"
            )
        start, stop = int(first), int(last or first)
        if not start <= stop < vocab:
            raise ConfigError(f"need --{name} in 0 ... {vocab - 1}, rising, got {part!r}")
        ranges.append((start, stop))
    return ranges


def draws(p_V: FloatV, sampled: str | None, n: int | None, seed: int | None) -> tuple[MaskV, int]:
    """Which tokens were drawn, as given or at random, and out of how many draws."""
    if (sampled is None) == (n is None):
        raise ConfigError("need one of --sampled and --n, got " + ("none" if n is None else "both"))
    if n is None:
        if seed is not None:
            raise ConfigError("--seed is for the draws of --n, got it beside --sampled")
        ranges = _ranges("sampled", sampled or "", p_V.size)
        return tokens("sampled", sampled or "", p_V.size), sum(b - a + 1 for a, b in ranges)
    if not 1 <= n <= MOST_DRAWS:
        raise ConfigError(f"need --n in 1 ... 10**18, got {n}")
    rng = generator(seed or 0, "theory", "mass")
    return rng.multinomial(n, p_V / p_V.sum()) > 0, n


def percentages(text: str) -> list[float]:
    """Numbers above 0 and below 100, e.g. 50,90,99."""
    try:
        values = [float(x) for x in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"need --gone as percentages such as 50,90,99, got {text!r}") from error
    if not all(0 < x < 100 for x in values):
        raise ConfigError(f"need --gone above 0 and below 100 %, got {text!r}")
    return values


def widths(text: str) -> list[int]:
    """Whole numbers from 0, e.g. 4,16,512."""
    parts = [part.strip() for part in text.split(",")]
    if not all(_is_number(part) for part in parts):
        raise ConfigError(f"need --n as whole numbers >= 0 such as 4,16,512, got {text!r}")
    return [int(part) for part in parts]


def powers_of_4(reach: int) -> list[int]:
    """1, 4, 16, ... up to the first that is at least `reach`."""
    powers = [1]
    while powers[-1] < reach:
        powers.append(4 * powers[-1])
    return powers


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_DRAWS))
