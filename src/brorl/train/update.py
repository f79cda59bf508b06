"""The update: mini-batches of clipped policy-gradient steps over the rows of one rollout batch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brorl.algo.aggregation import loss_denominator, token_weights
from brorl.algo.importance import Mismatch, importance_weights, mismatch
from brorl.algo.kl import kl_penalty
from brorl.algo.losses import clipped_policy_loss
from brorl.errors import RunError
from brorl.policy.model import Policy
from brorl.policy.token_logprobs import TokenLogprobs
from brorl.train.batch import Micro, Row, micro_batches, tensors
from brorl.train.reference import Reference
from brorl.train.settings import TrainSettings


class NonFiniteLoss(RunError):
    """A loss or gradient that is not finite; the optimizer has not stepped on it.

    Attributes:
        rows: the micro-batch (or, for a gradient, the mini-batch) that caused it.
    """

    def __init__(self, message: str, rows: Sequence[Row]) -> None:
        super().__init__(message)
        self.rows = list(rows)


@dataclass
class UpdateReport:
    """Sums over the tokens of a step's updates; `metrics` turns them into means."""

    updates: int = 0
    tokens: int = 0
    loss: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    clipped_c: int = 0
    overflowed: int = 0
    entropy: float = 0.0
    kl_total: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    lr: float = 0.0
    mismatch: Mismatch | None = None
    mismatch_kept: Mismatch | None = None
    masked_share: float | None = None


class Correction(NamedTuple):
    """What the scoring pass found."""

    mismatch: Mismatch | None  # over every token
    kept: Mismatch | None  # over the tokens that the correction leaves
    masked_share: float


@torch.no_grad()
def rescore(policy: Policy, rows: Sequence[Row], s: TrainSettings) -> Correction:
    """Old log-probs by the trainer, and the weights that correct for the engine's.

    Sets `old_logp` and `correction` of every row. Measured over the whole step before any
    split, since seq-mask-tis and the mismatch figures look at whole sequences.
    """
    olds: list[Tensor] = []
    engines: list[Tensor] = []
    owners: list[Tensor] = []
    scored: list[Row] = []
    for part in micro_batches(rows, s.micro_batch_tokens):
        micro = tensors(part, policy.device)
        logp_M = micro.score(policy, s.rollout.temperature).logp_M.cpu()
        for row, values in zip(part, logp_M.split([r.length for r in part]), strict=True):
            row.old_logp = values.numpy()
            olds.append(values)
            engines.append(torch.from_numpy(np.array(row.sample.completion.logprobs)))
            owners.append(torch.full((row.length,), len(scored)))
            scored.append(row)
    old_M, engine_M, owner_M = torch.cat(olds), torch.cat(engines), torch.cat(owners)
    mask_M = torch.ones_like(old_M, dtype=torch.bool)
    found = mismatch(old_M, engine_M, mask_M)
    if s.tis.type == "none":
        return Correction(found, found, 0.0)
    weights = importance_weights(
        old_M, engine_M, mask_M, owner_M, tis_type=s.tis.type, cap=s.tis.cap, min=s.tis.min
    )
    for row, weight in zip(scored, weights.weight.split([r.length for r in scored]), strict=True):
        row.correction = weight.numpy()
    kept = mismatch(old_M, engine_M, weights.kept)
    return Correction(found, kept, weights.masked / len(old_M))


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Sequence[Row]],
    s: TrainSettings,
    *,
    whole_lengths: Sequence[int],
    reference: Reference | None,
    lr: Callable[[int], float],
    updates_done: int,
    after_update: Callable[[int], None],
) -> UpdateReport:
    """One optimizer step a mini-batch, gradients summed over micro-batches.

    Args:
        policy: changed in place.
        optimizer: over the policy's parameters.
        batches: mini-batches from `brorl.train.batch.minibatches`.
        s: settings.
        whole_lengths: answer lengths of the kept groups before any cut.
        reference: None where kl_coef is 0.
        lr: learning rate of the update with a given number.
        updates_done: optimizer steps before this call.
        after_update: called with the new count after each optimizer step.

    Raises:
        NonFiniteLoss: before the optimizer steps.
    """
    report = UpdateReport()
    parameters = [p for held in optimizer.param_groups for p in held["params"]]
    first_logp: list[tuple[Tensor, Tensor, Tensor]] = []
    for rows in batches:
        denominator = _denominator(rows, len(batches), whole_lengths, s)
        optimizer.zero_grad(set_to_none=True)
        for part in micro_batches(rows, s.micro_batch_tokens):
            micro = tensors(part, policy.device)
            scored = micro.score(policy, s.rollout.temperature)
            loss = _loss(micro, scored, denominator, s, reference, report)
            if not bool(torch.isfinite(loss)):
                value, number = float(loss.detach()), updates_done + report.updates + 1
                raise NonFiniteLoss(f"the loss is {value} at update {number}", part)
            loss.backward()
            if report.updates == 0:
                engine = micro.flat([r.sample.completion.logprobs for r in micro.rows])
                first_logp.append(
                    (scored.logp_M.detach(), engine, _same_weights(micro, updates_done))
                )
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, s.optimizer.grad_clip))
        if not math.isfinite(norm):
            raise NonFiniteLoss(
                f"the gradient's norm is {norm} at update {updates_done + report.updates + 1}", rows
            )
        report.lr = lr(updates_done + report.updates)
        for group in optimizer.param_groups:
            group["lr"] = report.lr
        optimizer.step()
        report.updates += 1
        report.grad_norms.append(norm)
        after_update(updates_done + report.updates)
    if first_logp:
        trainer, engine, fresh = (torch.cat(parts) for parts in zip(*first_logp, strict=True))
        report.mismatch = mismatch(trainer, engine, fresh)
    return report


def _same_weights(micro: Micro, updates_done: int) -> Tensor:
    """bool [M]: tokens sampled by the weights that score them now; carried groups are older."""
    same = [float(r.sample.completion.policy_version == updates_done) for r in micro.rows]
    return micro.per_token(same) > 0


def _denominator(
    rows: Sequence[Row], n_batches: int, whole_lengths: Sequence[int], s: TrainSettings
) -> float:
    """What a mini-batch's loss is divided by.

    Its own tokens or sequences; under unbiased cut weights its share of those of the whole
    groups, since the weighted rows stand for them.
    """
    if s.advantage.weight == "unbiased":
        lengths = torch.tensor(list(whole_lengths))
        return loss_denominator(lengths, loss_agg_mode=s.loss_agg_mode) / n_batches
    lengths = torch.tensor([row.length for row in rows])
    return loss_denominator(lengths, loss_agg_mode=s.loss_agg_mode)


def _loss(
    micro: Micro,
    scored: TokenLogprobs,
    denominator: float,
    s: TrainSettings,
    reference: Reference | None,
    report: UpdateReport,
) -> Tensor:
    """The part of the mini-batch's loss that this micro-batch holds; sums go to the report."""
    mask_M = torch.ones_like(micro.row_M, dtype=torch.bool)
    base_M = token_weights(
        mask_M,
        micro.row_M,
        loss_agg_mode=s.loss_agg_mode,
        denominator=denominator,
        dtype=scored.logp_M.dtype,
    )
    base_M = base_M * micro.per_token([r.sample.weight for r in micro.rows])
    weight_M = base_M
    corrections = [r.correction for r in micro.rows if r.correction is not None]
    if corrections:
        weight_M = weight_M * micro.flat(corrections)
    out = clipped_policy_loss(
        scored.logp_M,
        micro.flat([r.old_logp for r in micro.rows]),
        micro.per_token([r.sample.advantage or 0.0 for r in micro.rows]),
        weight_M,
        mask_M,
        clip_ratio_low=s.clip_ratio_low,
        clip_ratio_high=s.clip_ratio_high,
        clip_ratio_c=s.clip_ratio_c,
    )
    loss = out.loss
    if reference is not None:
        ref_M = reference.logp(micro, s.rollout.temperature)
        kl = kl_penalty(scored.logp_M, ref_M, base_M, mask_M, kl_estimator=s.kl_estimator)
        loss = loss + s.kl_coef * kl.loss
        report.kl_total += float(kl.total)
    report.tokens += int(out.tokens)
    report.loss += float(loss.detach())
    report.clipped_low += int(out.clipped_low)
    report.clipped_high += int(out.clipped_high)
    report.clipped_c += int(out.clipped_c)
    report.overflowed += int(out.overflowed)
    report.entropy += float(scored.entropy_M.sum())
    return loss
