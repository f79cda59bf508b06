"""Does a wider group make more prompts count, and does a wider batch sample faster?

Question    The paper's Table 2 reports that going from N = 16 to N = 512 raises the share of
            prompts that dynamic sampling keeps from 41 to 62 percent and nearly doubles the
            samples a second. How much of the first is arithmetic, and how much of the second is
            there on one machine?
Prediction  On a fixed policy the share kept rises with N and is the mean over prompts of
            1 - p^N - (1-p)^N with p from other samples: the rise says nothing about learning.
            Samples a second rise with N, since the prompt is read once a group.
Design      Varied: N, on two policies of each seed: the warm start, and the same policy after
            training with N = 16. Equal: the policy while it is measured (nothing is trained in
            between), prompts, sampling settings, the order of prompts, memory budget. p of a
            prompt is never used itself: with c of M right, M at least 1,024, C(M-c,N)/C(M,N) and
            C(c,N)/C(M,N) are unbiased for (1-p)^N and p^N.
Decided by  Holds where, on both policies, the measured share at the largest N is above that at the
            smallest in every seed, the interval of (measured - predicted) contains 0 at every N,
            and samples a second at the largest N are above those at the smallest in every seed.
            Refuted where a share falls or samples a second fall in every seed, or where an interval
            excludes 0 by more than 0.02. Else not decided.
Cost        12 minutes on two cores: 2 arms, 3 seeds, 60,000 generated samples a run.
"""

import time
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from brorl.stats.intervals import Interval
from brorl.stats.pass_at_k import pass_at_k
from brorl.studies.runner.analysis import all_of, in_every_seed, interval_json, mean, shown
from brorl.studies.runner.contract import (
    Arm,
    Chart,
    Count,
    Findings,
    Knobs,
    Line,
    Plain,
    Study,
    Table,
    check_grows,
    measured_policies,
)
from brorl.studies.runner.results import Results, over_seeds

TOLERANCE = 0.02
"""Of the share kept: what the rule calls a real disagreement."""


class PassRateKnobs(Knobs):
    """Attributes: widths, ascending; independent samples a prompt; prompts measured."""

    samples: Count = 60_000  # of the training with N = 16
    widths: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)] = (
        16,
        64,
        256,
        512,
    )
    independent: Annotated[int, Field(ge=4)] = 1024
    prompts: Annotated[int, Field(ge=2)] = 96

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_grows("widths", self.widths)
        if self.independent < self.widths[-1]:
            raise ValueError(
                f"independent={self.independent} must be at least the largest width "
                f"{self.widths[-1]}: the estimate of p^N needs N samples"
            )
        return self


def arms(knobs: PassRateKnobs) -> list[Arm]:
    """Two policies, both only measured."""
    return measured_policies(knobs.samples)


def predicted_K(right_K: NDArray[Any], samples_K: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Unbiased 1 - p^n - (1-p)^n of each prompt, from its own samples; float64 [K].

    E[C(M-c, n)/C(M, n)] = (1-p)^n: among all n-subsets of M independent samples, those without a
    right one. The same for c and p^n. Needs n <= M.
    """
    some_right = pass_at_k(right_K, samples_K, n)
    some_wrong = pass_at_k(samples_K - right_K, samples_K, n)
    return np.asarray(some_right + some_wrong - 1.0, dtype=np.float64)


def measure(run: Path, knobs: PassRateKnobs) -> dict[str, Any]:
    """Counts of each prompt for the independent samples and for a group of every width."""
    from brorl.studies.runner.measure import opened, sampled

    with opened(run) as at:
        problems = at.data.train[: knobs.prompts]
        sampled(at, problems[:2], samples=knobs.widths[0], purpose="to warm up")
        found = {}
        for n in (knobs.independent, *knobs.widths):
            purpose = "independent" if n == knobs.independent else f"group of {n}"
            began = time.perf_counter()
            results = sampled(at, problems, samples=n, purpose=purpose).problems
            seconds = time.perf_counter() - began
            found[purpose] = {
                "ids": [p.id for p in results],
                "right": [p.c for p in results],
                "samples": [p.n for p in results],
                "samples_per_s": sum(p.n for p in results) / seconds,
            }
        return found


def judge(results: Results[PassRateKnobs]) -> Findings:
    """By the rule of the docstring."""
    knobs, answers, told, rows = results.knobs, [], [], []
    figures: dict[str, Any] = {}
    for arm in results.arms:
        runs = [run.measured for run in results.of(arm)]
        at = {n: _share(runs, n, knobs.level) for n in knobs.widths}
        speed = [[m[f"group of {n}"]["samples_per_s"] for n in knobs.widths] for m in runs]
        low, high = at[knobs.widths[0]], at[knobs.widths[-1]]
        rises = [b > a for a, b in zip(low[1], high[1], strict=True)]
        faster = [s[-1] > s[0] for s in speed]
        answers += [
            in_every_seed(rises),
            in_every_seed(faster),
            *(_agrees(gap) for _, _, gap in at.values()),
        ]
        told.append(
            f"{arm}: {shown(low[0])} of prompts kept at N = {knobs.widths[0]} and "
            f"{shown(high[0])} at N = {knobs.widths[-1]}, largest gap to the formula "
            f"{max((abs(gap.value) for _, _, gap in at.values())):.3f}, samples a second times "
            f"{mean([s[-1] / s[0] for s in speed]):.2f}"
        )
        for i, n in enumerate(knobs.widths):
            share, _, gap = at[n]
            row: list[Plain] = [arm, n, shown(share), shown(gap, signed=True)]
            rows.append([*row, mean([s[i] for s in speed])])
        figures[arm] = {str(n): {"kept": interval_json(s), "gap": interval_json(g)}
                        for n, (s, _, g) in at.items()}  # fmt: skip
    columns = ("policy", "N", "prompts kept", "measured - predicted", "samples / s")
    note = (
        "Kept: some answers right and some wrong. Samples a second include grading. Intervals over "
        "seeds and prompts."
    )
    table = Table("What dynamic sampling keeps of a fixed policy", columns, rows, note)
    holds = all_of(answers)
    return Findings(holds, "; ".join(told) + ".", [table], [_chart(results)], figures)


def _share(
    runs: list[dict[str, Any]] | list[Any], n: int, level: float
) -> tuple[Interval, list[float], Interval]:
    """Share of prompts kept, that of each seed, and measured minus predicted."""
    kept_SK, gap_SK = [], []
    for measured in runs:
        group, more = measured[f"group of {n}"], measured["independent"]
        ids = [i for i in group["ids"] if i in set(more["ids"])]
        g, m = _columns(group, ids), _columns(more, ids)
        kept = ((g[0] > 0) & (g[0] < g[1])).astype(np.float64)
        kept_SK.append(kept)
        gap_SK.append(kept - predicted_K(m[0], m[1], n))
    share, _, _ = over_seeds(np.stack(kept_SK), level=level)
    gap, _, _ = over_seeds(np.stack(gap_SK), level=level)
    value, low, high = share.difference
    inside = Interval(value, max(0.0, low), min(1.0, high))
    return inside, [float(k.mean()) for k in kept_SK], gap.difference


def _columns(counts: dict[str, Any], ids: list[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    place = {name: i for i, name in enumerate(counts["ids"])}
    rows = [place[i] for i in ids]
    return np.array(counts["right"])[rows], np.array(counts["samples"])[rows]


def _agrees(gap: Interval) -> bool | None:
    if gap.low <= 0 <= gap.high:
        return True
    return False if gap.low > TOLERANCE or gap.high < -TOLERANCE else None


def _chart(results: Results[PassRateKnobs]) -> Chart:
    lines = []
    for arm in results.arms:
        runs = [run.measured for run in results.of(arm)]
        widths = list(results.knobs.widths)
        found = [_share(runs, n, results.knobs.level) for n in widths]
        kept, gaps = [f[0] for f in found], [f[2] for f in found]
        lines.append(Line(f"{arm}, measured", widths, [k.value for k in kept],
                          [k.low for k in kept], [k.high for k in kept]))  # fmt: skip
        told = [k.value - g.value for k, g in zip(kept, gaps, strict=True)]
        lines.append(Line(f"{arm}, predicted", widths, told))
    return Chart("Share of prompts that dynamic sampling keeps", "N", "share", lines, log_x=True)


STUDY = Study(
    knobs=PassRateKnobs,
    arms=arms,
    judge=judge,
    minutes=12,
    smoke={"study.widths": [4, 16], "study.independent": 64, "study.prompts": 8,
           "study.samples": 256},
    measure=measure,
)  # fmt: skip
