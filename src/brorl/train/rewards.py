"""From raw scores to shaped rewards to advantages, written into each answer's record."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brorl.algo.advantages import advantages
from brorl.algo.selection import Cut, cut_groups, max_variance_rows, random_rows
from brorl.algo.shaping import (
    cosine_length_term,
    length_term_active,
    overlong_penalty,
    stop_properly,
)
from brorl.algo.stopping import unbiased_baseline
from brorl.rollout.engine import Stop
from brorl.seeds import generator
from brorl.train.groups import Fate, Group, Sample
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


def assign_advantages(groups: Sequence[Group], settings: TrainSettings, step: int) -> None:
    """Set `advantage` of every answer of the kept groups, normalised over all of them at once.

    With `keep_per_group` the groups are cut afterwards: advantages come from whole groups, and
    answers that are cut lose theirs and are marked.
    """
    rows: list[tuple[int, Sample]] = [(i, x) for i, g in enumerate(groups) for x in g.counting]
    if not rows:
        return
    reward_B = torch.tensor([x.shaped for _, x in rows], dtype=torch.float64)
    group_B = torch.tensor([i for i, _ in rows])
    baseline_P = None
    if settings.advantage.baseline == "unbiased":
        baseline_P = unbiased_baseline(
            reward_B,
            torch.tensor([x.right for _, x in rows]),
            group_B,
            torch.tensor([g.before(settings.rollout.totals) for g in groups]),
            stop_right=settings.rollout.stop_right,
        )
    values = advantages(
        reward_B,
        group_B,
        torch.tensor([len(x.completion.tokens) for _, x in rows]),
        estimator=settings.advantage.estimator,
        normalise=settings.advantage.scaling,
        baseline_P=baseline_P,
    )
    for (_, sample), value in zip(rows, values.tolist(), strict=True):
        sample.advantage, sample.weight = value, 1.0
    if settings.rollout.keep_per_group is not None:
        _cut(rows, group_B, settings, step, settings.rollout.keep_per_group)


def _cut(
    rows: Sequence[tuple[int, Sample]],
    group_B: Tensor,
    settings: TrainSettings,
    step: int,
    keep: int,
) -> None:
    """Wide search, narrow update: take the advantage from all answers but `keep` of a group."""
    cut = _chosen([x for _, x in rows], group_B, settings, step, keep)
    stands_for = dict(zip(cut.rows_K.tolist(), cut.weight_K.tolist(), strict=True))
    for i, (_, sample) in enumerate(rows):
        if i not in stands_for:
            sample.advantage, sample.fate = None, Fate.CUT
        elif settings.advantage.weight == "unbiased":
            sample.weight = stands_for[i]


def _chosen(
    samples: Sequence[Sample], group_B: Tensor, settings: TrainSettings, step: int, keep: int
) -> Cut:
    """By `rollout.keep_rule`. The variance is that of shaped rewards, which advantages are of."""
    keys_2B = torch.from_numpy(generator(settings.seed, "cut", step).random((2, len(samples))))
    if settings.rollout.keep_rule == "random":
        return random_rows(group_B, keys_2B[0], keep_per_group=keep)
    if settings.rollout.keep_rule == "max_variance":
        reward_B = torch.tensor([x.shaped for x in samples], dtype=torch.float64)
        rows_K = max_variance_rows(reward_B, group_B, keep_per_group=keep)
        return Cut(rows_K, torch.ones(len(rows_K), dtype=torch.float64))
    answers: dict[str, int] = {}
    answer_B = torch.tensor([answers.setdefault(x.answer, len(answers)) for x in samples])
    right_B = torch.tensor([x.right for x in samples])
    return cut_groups(right_B, answer_B, group_B, keys_2B, keep_per_group=keep)
