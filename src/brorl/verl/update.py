"""From rows with advantages to verl's actor workers: old log-probs, corrections, updates.

Each mini-batch is one call of verl's update, with its own denominator and rate. The rows stay in
verl's queue; what our code adds to a row is written to its key.

Axes:  R rows · T response tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor

from brorl.algo.aggregation import loss_denominator
from brorl.algo.importance import importance_weights, mismatch
from brorl.train.batch import Row
from brorl.train.settings import TrainSettings
from brorl.train.update import Correction, UpdateReport
from brorl.verl.engine import TRAIN, Graded


@dataclass
class Batch:
    """Rows of one update, and the same rows with verl's padding as it calls them."""

    rows: list[Row]
    meta: Any  # KVBatchMeta


class Metrics(NamedTuple):
    """What one update of verl's workers reports, of the whole mini-batch."""

    loss: float
    grad_norm: float
    clipped: dict[str, float]  # shares of the tokens
    entropy: float | None
    kl: float | None


def keys_of(rows: Sequence[Row]) -> list[str]:
    """Where the rows lie in verl's queue."""
    return [cast(Graded, row.sample.completion).key for row in rows]


def tag_of(row: Row, step: int) -> dict[str, Any]:
    """What verl's balancing and padding read of a row."""
    prompt, response = len(row.prompt), row.length
    return {
        "status": "success",
        "prompt_len": prompt,
        "response_len": response,
        "seq_len": prompt + response,
        "global_steps": step,
        "min_global_steps": step - 1,
        "max_global_steps": step - 1,
    }


def take_old_logprobs(batches: Sequence[Batch]) -> None:
    """Read what verl's workers scored into the rows."""
    for batch in batches:
        data = tq.kv_batch_get(
            keys=keys_of(batch.rows), partition_id=TRAIN, select_fields=["old_log_probs"]
        )
        for row, values in zip(batch.rows, data["old_log_probs"], strict=True):
            row.old_logp = values[: row.length].float().numpy()


def corrections(batches: Sequence[Batch], s: TrainSettings) -> Correction:
    """Engine against trainer over the whole step; sets `correction` of every row where it is on."""
    rows = [row for batch in batches for row in batch.rows]
    lengths = [row.length for row in rows]
    old_M = torch.from_numpy(np.concatenate([row.old_logp for row in rows]))
    engine_M = torch.from_numpy(np.concatenate([r.sample.completion.logprobs for r in rows]))
    owner_M = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(lengths))
    mask_M = torch.ones_like(old_M, dtype=torch.bool)
    found = mismatch(old_M, engine_M, mask_M)
    if s.tis.type == "none":
        return Correction(found, found, 0.0)
    weights = importance_weights(
        old_M, engine_M, mask_M, owner_M, tis_type=s.tis.type, cap=s.tis.cap, min=s.tis.min
    )
    for row, weight in zip(rows, weights.weight.split(lengths), strict=True):
        row.correction = weight.numpy()
    return Correction(found, mismatch(old_M, engine_M, weights.kept), weights.masked / len(old_M))


def write_update(batch: Batch, s: TrainSettings, scale: float) -> None:
    """Put advantages and weights beside the rows in verl's queue; zeros beside its padding.

    Args:
        batch: of one update.
        s: settings.
        scale: what each weight is multiplied by: verl's denominator over ours.
    """
    own = dict(zip(keys_of(batch.rows), batch.rows, strict=True))
    advantages, weights = [], []
    for key in batch.meta.keys:
        row = own.get(key)
        length = row.length if row else 1
        value = (row.sample.advantage or 0.0) if row else 0.0
        advantages.append(torch.full((length,), value))
        weight = torch.full((length,), row.sample.weight * scale if row else 1.0)
        if row is not None and row.correction is not None:
            weight = weight * torch.from_numpy(row.correction)
        weights.append(weight)
    fields = TensorDict(
        {"advantages": _ragged(advantages), "rollout_is_weights": _ragged(weights)},
        batch_size=len(advantages),
    )
    put = tq.kv_batch_put(keys=list(batch.meta.keys), partition_id=TRAIN, fields=fields)
    batch.meta.fields = put.fields  # what verl's workers fetch


def denominator_scale(
    rows: Sequence[Row], n_batches: int, whole_lengths: Sequence[int], s: TrainSettings
) -> float:
    """verl's denominator over ours: 1, but for unbiased cut weights.

    verl divides by the mini-batch's own tokens or rows. With advantage.weight=unbiased the rows
    stand for whole groups, and the loss is divided by their share of those.
    """
    if s.advantage.weight != "unbiased":
        return 1.0
    own = torch.tensor([row.length for row in rows])
    whole = torch.tensor(list(whole_lengths))
    mode = s.loss_agg_mode
    verl_s = loss_denominator(own, loss_agg_mode=mode)
    return verl_s / (loss_denominator(whole, loss_agg_mode=mode) / n_batches)


def read_metrics(found: dict[str, Any]) -> Metrics:
    """The figures of one update from the metrics that verl's workers return."""
    values = {k: _single(v) for k, v in found.items() if not k.startswith("perf/")}
    tokens = values.get("brorl/tokens") or 1.0
    shares = ("clipped_low", "clipped_high", "clipped_c")
    clipped = {name: values[f"brorl/{name}"] / tokens for name in shares}
    clipped["overflowed"] = values["brorl/overflowed"]
    return Metrics(
        loss=values["loss"],
        grad_norm=values["grad_norm"],
        clipped=clipped,
        entropy=values.get("actor/entropy_loss"),
        kl=values.get("kl_loss"),
    )


def add_to(report: UpdateReport, found: Metrics, tokens: int, lr: float) -> None:
    """Book one update: sums over tokens, as the embedded trainer keeps them."""
    report.updates += 1
    report.tokens += tokens
    report.loss += found.loss
    report.grad_norms.append(found.grad_norm)
    report.lr = lr
    report.clipped_low += round(found.clipped["clipped_low"] * tokens)
    report.clipped_high += round(found.clipped["clipped_high"] * tokens)
    report.clipped_c += round(found.clipped["clipped_c"] * tokens)
    report.overflowed += round(found.clipped["overflowed"])
    report.entropy += (found.entropy or 0.0) * tokens
    report.kl_total += (found.kl or 0.0) * tokens


def _single(value: Any) -> float:
    """A metric of one update: verl keeps lists and objects that reduce themselves."""
    if hasattr(value, "aggregate"):
        return float(value.aggregate())
    return float(np.mean([_single(v) for v in value])) if isinstance(value, list) else float(value)


def _ragged(parts: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)
