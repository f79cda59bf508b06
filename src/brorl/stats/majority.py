"""maj@k: how often the answer that k samples give most often is right, without resampling."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

from brorl.errors import ShapeError

Complex = NDArray[np.complex128]


def majority_at_k(votes: Sequence[int], right: Sequence[bool], *, abstained: int, k: int) -> float:
    """P(the plurality of k samples drawn without replacement from n is right).

    Ties are broken by a fair draw among the answers that lead. Samples without an answer are
    drawn too and vote for nothing; a draw without any vote is wrong.

    Drawing k of n without replacement is keeping each sample with chance theta = k/n, given that
    k are kept. So with j kept votes for a right answer of w samples, the chance to win is a
    coefficient of a product of truncated binomial generating functions,

        sum over j of b_w(j) · [x**(k-j)] A(x) · integral over y in [0, 1] of
            prod over other answers d of (sum over i < j of b_d(i) x**i + y · b_d(j) x**j)

    over P(Binomial(n, theta) = k): y**t integrates to 1/(t+1), the share of a tie among t + 1.
    Gauss-Legendre is exact for the degree in y, and the coefficient is read off by a discrete
    Fourier transform. Equal to enumeration of all subsets within 1e-12.

    Args:
        votes: samples per distinct answer, each >= 1. May be empty.
        right: whether that answer is right. Several may be (two ways to write one number).
        abstained: samples without an answer, >= 0.
        k: 1 <= k <= n = sum(votes) + abstained.

    Returns:
        In [0, 1].

    Raises:
        ShapeError: lengths differ, a vote below 1, or k outside [1, n].

    Source:
        majority voting: Wang et al. 2022, arXiv:2203.11171. The computation is our own.
    """
    n = sum(votes) + abstained
    if len(votes) != len(right) or min(votes, default=1) < 1 or abstained < 0:
        raise ShapeError(
            f"need one 'right' a vote, votes >= 1 and abstained >= 0, got {list(votes)}, "
            f"{list(right)} and {abstained}"
        )
    if not 1 <= k <= n:
        raise ShapeError(f"need 1 <= k <= n, got k={k} and n={n} samples")
    theta = k / n
    answers = Counter(votes)
    kept = {size: _binomial(size, theta) for size in answers}
    silent = _transform(_binomial(abstained, theta), n)
    chance = 0.0
    for size, several in Counter(w for w, r in zip(votes, right, strict=True) if r).items():
        others = answers - Counter([size])
        chance += several * _wins(size, others, kept, silent, n, k)
    return min(1.0, max(0.0, chance / float(stats.binom.pmf(k, n, theta))))


def _wins(
    size: int,
    others: Counter[int],
    kept: Mapping[int, NDArray[np.float64]],
    silent: Complex,
    n: int,
    k: int,
) -> float:
    """P(one answer of `size` samples leads, ties shared, and k are kept)."""
    total = 0.0
    for j in range(1, min(size, k) + 1):
        rivals = min(sum(m for d, m in others.items() if d >= j), k // j - 1)
        nodes, weights = np.polynomial.legendre.leggauss(rivals // 2 + 1)
        y_L = (nodes + 1) / 2
        product_LF = np.broadcast_to(silent, (y_L.size, silent.size))
        for d, several in others.items():
            below_F = _transform(kept[d][:j], n)
            tied_F = _transform(np.r_[np.zeros(j), kept[d][j : j + 1]], n)
            product_LF = product_LF * (below_F + y_L[:, None] * tied_F) ** several
        mean_F = (weights / 2) @ product_LF
        total += kept[size][j] * float(fft.irfft(mean_F, _length(n))[k - j])
    return total


def _binomial(size: int, theta: float) -> NDArray[np.float64]:
    return np.asarray(stats.binom.pmf(np.arange(size + 1), size, theta), dtype=np.float64)


def _length(n: int) -> int:
    """Room for degree n: products of the transforms do not wrap round."""
    return int(fft.next_fast_len(n + 1, real=True))


def _transform(coefficients: NDArray[np.float64], n: int) -> Complex:
    return np.asarray(fft.rfft(coefficients, _length(n)), dtype=np.complex128)
