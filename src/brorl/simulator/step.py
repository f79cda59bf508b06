"""One step of the token simulator: weigh the draws, move the logits, measure the mass.

Axes: V tokens of the vocabulary, the correct ones first; L live ones; U distinct tokens of a
batch of draws.

Wrong tokens at the end of the vocabulary that start from one logit are alike until they are drawn.
They are numbered in the order in which they are first drawn, and those not yet drawn need no state
each: the last live token stands for itself and for all after it, 1 + V - L tokens in every sum.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.errors import RunError
from brorl.simulator.initial import initial_logits
from brorl.simulator.optimizers import make_optimizer
from brorl.simulator.sampling import TokenSampler
from brorl.simulator.settings import SimulatorSettings
from brorl.simulator.weights import advantages, loss_pull

ArrayL = NDArray[np.floating]
FloatU = NDArray[np.float64]
Indices = NDArray[np.intp]

LIVE_FROM_START = 1 / 2
"""Share of the vocabulary with a state of its own from the start. With none, a step at N = 4 takes
half the time, and one at N = 51,200 ten times as long as that, not five."""


class Record(NamedTuple):
    """What is recorded after a step. Masses are probabilities.

    sampled_correct, sampled_wrong and unsampled add up to the first-order change
    sum_j p_j dz_j (1[j correct] - Q_pos) of the logit step that was really taken. Two further
    numbers are shares of that sum, not parts beside it: `never_drawn` is the part of `unsampled`
    from tokens that no step has drawn yet, which only coupling and decay can move (a token drawn
    earlier still has momentum), and `decay` is what weight decay did, whichever tokens it moved.
    """

    correct_mass: float  # Q_pos after the step
    improved_share: float  # of the correct tokens, those above their start, in [0, 1]
    worst_change: float  # smallest p - p at the start over the correct tokens
    sampled_correct: float
    sampled_wrong: float
    unsampled: float
    never_drawn: float
    decay: float
    exact_change: float  # Q_pos after minus Q_pos before


class _Sides(NamedTuple):
    """A sum over the tokens by side, and its part over tokens never drawn."""

    right: float
    wrong: float
    right_never: float
    wrong_never: float


class TokenSimulator:
    """The state of one curve: logits, optimiser, and the probabilities they imply."""

    def __init__(self, settings: SimulatorSettings, n: int) -> None:
        dtype: np.dtype[np.floating] = np.dtype(settings.dtype)
        logits_V = initial_logits(settings)
        self._settings = settings
        self._n = n
        self._alike_from = _first_alike(logits_V, settings.correct)
        self.next_number = self._alike_from
        """Tokens from this one on are alike and were never drawn."""

        floor = max(self._alike_from, int(LIVE_FROM_START * settings.vocab))
        self._live = min(floor + 1, settings.vocab)
        self._logits_V = logits_V.astype(dtype)
        self._optimizer = make_optimizer(settings, n, dtype)
        self._never = np.ones(self._alike_from, dtype)  # 1 until a token is first drawn, then 0
        # exp(logits - their maximum), now and to be; a probability is that times `_scale`.
        self._exp_V, self._next_exp_V, self._gradient_V, self._moved_V = (
            np.empty(settings.vocab, dtype) for _ in range(4)
        )
        self._softmax(self._exp_V)
        self._start_p = self._exp_V[: settings.correct] * self._scale
        self.start = Record(self._q_pos, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def p_L(self) -> ArrayL:
        """Probabilities of the live tokens: [L], the last one shared by those after it."""
        return self._exp_V[: self._live] * self._scale

    def draw(self, sampler: TokenSampler) -> NDArray[np.int32]:
        """N tokens from the current probabilities: int32 [N], numbered as `step` wants them."""
        return sampler.draw(
            self._exp_V[: self._live],
            (self._q_pos / self._scale, self._q_neg / self._scale),
            self.next_number,
            self._n,
        )

    def step(self, tokens: NDArray[np.integer]) -> Record:
        """Learn from one batch of draws.

        Args:
            tokens: int [N], drawn from the probabilities with replacement. Those at or above
                `next_number` take the numbers from there on without a gap.

        Raises:
            RunError: the logits are no longer finite.
        """
        drawn_U, count_U = distinct(tokens)
        self._count_as_drawn(drawn_U)
        rights = int(np.searchsorted(drawn_U, self._settings.correct))
        masses, scale = (self._q_pos, self._q_neg), self._scale
        p_U, logits_U = self._exp_V[drawn_U] * np.float64(scale), self._logits_V[drawn_U]
        lost = self._optimizer.kept_per_update**self._settings.epochs - 1
        by_decay = self._sides(self._logits_V, lost * scale) if lost else _Sides(0, 0, 0, 0)
        with np.errstate(over="ignore", invalid="ignore"):  # _softmax tells a blow-up by name
            moved_L = self._learn(drawn_U, p_U, *self._weights(count_U, rights))
        by_gradient = self._sides(moved_L, -scale)
        flow_U = p_U * (lost * logits_U - moved_L[drawn_U])
        self._exp_V, self._next_exp_V = self._next_exp_V, self._exp_V
        change = self._exp_V[: self._settings.correct] * self._scale - self._start_p
        return Record(
            self._q_pos,
            np.count_nonzero(change > 0) / change.size,
            float(change.min()),
            *_split(masses, by_decay, by_gradient, flow_U[:rights], flow_U[rights:]),
            self._q_pos - masses[0],
        )

    def _count_as_drawn(self, drawn_U: Indices) -> None:
        """Remember first draws, and give the tokens among them a state of their own."""
        self.next_number = max(self.next_number, int(drawn_U[-1]) + 1)
        self._never[drawn_U[: np.searchsorted(drawn_U, self._alike_from)]] = 0
        live = min(max(self.next_number + 1, self._live), self._settings.vocab)
        if live > self._live:
            for array_V in (self._logits_V, self._exp_V, *self._optimizer.arrays):
                array_V[self._live : live] = array_V[self._live - 1]
            self._live = live

    def _weights(self, count_U: Indices, rights: int) -> tuple[FloatU, float]:
        """Count times advantage per distinct token, and the unit of the advantages."""
        s = self._settings
        if s.counting == "set":
            count_U = np.ones_like(count_U)
        both = advantages(
            int(count_U[:rights].sum()),
            int(count_U[rights:].sum()),
            reward_correct=s.reward_correct,
            reward_wrong=s.reward_wrong,
            baseline=s.baseline,
        )
        weight_U = count_U.astype(np.float64)
        weight_U[:rights] *= both.correct
        weight_U[rights:] *= both.wrong
        return weight_U, both.unit

    def _learn(self, drawn_U: Indices, old_p_U: FloatU, weight_U: FloatU, unit: float) -> ArrayL:
        """Take the epochs of one batch; returns what the gradients took off the logits.

        The gradient of every loss here is p_j * sum(pull) - pull_j over N: dense in p, and with
        a term of its own only on the drawn tokens.
        """
        logits_L, gradient_L = self._logits_V[: self._live], self._gradient_V[: self._live]
        exp_L, p_U = self._exp_V[: self._live], old_p_U
        moved_L = self._moved_V[: self._live]
        for epoch in range(self._settings.epochs):
            pull_U = loss_pull(self._settings.loss, weight_U, p_U, old_p_U)
            np.multiply(exp_L, pull_U.sum() * (unit / self._n * self._scale), out=gradient_L)
            gradient_L[drawn_U] -= pull_U * (unit / self._n)
            step_L = self._optimizer.update(logits_L, gradient_L)
            if self._settings.epochs == 1:
                moved_L = step_L
            elif epoch == 0:
                moved_L[:] = step_L
            else:
                moved_L *= self._optimizer.kept_per_update
                moved_L += step_L
            self._softmax(self._next_exp_V)
            exp_L = self._next_exp_V[: self._live]
            if epoch + 1 < self._settings.epochs:
                p_U = exp_L[drawn_U] * np.float64(self._scale)
        return moved_L

    def _softmax(self, out_V: ArrayL) -> None:
        """exp(logits - maximum) into `out_V`, with the scale and both masses that belong to it."""
        correct, logits_L, out_L = (
            self._settings.correct,
            self._logits_V[: self._live],
            out_V[: self._live],
        )
        np.subtract(logits_L, logits_L.max(), out=out_L)
        np.exp(out_L, out=out_L)
        right, wrong = float(out_L[:correct].sum()), float(out_L[correct:].sum())
        wrong += float(out_L[-1]) * (self._settings.vocab - self._live)
        if not np.isfinite(right + wrong):
            raise RunError(f"N={self._n}: the logits are no longer finite; lower the learning rate")
        self._scale = 1 / (right + wrong)
        self._q_pos, self._q_neg = right * self._scale, wrong * self._scale

    def _sides(self, x_V: ArrayL, factor: float) -> _Sides:
        """Sums of factor * exp_j * x_j over the live tokens, the last one counted in full.

        By einsum and not by `@`: BLAS would start threads of its own, and they fight with ours.
        """
        correct, alike, drawn = self._settings.correct, self._alike_from, self.next_number
        exp_V, never = self._exp_V, self._never

        def dot(start: int, stop: int) -> float:
            return float(np.einsum("i,i->", exp_V[start:stop], x_V[start:stop]))

        def dot_never(start: int, stop: int) -> float:
            part = slice(start, stop)
            return float(np.einsum("i,i,i->", exp_V[part], x_V[part], never[part]))

        last = self._live - 1
        fresh = dot(drawn, self._live)
        fresh += float(exp_V[last]) * float(x_V[last]) * (self._settings.vocab - self._live)
        return _Sides(
            factor * dot(0, correct),
            factor * (dot(correct, drawn) + fresh),
            factor * dot_never(0, correct),
            factor * (dot_never(correct, alike) + fresh),
        )


def _split(
    masses: tuple[float, float],
    by_decay: _Sides,
    by_gradient: _Sides,
    right_flow: FloatU,
    wrong_flow: FloatU,
) -> tuple[float, float, float, float, float]:
    """The five fields of Record about sum_j p_j dz_j (1[j correct] - Q_pos), in order."""
    q_pos, q_neg = masses
    right, wrong, right_never, wrong_never = (
        decay + gradient for decay, gradient in zip(by_decay, by_gradient, strict=True)
    )
    sampled_correct = q_neg * float(right_flow.sum())
    sampled_wrong = -q_pos * float(wrong_flow.sum())
    return (
        sampled_correct,
        sampled_wrong,
        q_neg * right - q_pos * wrong - sampled_correct - sampled_wrong,
        q_neg * right_never - q_pos * wrong_never,
        q_neg * by_decay.right - q_pos * by_decay.wrong,
    )


def _first_alike(logits_V: NDArray[np.float64], correct: int) -> int:
    """Where the wrong tokens begin that all start from the last one's logit."""
    alike = logits_V[::-1] == logits_V[-1]
    tail = alike.size if alike.all() else int(alike.argmin())
    return max(correct, logits_V.size - tail)


def distinct(tokens: NDArray[np.integer]) -> tuple[Indices, Indices]:
    """The distinct tokens in ascending order and how often each was drawn: [U], [U]."""
    ordered = np.sort(tokens)
    starts_run = np.empty(ordered.size, dtype=np.bool_)
    starts_run[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts_run[1:])
    first = np.flatnonzero(starts_run)
    return ordered[first].astype(np.intp), np.diff(first, append=ordered.size)
