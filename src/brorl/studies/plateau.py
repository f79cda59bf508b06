"""Does a policy that N = 16 has saturated go on with N = 512, as the paper's Table 1 says?

Question    A policy trained with N = 16 until held-out progress stops goes on from that one
            checkpoint: with N = 16, or with N = 512 as in the paper's Table 1 (a quarter of the
            prompts a step, as many mini-batches, learning rate times the root of the batch
            ratio). Which gains, and on which tasks?
Prediction  Against the paper: at this size N = 512 ends below N = 16, at equal generated samples
            and at equal CPU seconds. Eight prompts a step are few, the raised rate amplifies their
            noise, and dynamic sampling at N = 16 already picks the prompts that are not solved.
Design      Varied: rollout.n 16 or 512, prompts a step 32 or 8, learning rate 1 or 2.83 times; a
            third arm has N = 512 with the rate held, so that width and rate are told apart.
            Equal: the checkpoint of each seed (weights; a fresh optimizer in every arm),
            problems, mini-batches, loss, generated samples. Two tasks at once: sums of two
            numbers and words spelled backward, so that a gain on one may cost the other.
Decided by  Holds where the start is a plateau and the interval of (N = 512 by the paper's rule
            minus N = 16) in held-out pass@1 lies below 0 both at equal generated samples and at
            equal CPU seconds. Refuted where the start is a plateau and one of them lies above 0.
            Else not decided. The start is a plateau where, over the last third of its samples,
            held-out pass@1 rose by less than 0.02 as a mean over seeds.
Cost        20 minutes on two cores: 3 arms, 3 seeds, 80,000 generated samples a run, after a start
            of 400,000 samples for each seed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brorl.record.metrics import read_metrics
from brorl.record.rundir import CONFIG
from brorl.stats.intervals import Interval
from brorl.studies.runner.analysis import (
    above,
    all_of,
    at_amount,
    below,
    comparison_json,
    interval_json,
    shown,
)
from brorl.studies.runner.contract import (
    Arm,
    Budget,
    Chart,
    Count,
    Findings,
    Knobs,
    Line,
    Study,
    Table,
)
from brorl.studies.runner.results import Comparison, Results, RunResult
from brorl.train.recipe import load_settings

DECIDING: tuple[Budget, ...] = ("generated", "cpu_seconds")
NARROW, PAPER, HELD = "narrow", "wide-sqrt", "wide"
SMALL_GAIN = 0.02  # of held-out pass@1 over the last third of the start: less is a plateau
TASKS = [
    {
        "name": "chain_sum",
        "config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
        "prompt": "{expression} =",
        "train_size": 128,
        "eval_size": 128,
        "warmstart_size": 2000,
        "seed": 1,
    },
    {
        "name": "spell_backward",
        "prompt": "rev {word}=",
        "train_size": 128,
        "eval_size": 128,
        "warmstart_size": 3000,
        "seed": 1,
    },
]


class PlateauKnobs(Knobs):
    """Attributes: narrow and wide N; prompts a step at N narrow; samples of the start."""

    samples: Count = 80_000
    evals: Count = 8
    narrow: Count = 16
    wide: Count = 512
    prompts: Count = 32
    wide_prompts: Count = 8  # a quarter, as in the paper's Table 1
    start_samples: Count = 400_000


def arms(knobs: PlateauKnobs) -> list[Arm]:
    """The narrow one is the control. All begin from the run that the narrow one saturated."""
    narrow = {"rollout.n": knobs.narrow, "prompts_per_step": knobs.prompts}
    wide = {"rollout.n": knobs.wide, "prompts_per_step": knobs.wide_prompts}
    root = {"lr_scaling": "sqrt", "lr_base_samples": knobs.narrow * knobs.prompts}
    start = {**narrow, "max_samples": knobs.start_samples}
    says = f"N = {knobs.wide}, {knobs.wide_prompts} prompts a step"
    return [
        Arm(NARROW, f"N = {knobs.narrow}, {knobs.prompts} prompts a step", narrow, start),
        Arm(PAPER, f"{says}, rate by the square root of the batch ratio", wide | root, start),
        Arm(HELD, f"{says}, rate held", wide, start),
    ]


def measure(run: Path, knobs: PlateauKnobs) -> dict[str, Any]:
    """The held-out curve of the start that this run began from."""
    start = load_settings(run / CONFIG, (), may_change=()).init.from_
    assert start is not None
    generated, curve = 0.0, []
    for row in read_metrics(Path(start)):
        generated += row.get("samples/generated") or 0
        if "eval/pass@1" in row:
            curve.append([generated, row["eval/pass@1"]])
    return {"start": curve}


def judge(results: Results[PlateauKnobs]) -> Findings:
    """By the rule of the docstring."""
    late = [late_gain(run.measured["start"]) for run in results.of(NARROW)]
    gain = float(np.mean(late))
    decide = {b: results.compare(NARROW, PAPER, budget=b) for b in DECIDING}
    held = {b: results.compare(NARROW, HELD, budget=b) for b in DECIDING}
    flat = gain < SMALL_GAIN
    because = (
        f"Over the last third of its samples the start gained {gain:+.3f}, "
        f"{'a plateau' if flat else 'so it was no plateau and nothing is decided'}. "
        f"N = {results.knobs.wide} by the paper's rule minus N = {results.knobs.narrow}: "
        f"{_say(decide)}; "
        f"with the rate held: {_say(held)}."
    )
    holds = all_of(below(c.difference, 0.0) for c in decide.values()) if flat else None
    rows = regimes(results)
    figures = {
        "gain_of_start": late,
        "paper": {str(b): comparison_json(c) for b, c in decide.items()},
        "held": {str(b): comparison_json(c) for b, c in held.items()},
        "regimes": rows,
    }
    return Findings(holds, because, [_regime_table(rows, results)], [_starts(results)], figures)


def late_gain(curve: Sequence[tuple[float, float]]) -> float:
    """Rise of the held-out score over the last third of the samples, linear between evaluations."""
    x, y = np.array(curve, dtype=np.float64).T
    return float(y[-1] - np.interp(x[-1] * 2 / 3, x, y))


def regimes(results: Results[PlateauKnobs]) -> list[dict[str, Any]]:
    """For each task and wide arm: what both did since the start, as the paper's Figure 4.

    At the generated samples that all arms reached; a change counts where its interval excludes 0.
    """
    found = []
    amount = results.common("generated")
    for task, only in results.by_task.items():
        if len(only) < 2:
            continue
        narrow = results.change(NARROW, budget="generated", amount=amount, only=only)
        for arm in (PAPER, HELD):
            wide = results.change(arm, budget="generated", amount=amount, only=only)
            over = results.compare(NARROW, arm, budget="generated", amount=amount, only=only)
            found.append(
                {
                    "task": task,
                    "arm": arm,
                    "problems": len(only),
                    "narrow": interval_json(narrow),
                    "wide": interval_json(wide),
                    "difference": interval_json(over.difference),
                    "regime": f"{NARROW} {_moved(narrow)}, {arm} {_moved(wide)}",
                }
            )
    return found


def _moved(change: Interval) -> str:
    return {True: "rises", False: "falls", None: "shows no change"}[above(change, 0.0)]


def _say(found: dict[Budget, Comparison]) -> str:
    return " and ".join(
        f"{shown(c.difference, signed=True)} at {at_amount(c.budget, c.amount)}"
        for c in found.values()
    )


def _regime_table(rows: Sequence[dict[str, Any]], results: Results[PlateauKnobs]) -> Table:
    cells = [
        [
            row["task"],
            row["arm"],
            *(shown(Interval(**row[x]), signed=True) for x in ("narrow", "wide", "difference")),
            row["regime"],
        ]
        for row in rows
    ]
    columns = ("task", "arm", "narrow since the start", "arm since the start",
               "arm minus narrow", "regime")  # fmt: skip
    note = f"At {at_amount('generated', results.common('generated'))}; the paper's Figure 4."
    return Table("Regimes by task", columns, cells, note)


def _starts(results: Results[PlateauKnobs]) -> Chart:
    def line(run: RunResult) -> Line:
        curve = run.measured["start"]
        return Line(f"seed {run.seed}", [x for x, _ in curve], [y for _, y in curve])

    lines = [line(run) for run in results.of(NARROW)]
    return Chart("How the starts saturated", "generated samples", "held-out pass@1", lines)


STUDY = Study(
    knobs=PlateauKnobs,
    arms=arms,
    judge=judge,
    measure=measure,
    minutes=20,
    base={
        "task": {"name": "mixture", "tasks": TASKS},
        "lr_warmup_updates": 0,
        "dynamic_sampling.max_gen_batches": 20,  # at a plateau few groups disagree
        "dynamic_sampling.max_empty_steps": 1000,
    },
    smoke={
        "study.narrow": 4,
        "study.wide": 16,
        "study.prompts": 8,
        "study.wide_prompts": 2,
        "study.start_samples": 256,
        "study.evals": 3,
        "task": {
            "name": "mixture",
            "tasks": [
                TASKS[0]
                | {"config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
                   "train_size": 12, "eval_size": 8, "warmstart_size": 30},
                {"name": "letter_counting", "config": {"min_words": 1, "max_words": 2},
                 "prompt": "{question}", "train_size": 12, "eval_size": 8,
                 "warmstart_size": 320},
            ],
        },
        "rollout.max_new_tokens": 4,
    },
)  # fmt: skip
