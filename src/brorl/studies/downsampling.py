"""Search wide, update on a few: what do the cut rows, and prompts that are solved, cost or save?

Question    With 64 answers a prompt the update may see 16 of them, and prompts that were all right
            may be left out from then on. What does that do to the score at equal generated
            samples, and at equal seconds of updating? Does it matter which 16?
Prediction  Cut groups lose nothing that matters: trained on 16 of 64 by largest variance, held-out
            pass@1 ends less than 0.03 below training on all 64 at equal generated samples, and
            above it at equal seconds of updating.
Design      Varied: what the update sees of groups of 64. All; 16 by largest variance (PODS,
            arXiv:2504.13818: half right, half wrong as far as there are); 16 of which half are
            right and the rest go round the different wrong ones, plain and with weights that keep
            the expected gradient; 16 at random with such weights. Two more arms skip a prompt for
            good after 1 or 2 visits in a row in which all 64 were right (arXiv:2606.00135), the
            second of them with 16 by variance, as that paper does; and N = 16 is told beside, the
            width that samples no more than it trains on. Equal: warm start of each seed, problems,
            generated samples, prompts of a step (for N = 16 four times as many, so that a step
            keeps as many samples before a cut), mini-batches, base rate, loss; advantages come
            from whole groups in all arms.
Decided by  Holds where the interval of (16 by variance minus all 64) in held-out pass@1 lies above
            -0.03 at equal generated samples and above 0 at equal seconds of updating. Refuted where
            it lies below -0.03 at the first or below 0 at the second. Else not decided. Seconds
            are wall clock of the update alone, on a machine that does nothing else.
Cost        18 minutes on two cores: 8 arms, 3 seeds, 80,000 generated samples a run.
"""

from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from brorl.studies.runner.analysis import (
    above,
    all_of,
    at_amount,
    comparison_json,
    mean,
    shown,
)
from brorl.studies.runner.contract import (
    BUDGETS,
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
from brorl.studies.runner.results import Comparison, Results

ALL, VARIANCE = "all", "variance"
BOUNDS: dict[Budget, float] = {"generated": -0.03, "update_seconds": 0.0}


class DownsamplingKnobs(Knobs):
    """Attributes: N and prompts of a step; rows of a group that a cut leaves."""

    samples: Count = 80_000
    n: Annotated[int, Field(ge=4, le=65_536)] = 64
    prompts: Count = 16
    keep: Annotated[int, Field(ge=2, le=65_536)] = 16

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.n % self.keep or self.n == self.keep:
            raise ValueError(f"n={self.n} must be a multiple of keep={self.keep}, and more")
        return self


def arms(knobs: DownsamplingKnobs) -> list[Arm]:
    """All rows, four cuts, two ways to skip prompts, and the narrow width."""
    wide: dict[str, Any] = {"rollout.n": knobs.n, "prompts_per_step": knobs.prompts}
    cut = wide | {"rollout.keep_per_group": knobs.keep}
    variance = cut | {"rollout.keep_rule": "max_variance"}
    unbiased = {"advantage.weight": "unbiased"}
    skips = {"data.solved_weight": 0.0, "data.solved_share": 1.0}
    few = f"{knobs.keep} of {knobs.n}"
    narrow = {
        "rollout.n": knobs.keep,
        "prompts_per_step": knobs.prompts * knobs.n // knobs.keep,
    }
    return [
        Arm(ALL, f"all {knobs.n} answers", wide),
        Arm(VARIANCE, f"{few} by largest variance", variance),
        Arm("spread", f"{few}: half right, the rest different wrong ones", cut),
        Arm("spread-unbiased", f"{few} so, weighted", cut | unbiased),
        Arm(
            "random-unbiased",
            f"{few} at random, weighted",
            cut | {"rollout.keep_rule": "random"} | unbiased,
        ),
        Arm("skip-1", "all answers; a prompt leaves when all were right", wide | skips),
        Arm(
            "skip-2-variance",
            f"{few} by variance; a prompt leaves when all were right twice",
            variance | skips | {"data.solved_visits": 2},
        ),
        Arm("narrow", f"N = {knobs.keep}, all answers", narrow),
    ]


def judge(results: Results[DownsamplingKnobs]) -> Findings:
    """By the rule of the docstring."""
    found = {b: results.compare(ALL, VARIANCE, budget=b) for b in BOUNDS}
    holds = all_of(above(c.difference, BOUNDS[b]) for b, c in found.items())
    because = (
        f"{results.knobs.keep} of {results.knobs.n} by largest variance minus all: "
        + "; ".join(_says(c) for c in found.values())
        + "."
    )
    figures = {
        arm: {b: comparison_json(results.compare(ALL, arm, budget=b)) for b in BOUNDS}
        for arm in results.arms[1:]
    }
    return Findings(
        holds, because, [_against(results), _table(results)], [_chart(results)], figures
    )


def _says(found: Comparison) -> str:
    return f"{shown(found.difference, signed=True)} at {at_amount(found.budget, found.amount)}"


def _against(results: Results[DownsamplingKnobs]) -> Table:
    """Every arm against all rows, each pair at the largest amount that both spent."""
    rows = [
        [
            arm,
            *(shown(results.compare(ALL, arm, budget=b).difference, signed=True) for b in BOUNDS),
        ]
        for arm in results.arms[1:]
    ]
    columns = ("what the update sees", *(f"at equal {BUDGETS[b]}" for b in BOUNDS))
    note = "Held-out pass@1, at the largest amount that both arms spent."
    return Table(f"Minus all {results.knobs.n} answers", columns, rows, note)


def _table(results: Results[DownsamplingKnobs]) -> Table:
    rows = []
    for arm in results.arms:
        runs = results.of(arm)
        rows.append(
            [
                arm,
                shown(results.level(arm)),
                mean([run.per_thousand("time/update") for run in runs]),
                mean([run.per_thousand("time/generate") for run in runs]),
                mean([run.totals["kept"] / run.totals["generated"] for run in runs]),
                mean([run.totals["updates"] for run in runs]),
                mean([run.mean("groups/solved_all") for run in runs]),
                mean([run.mean("policy/grad_norm") for run in runs]),
            ]
        )
    columns = (
        "what the update sees",
        "pass@1 at equal samples",
        "s of update per 1,000 samples",
        "s of sampling per 1,000 samples",
        "kept / generated",
        "updates",
        "groups all right",
        "gradient norm",
    )
    return Table("What it cost and bought", columns, rows, "Means over seeds.")


def _chart(results: Results[DownsamplingKnobs]) -> Chart:
    """Mean curves against seconds of updating, as far as every seed of the arm went."""
    points = 20
    lines = []
    for arm in results.arms:
        end = results.common("update_seconds", [arm])
        x = np.linspace(0.0, end, points + 1).tolist()  # ends at `end` to the bit
        y = [results.scores_SK(arm, budget="update_seconds", amount=a).mean() for a in x]
        lines.append(Line(arm, x, [float(v) for v in y]))
    return Chart(
        "Held-out pass@1 against time of updating", BUDGETS["update_seconds"], "pass@1", lines
    )


STUDY = Study(
    knobs=DownsamplingKnobs,
    arms=arms,
    judge=judge,
    minutes=18,
    smoke={
        "study.samples": 192,
        "study.evals": 1,
        "study.n": 8,
        "study.keep": 4,
        "study.prompts": 4,
    },
)
