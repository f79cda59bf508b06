"""The numbers of a step, by design names, computed from the records of its answers."""

import resource
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import entropy

from brorl.algo.checks import quotient
from brorl.algo.filtering import OutcomeCounts
from brorl.algo.stopping import unbiased_pass_at_k
from brorl.rollout.engine import EngineReport, Stop
from brorl.stats.pass_at_k import pass_at_k_curve
from brorl.train.collect import Collected
from brorl.train.groups import Fate, Group, Sample
from brorl.train.prompts import SOLVED
from brorl.train.settings import TrainSettings
from brorl.train.step import StepResult
from brorl.train.update import UpdateReport
from brorl.verify.verdict import Kind

WALL_CLOCK = ("time/", "throughput/", "memory/")
"""Prefixes of metrics that depend on the clock or the machine; a resumed run may differ in them."""

Metrics = dict[str, float | int | None]


def step_metrics(step: int, result: StepResult, settings: TrainSettings, updates: int) -> Metrics:
    """One line of metrics.jsonl, evaluation and wall clock aside.

    `reward/mean` is over all that was sampled, so that filtering cannot flatter it.
    """
    collected = result.collected
    fresh = [x for g in collected.fresh for x in g.counting]
    everything = [x for g in collected.fresh for x in g.samples]
    trained = [x for g in collected.kept for x in g.samples if x.advantage is not None]
    metrics: Metrics = {"step": step, "updates": updates}
    metrics |= _group_metrics(collected.counts)
    metrics |= _sampling_metrics(step, collected, everything, trained, settings)
    metrics |= {
        "reward/mean": _mean([x.raw for x in fresh]),
        "reward/true_mean": _mean([x.verdict.score for x in fresh]),
        "reward/shaped_mean": _mean([x.shaped for x in fresh]),
        "response/length_mean": _mean([len(x.completion.tokens) for x in everything]),
        "response/truncated_frac": _mean([x.completion.stop is Stop.LENGTH for x in everything]),
    }
    kinds = Counter(x.verdict.kind for x in everything)
    metrics |= {f"verdict/{k}": quotient(kinds[k], len(everything)) for k in Kind}
    metrics |= _answer_metrics(collected.fresh)
    if settings.rollout.waves is None:
        metrics |= _pass_metrics(collected.fresh, settings.rollout.widest)
    else:
        metrics |= _adaptive_pass_metrics(collected, settings.rollout.stop_right)
    metrics |= _policy_metrics(result.report, settings)
    return metrics | result.width


def clock_metrics(result: StepResult, eval_s: float, other_s: float) -> Metrics:
    """Seconds by phase, rates, and memory: what a repeated run may differ in."""
    seconds = result.seconds | {"eval": eval_s, "other": other_s}
    samples = [x for g in result.collected.fresh for x in g.samples]
    tokens = sum(len(x.completion.tokens) for x in samples)
    kept = sum(x.fate is Fate.KEPT for g in result.collected.kept for x in g.samples)
    whole = sum(result.seconds.values())
    out: Metrics = {f"time/{phase}": round(value, 4) for phase, value in seconds.items()}
    out["throughput/generated_samples_per_s"] = quotient(len(samples), seconds["generate"])
    out["throughput/kept_samples_per_s"] = quotient(kept, whole)
    out["throughput/tokens_per_s"] = quotient(tokens, seconds["generate"])
    if result.backlog is not None:
        out["throughput/grader_queue_max"] = result.backlog.most
        out["throughput/grader_queue_end"] = result.backlog.at_end
    out["memory/peak_rss"] = peak_rss()
    if torch.cuda.is_available():
        out["memory/device_peak"] = torch.cuda.max_memory_allocated()
    return out


def engine_metrics(report: EngineReport) -> Metrics:
    """What the engine measured since the last line: its cache, and how well it follows updates."""
    out: Metrics = {"memory/kv_cache": report.kv_cache}
    if report.fingerprint is not None:
        out["mismatch/fingerprint"] = report.fingerprint
    return out


def peak_rss() -> int:
    """Largest resident memory of this process so far, bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _group_metrics(counts: OutcomeCounts) -> Metrics:
    return {
        "groups/sampled": counts.groups,
        "groups/solved_none": quotient(counts.solved_none, counts.groups),
        "groups/solved_some": quotient(counts.solved_some, counts.groups),
        "groups/solved_all": quotient(counts.solved_all, counts.groups),
    }


def _sampling_metrics(
    step: int,
    collected: Collected,
    everything: Sequence[Sample],
    trained: Sequence[Sample],
    settings: TrainSettings,
) -> Metrics:
    easy = [g for g in collected.kept if g.right_share >= SOLVED]
    n_easy = sum(x.advantage is not None for g in easy for x in g.samples)
    out: Metrics = {
        "groups/kept": len(collected.kept),
        "samples/generated": len(everything),
        "samples/kept": len(trained),
        "samples/kept_tokens": sum(len(x.completion.tokens) for x in trained),
        "samples/stale": sum(len(g.samples) for g in collected.kept if g.born != step),
        "samples/kept_easy_share": quotient(n_easy, len(trained)),
        "dynamic_sampling/pass_rate": quotient(collected.found, collected.counts.groups),
        "dynamic_sampling/gen_batches": collected.rounds,
    }
    if settings.rollout.waves is not None:
        for total in settings.rollout.totals[1:]:
            out[f"groups/escalated_{total}"] = collected.escalated.get(total, 0)
        widest = collected.totals[-1]
        out["groups/widest"] = widest
        out["groups/unsolved_at_max"] = sum(
            len(g.samples) == widest and g.n_right == 0 for g in collected.fresh
        )
    return out


def _answer_metrics(groups: Sequence[Group]) -> Metrics:
    """Means over groups: distinct answers, the commonest one's share, entropy in nats."""
    distinct, top, spread = [], [], []
    for group in groups:
        counts = np.array(list(Counter(x.answer for x in group.counting).values()))
        if counts.size:
            distinct.append(float(counts.size))
            top.append(float(counts.max() / counts.sum()))
            spread.append(float(entropy(counts)))
    return {
        "group/distinct_answers": _mean(distinct),
        "group/top_answer_share": _mean(top),
        "group/answer_entropy": _mean(spread),
    }


def _pass_metrics(groups: Sequence[Group], widest: int) -> Metrics:
    """pass@k over training groups that are whole: a group with failed gradings is left out."""
    whole = [g for g in groups if len(g.counting) == widest]
    if not whole:
        return {}
    ks = _ks(widest)
    curve = pass_at_k_curve([g.n_right for g in whole], [widest] * len(whole), ks)
    return {f"pass@k/{k}": float(v) for k, v in zip(ks, curve, strict=True)}


def _adaptive_pass_metrics(collected: Collected, stop_right: int) -> Metrics:
    """The same from groups that stop on success, corrected for the stopping rule."""
    whole = [g for g in collected.fresh if g.samples and len(g.counting) == len(g.samples)]
    if not whole:
        return {}
    right = torch.tensor([g.n_right for g in whole])
    size = torch.tensor([len(g.samples) for g in whole])
    before = torch.tensor([g.before(collected.totals) for g in whole])
    widest = collected.totals[-1]
    out: Metrics = {}
    for k in _ks(widest):
        values = unbiased_pass_at_k(right, size, before, k=k, stop_right=stop_right)
        out[f"pass@k/{k}"] = float(values.mean())
    return out


def _ks(widest: int) -> list[int]:
    """1, 2, 4 ... and the width itself."""
    return sorted({2**i for i in range(widest.bit_length())} | {widest})


def _policy_metrics(report: UpdateReport, settings: TrainSettings) -> Metrics:
    """Of the update; absent (not NaN) where there was none."""
    if report.updates == 0:
        return {"policy/updates": 0}
    tokens = report.tokens
    out: Metrics = {
        "policy/updates": report.updates,
        "policy/loss": report.loss / report.updates,
        "policy/entropy": quotient(report.entropy, tokens),
        "policy/clipped_frac_low": quotient(report.clipped_low, tokens),
        "policy/clipped_frac_high": quotient(report.clipped_high, tokens),
        "policy/ratio_overflows": report.overflowed,
        "policy/grad_norm": _mean(report.grad_norms),
        "policy/lr": report.lr,
    }
    if settings.clip_ratio_c is not None:
        out["policy/clipped_frac_c"] = quotient(report.clipped_c, tokens)
    if settings.kl_coef > 0:
        out["policy/kl_ref"] = quotient(report.kl_total, tokens)
    found = report.mismatch
    if found is not None:
        out |= {
            "mismatch/kl": found.kl,
            "mismatch/k3": found.k3,
            "mismatch/ratio_mean": found.ratio_mean,
            "mismatch/ratio_max": found.ratio_max,
            "mismatch/ess": found.ess,
        }
    if report.mismatch_kept is not None:  # figures after the removal alone look healthy
        out["mismatch/kept_k3"] = report.mismatch_kept.k3
        out["mismatch/kept_ratio_mean"] = report.mismatch_kept.ratio_mean
    if report.masked_share is not None:
        out["mismatch/masked_frac"] = report.masked_share
    return out


def _mean(values: Sequence[float]) -> float | None:
    """None, not NaN, where there is nothing to average."""
    return float(np.mean(values)) if len(values) else None


def without_clock(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What a resumed run must repeat bit for bit."""
    return {k: v for k, v in metrics.items() if not k.startswith(WALL_CLOCK)}
