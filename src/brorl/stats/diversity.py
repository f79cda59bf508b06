"""How different the answers to one problem are, from counts of equal ones and from their texts.

All of these grow or fall with the number of samples: compare them at equal n, or use
distinct_in_k, which is corrected for it.

Axes:  D distinct answers of one problem · n texts
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.pass_at_k import pass_at_k


def answer_entropy(counts_D: ArrayLike) -> float:
    """Shannon entropy in nats of the answer shares: -sum (m/n)·log(m/n), in [0, log n].

    The plug-in estimate, too low by about (D - 1) / 2n (Miller 1955): no correction is made,
    because with mostly single answers none works.

    Args:
        counts_D: int [D], samples per distinct answer, each >= 0. Samples without an answer are
            not an answer. No answer at all gives 0.
    """
    counts = _counts(counts_D)
    share = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(share * np.log(share)).sum()) + 0.0  # no -0.0


def distinct_in_k(counts_D: ArrayLike, *, silent: int, k: int) -> float:
    """Expected number of distinct answers among k samples drawn without replacement.

        sum over answers of 1 - C(n - m, k) / C(n, k)

    What k samples would have shown, so that groups of unequal size compare.

    Args:
        counts_D: int [D], samples per distinct answer.
        silent: samples without an answer, >= 0.
        k: 1 <= k <= n.

    Source:
        rarefaction: Hurlbert 1971, Ecology 52:577.
    """
    counts = _counts(counts_D)
    if silent < 0:
        raise ShapeError(f"need silent >= 0, got {silent}")
    if not 1 <= k <= int(counts.sum()) + silent:
        raise ShapeError(f"need 1 <= k <= n, got k={k} and n={int(counts.sum()) + silent}")
    return float(pass_at_k(counts, int(counts.sum()) + silent, k).sum()) if counts.size else 0.0


def distinct_n(texts: Sequence[str], *, n: int) -> float:
    """Distinct word n-grams over all word n-grams of the texts, in (0, 1].

    nan where no text has n words. Longer texts score lower: read it beside the length.

    Source:
        Li et al. 2016, arXiv:1510.03055, sec. 5 (distinct-1, distinct-2).
    """
    grams = [gram for text in texts for gram in _grams(text, n)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def self_similarity(texts: Sequence[str], *, n: int, most_pairs: int, seed: int) -> float:
    """Mean over pairs of texts of the Jaccard overlap of their word n-gram sets, in [0, 1].

        |grams(a) ∩ grams(b)| / |grams(a) ∪ grams(b)|

    A text shorter than n words is one gram as a whole. 1 means that all texts repeat one
    another. nan for fewer than 2 texts.

    Args:
        texts: of one problem.
        n: words per gram, >= 1.
        most_pairs: with more pairs than this, as many are drawn with replacement.
        seed: of the stream (seed, "stats", "self-similarity").

    Source:
        the set overlap is Jaccard's (1912); averaging over pairs as Self-BLEU does, Zhu et al.
        2018, arXiv:1802.01886.
    """
    if most_pairs < 1:
        raise ShapeError(f"need most_pairs >= 1, got {most_pairs}")
    sets = [set(_grams(text, n)) or {tuple(text.split())} for text in texts]
    count = len(sets)
    if count < 2:
        return float("nan")
    if count * (count - 1) // 2 <= most_pairs:
        pairs = list(combinations(range(count), 2))
    else:
        rng = generator(seed, "stats", "self-similarity")
        first = rng.integers(count, size=most_pairs)
        second = (first + rng.integers(1, count, size=most_pairs)) % count
        pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    return float(np.mean([len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in pairs]))


def _grams(text: str, n: int) -> list[tuple[str, ...]]:
    if n < 1:
        raise ShapeError(f"need n >= 1 words a gram, got {n}")
    words = text.split()
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def _counts(counts_D: ArrayLike) -> NDArray[np.int64]:
    counts = np.asarray(counts_D)
    if counts.size == 0:
        return np.zeros(0, dtype=np.int64)
    if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise ShapeError(f"counts must be integers [D] >= 0, got {counts.tolist()}")
    return counts.astype(np.int64)
