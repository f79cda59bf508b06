"""Made-up results for tests of judges: scores and metrics as wanted, no run behind them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brorl.studies.runner.contract import BUDGETS
from brorl.studies.runner.results import Results, RunResult, gather
from brorl.studies.runner.spec import load_study

PROBLEMS, SAMPLES = 40, 20


def toy_run(
    arm: str,
    seed: int,
    scores: Sequence[float],
    *,
    spent: Mapping[str, float] | None = None,
    metrics: Mapping[str, float] | None = None,
    measured: Mapping[str, Any] | None = None,
    tasks: Sequence[str] = ("toy",),
) -> RunResult:
    """A run evaluated at equal distances, all problems about alike.

    Args:
        arm, seed: which.
        scores: mean held-out score of each evaluation, the first before training; at least two.
        spent: budget to its total; a missing one is 1,000.
        metrics: of its single step.
        measured: as `measure` would return it.
        tasks: of the problems, in turn.
    """
    whole = {b: float((spent or {}).get(b, 1000.0)) for b in BUDGETS}
    share = np.linspace(0, 1, len(scores))
    base = np.outer(scores, np.full(PROBLEMS, SAMPLES)) + np.tile([-0.4, 0.4], PROBLEMS // 2)
    right = np.clip(np.round(base), 0, SAMPLES).astype(np.int64)
    rows: list[dict[str, Any]] = [{"step": 0}, {"step": 1, **(metrics or {})}]
    return RunResult(
        arm,
        seed,
        Path(f"{arm}-s{seed}"),
        "max_samples",
        {b: share * total for b, total in whole.items()},
        whole,
        tuple(f"p{i}" for i in range(PROBLEMS)),
        tuple(tasks[i % len(tasks)] for i in range(PROBLEMS)),
        right,
        np.full(right.shape, SAMPLES),
        rows,
        measured or {},
    )


def toy_results(study: str, runs: Sequence[RunResult], **knobs: Any) -> Results[Any]:
    """Results of a study's arms from made-up runs; knobs as `study.NAME`."""
    found = load_study(study)
    made = found.knobs(**knobs)
    return gather(made, found.arms(made), {(r.arm, r.seed): r for r in runs})
