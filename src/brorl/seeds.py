"""Random streams by name. Adding a stream never shifts another; no two ever overlap."""

import hashlib

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derive_seed(root: int, *path: str | int) -> int:
    """A 63-bit seed for one named stream, e.g. derive_seed(0, "train", step, "rollout", p).

    Why not root + index: item 1 of seed 42 would be item 0 of seed 43, so a held-out
    set with its own seed would repeat the training set, moved by one.
    Why not hash(): it differs between processes for strings.
    """
    text = repr((root, *path)).encode()  # repr keeps 1 and "1" apart
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1


def generator(root: int, *path: str | int) -> np.random.Generator:
    """A numpy generator for one named stream: `derive_seed` with the same arguments."""
    return np.random.default_rng(derive_seed(root, *path))


def _mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection on 64-bit words that scatters every input bit."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def sample_keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """One 64-bit key per sample of a group: uint64 [count], for samples first ... first+count-1.

    The key depends on (seed, sample index) alone, so a group may be drawn in one wave or in
    many, alone or beside others, and sample i is the same sample.

    Args:
        seed: of the group, from `derive_seed`.
        first: index of the first sample wanted, >= 0.
        count: how many, >= 0.
    """
    index = np.arange(first, first + count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        return _mix64(np.uint64(seed) + _GOLDEN * (index + np.uint64(1)))


def uniforms(keys: NDArray[np.uint64], position: int | NDArray[np.uint64]) -> NDArray[np.float64]:
    """A uniform number in [0, 1) for each key at a position: float64, shapes broadcast.

    u = top 53 bits of mix64(mix64(key) + golden * (position + 1)) / 2**53: SplitMix64 with the
    key as its seed, read at any position without drawing the ones before it (a counter-based
    generator: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
    """
    with np.errstate(over="ignore"):
        offset = _GOLDEN * (np.asarray(position, dtype=np.uint64) + np.uint64(1))
        bits = _mix64(_mix64(keys) + offset)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
