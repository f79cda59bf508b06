"""N i.i.d. draws from a distribution that changes a little every step, without a cumulative sum.

A cumulative sum costs a sequential pass over the vocabulary and every draw a search in it. Here a
table holds each token in proportion to its probability at the time the table was made; a draw is
one cell of it, accepted with probability proportional to p now over p then, so that what comes
out follows p now exactly. The table is made again when too many proposals are thrown away.

Correct and wrong tokens have a table each: within a side probabilities are alike, so a small table
is enough, and a small one stays in a core's cache.

Axes: V tokens of the vocabulary, S of one side; L live ones, of which the last stands for itself
and for the tokens after it (see brorl.simulator.step).
"""

import numpy as np
from numpy.typing import NDArray

CELLS_PER_TOKEN = (1, 2, 4, 8)
"""Mean cells per token of a table: the first that accepts enough is taken, or the last."""

ENOUGH_ACCEPTED = 0.85
"""Share of proposals that a new table should accept; with 8 cells it is 7/8 at least."""

LEAST_ACCEPTED = 0.7
"""Make the table again below this share: a table costs as much as some 10^5 draws."""

PROPOSALS_AT_ONCE = 2**15
"""Small enough for their buffers to stay in a core's cache."""


class TableSampler:
    """Draws from any weights of one side, fast while they stay near what they were."""

    def __init__(self, rng: np.random.Generator, tokens: int, dtype: np.dtype[np.floating]) -> None:
        self._rng = rng
        self._tokens = tokens
        self._table = np.empty(0, dtype=np.int32)  # tokens, each in as many cells as it has
        self._per_cell_S = np.empty(tokens, dtype)  # 1 / cells of each token
        self._ratio_S = np.empty(tokens, dtype)
        self._largest = 0.0
        self._place = np.empty(PROPOSALS_AT_ONCE)
        self._cell = np.empty(PROPOSALS_AT_ONCE, dtype=np.int64)
        self._token = np.empty(PROPOSALS_AT_ONCE, dtype=np.int32)
        self._drawn_ratio = np.empty(PROPOSALS_AT_ONCE, dtype)

    def draw(self, weight_L: NDArray[np.floating], total: float, n: int) -> list[NDArray[np.int32]]:
        """N independent tokens in proportion to the weights: int32 arrays of n in all, unordered.

        With c_v cells of token v and r_v = w_v / c_v, a proposal is token v with probability
        c_v / sum(c) and stays with probability r_v / max(r): proportional to w_v. One uniform
        number serves both: its cell is the integer part, and the fraction, of some 33 bits at
        V = 128,000, decides whether it stays.

        Args:
            weight_L: float32 or float64 [L], >= 0. L may grow from call to call: tokens beyond it
                had equal cells when the table was made, because they had equal weights.
            total: sum of the weights, the last one counted 1 + S - L times, up to rounding.
            n: draws, >= 0.
        """
        accepted = self._accepted_share(weight_L, total) if self._table.size else 0.0
        if accepted < LEAST_ACCEPTED:
            accepted = self._make_table(weight_L, total)
        kept: list[NDArray[np.int32]] = []
        missing = n
        while missing > 0:
            proposals = min(int(missing / accepted * 1.02) + 16, PROPOSALS_AT_ONCE)
            kept.append(self._propose(proposals, weight_L.size)[:missing])
            missing -= kept[-1].size
        return kept

    def _accepted_share(self, weight_L: NDArray[np.floating], total: float) -> float:
        """Share of proposals that will stay; leaves r and its maximum behind for `_propose`."""
        ratio_L = self._ratio_S[: weight_L.size]
        np.multiply(weight_L, self._per_cell_S[: weight_L.size], out=ratio_L)
        self._largest = float(ratio_L.max())
        return total / (self._table.size * self._largest)

    def _propose(self, proposals: int, live: int) -> NDArray[np.int32]:
        """The tokens that stayed, out of so many proposals."""
        place, cell = self._place[:proposals], self._cell[:proposals]
        token, ratio = self._token[:proposals], self._drawn_ratio[:proposals]
        self._rng.random(out=place)
        place *= self._table.size
        np.copyto(cell, place, casting="unsafe")
        place -= cell
        # mode="clip" lets take() write into the buffer, and reads the shared state beyond L.
        self._table.take(cell, out=token, mode="clip")
        self._ratio_S[:live].take(token, out=ratio, mode="clip")
        place *= self._largest
        return token[place < ratio]

    def _make_table(self, weight_L: NDArray[np.floating], total: float) -> float:
        """The smallest table that accepts enough; returns the share it accepts."""
        accepted = 0.0
        for cells in CELLS_PER_TOKEN:
            cells_S = np.empty(self._tokens, dtype=np.int64)
            cells_S[: weight_L.size] = weight_L * ((cells - 1) * self._tokens / total)
            cells_S[weight_L.size :] = cells_S[weight_L.size - 1]
            cells_S += 1
            self._per_cell_S[:] = 1 / cells_S
            self._table = np.repeat(np.arange(self._tokens, dtype=np.int32), cells_S)
            accepted = self._accepted_share(weight_L, total)
            if accepted >= ENOUGH_ACCEPTED:
                break
        return accepted


class TokenSampler:
    """Draws from the whole vocabulary, the correct tokens first."""

    def __init__(
        self, rng: np.random.Generator, vocab: int, correct: int, dtype: np.dtype[np.floating]
    ) -> None:
        self._rng = rng
        self._vocab = vocab
        self._correct = correct
        self._right = TableSampler(rng, correct, dtype)
        self._wrong = TableSampler(rng, vocab - correct, dtype)

    def draw(
        self,
        weight_L: NDArray[np.floating],
        sides: tuple[float, float],
        next_number: int,
        n: int,
    ) -> NDArray[np.int32]:
        """N independent tokens from p: int32 [n], each in [0, V), in no particular order.

        How many are correct is binomial; given that, the two sides are independent.

        Args:
            weight_L: float32 or float64 [L], >= 0, probabilities up to a common factor.
            sides: sums of the weights over all correct and over all wrong tokens.
            next_number: tokens from this one on are alike and were never drawn. Those drawn now
                take this number and the following ones, without a gap.
            n: draws, >= 1.
        """
        rights = int(self._rng.binomial(n, sides[0] / (sides[0] + sides[1])))
        drawn = self._right.draw(weight_L[: self._correct], sides[0], rights) if rights else []
        if rights < n:
            parts = self._wrong.draw(weight_L[self._correct :], sides[1], n - rights)
            wrong = np.concatenate(parts)
            wrong += np.int32(self._correct)
            if next_number < self._vocab:
                number_by_first_draw(wrong, next_number)
            drawn.append(wrong)
        return np.concatenate(drawn)


def number_by_first_draw(tokens: NDArray[np.int32], next_number: int) -> None:
    """Rename tokens at or above the next number to it and those after it: int32, in place.

    They have never been drawn and are alike in everything, so any renaming among them leaves the
    distribution of the simulation as it was; this one keeps the drawn tokens together.
    """
    first_time = np.flatnonzero(tokens >= next_number)
    if first_time.size:
        _, rank = np.unique(tokens[first_time], return_inverse=True)
        tokens[first_time] = next_number + rank
