"""From raw scores to shaped rewards to advantages, written into each answer's record."""

from collections.abc import Sequence

import torch

from brorl.algo.advantages import advantages
from brorl.algo.shaping import (
    cosine_length_term,
    length_term_active,
    overlong_penalty,
    stop_properly,
)
from brorl.rollout.engine import Stop
from brorl.train.groups import Group, Sample
from brorl.train.settings import TrainSettings


def shape(groups: Sequence[Group], settings: TrainSettings, step: int) -> None:
    """Set `shaped` of every answer: raw score, then truncation, then length.

    Runs after the filter, which looks at raw scores: a length term must not put spread among
    answers that are all wrong.
    """
    samples = [x for g in groups for x in g.counting]
    if not samples:
        return
    limit = settings.rollout.max_new_tokens
    lengths_B = torch.tensor([len(x.completion.tokens) for x in samples])
    reward_B = torch.tensor([x.raw for x in samples], dtype=torch.float64)
    over = settings.overlong
    if over.stop_properly is not None:
        truncated_B = torch.tensor([x.completion.stop is Stop.LENGTH for x in samples])
        reward_B = stop_properly(reward_B, truncated_B, coefficient=over.stop_properly)
    if over.buffer is not None:
        reward_B = reward_B + overlong_penalty(
            lengths_B, max_length=limit, buffer=over.buffer, factor=over.factor
        )
    term = settings.length_penalty
    if term.enable and length_term_active(step, on=term.on_steps, off=term.off_steps):
        reward_B = reward_B + term.weight * cosine_length_term(
            lengths_B, max_length=limit, eta_min=term.min, eta_max=term.max
        )
    for sample, reward in zip(samples, reward_B.tolist(), strict=True):
        sample.shaped = reward


def assign_advantages(groups: Sequence[Group], settings: TrainSettings) -> None:
    """Set `advantage` of every answer of the kept groups, normalised over all of them at once."""
    rows: list[tuple[int, Sample]] = [(i, x) for i, g in enumerate(groups) for x in g.counting]
    if not rows:
        return
    values = advantages(
        torch.tensor([x.shaped for _, x in rows], dtype=torch.float64),
        torch.tensor([i for i, _ in rows]),
        torch.tensor([len(x.completion.tokens) for _, x in rows]),
        estimator=settings.advantage.estimator,
        normalise=settings.advantage.scaling,
        baseline_P=None,
    )
    for (_, sample), value in zip(rows, values.tolist(), strict=True):
        sample.advantage = value
