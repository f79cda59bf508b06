"""Gradients and steps taken by hand, for studies of what one update does to a real policy.

Axes:  G groups · R rows, their answers · K texts · T tokens
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.policy.model import Policy

ROWS = 1024
"""Answers scored at once."""


class Answers(NamedTuple):
    """The answers to one prompt, and what the log-prob of each of their tokens is multiplied by."""

    prompt: tuple[int, ...]
    tokens: Sequence[NDArray[np.int32]]
    weights: Sequence[NDArray[np.float32]]  # one array an answer, of its length


class Step(NamedTuple):
    """A direction in parameter space, in the order of the trainable parameters."""

    parts: list[Tensor]

    def dot(self, other: "Step") -> float:
        """Inner product, in float64."""
        pairs = zip(self.parts, other.parts, strict=True)
        return float(sum((a.double() * b.double()).sum() for a, b in pairs))

    @property
    def norm(self) -> float:
        """Euclidean length."""
        return float(np.sqrt(self.dot(self)))

    def cosine(self, other: "Step") -> float:
        """Of the angle to another; nan where one of them is 0."""
        scale = self.norm * other.norm
        return self.dot(other) / scale if scale > 0 else float("nan")


def trainable(policy: Policy) -> list[Tensor]:
    """Parameters that a gradient reaches, a tied one once."""
    return [p for p in policy.model.parameters() if p.requires_grad]


def policy_gradient(
    policy: Policy, groups: Sequence[Answers], *, temperature: float, denominator: float
) -> Step:
    """Gradient of (1/denominator) * sum over rows and tokens of weight * log-prob (to ascend it).

    Args:
        policy: not changed.
        groups: at least one answer in all.
        temperature: at which the answers were sampled.
        denominator: for instance the number of rows; > 0.
    """

    def value(part: Sequence[Answers]) -> Tensor:
        logp_M = _score(policy, part, temperature)
        weights = np.concatenate([w for g in part for w in g.weights])
        return (logp_M * torch.from_numpy(weights).to(logp_M.device)).sum() / denominator

    return _gradient(policy, (value(part) for part in _parts(groups)))


def text_logprobs(policy: Policy, texts: Sequence[Answers], *, temperature: float) -> Tensor:
    """float64 [K]: log-prob of each given answer (the first of each group), with gradient."""
    logp_M = _score(policy, texts, temperature).double()
    lengths = [len(t.tokens[0]) for t in texts]
    return torch.stack([part.sum() for part in logp_M.split(lengths)])


def text_gradients(
    policy: Policy, texts: Sequence[Answers], *, temperature: float
) -> Iterator[Step]:
    """The gradient of the log-prob of each text, one after another."""
    for text in texts:
        logp = text_logprobs(policy, [text], temperature=temperature)[0]
        yield _gradient(policy, [logp])


def score_tokens(policy: Policy, groups: Sequence[Answers], *, temperature: float) -> Tensor:
    """float32 [M]: the trainer's log-prob of every token of every answer, in order.

    Cut into parts of ROWS answers, as an update is; gradients flow only where they are enabled.
    """
    return torch.cat([_score(policy, part, temperature).cpu() for part in _parts(groups)])


@contextmanager
def moved(policy: Policy, step: Step, size: float) -> Iterator[None]:
    """Within it the weights are theta + size * step; after it they are the old ones, to the bit."""
    parameters = trainable(policy)
    kept = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p, d in zip(parameters, step.parts, strict=True):
            p.add_(d.to(p.dtype), alpha=size)
    try:
        yield
    finally:
        with torch.no_grad():
            for p, old in zip(parameters, kept, strict=True):
                p.copy_(old)


def _gradient(policy: Policy, values: Iterable[Tensor]) -> Step:
    """The gradient of a sum, one part of it held in memory at a time."""
    parameters = trainable(policy)
    total = [torch.zeros_like(p) for p in parameters]
    for value in values:
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        for place, part in zip(total, found, strict=True):
            if part is not None:
                place += part
    return Step(total)


def _parts(groups: Sequence[Answers]) -> Iterator[list[Answers]]:
    """Groups cut and packed so that a part has at most ROWS answers."""
    open_part: list[Answers] = []
    rows = 0
    for group in groups:
        for first in range(0, len(group.tokens), ROWS):
            piece = Answers(
                group.prompt,
                group.tokens[first : first + ROWS],
                group.weights[first : first + ROWS],
            )
            if rows + len(piece.tokens) > ROWS and open_part:
                yield open_part
                open_part, rows = [], 0
            open_part.append(piece)
            rows += len(piece.tokens)
    if open_part:
        yield open_part


def _score(policy: Policy, groups: Sequence[Answers], temperature: float) -> Tensor:
    """float32 [M]: log-probs of all tokens of all answers, in order."""
    answers = [tokens for g in groups for tokens in g.tokens]
    lengths = torch.tensor([len(t) for t in answers], device=policy.device)
    padded = np.zeros((len(answers), int(lengths.max())), dtype=np.int64)
    for row, tokens in zip(padded, answers, strict=True):
        row[: len(tokens)] = tokens
    owner = np.repeat(np.arange(len(groups)), [len(g.tokens) for g in groups])
    scored = policy.score(
        [g.prompt for g in groups],
        torch.from_numpy(owner).to(policy.device),
        torch.from_numpy(padded).to(policy.device),
        lengths,
        temperature=temperature,
    )
    return scored.logp_M
