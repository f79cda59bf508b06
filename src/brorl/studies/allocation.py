"""Many prompts with few rollouts, or few prompts with many?

Question    A step keeps 512 answers whatever it is made of. Is it better to spend the generated
            samples on many prompts with small N, or on few prompts with large N, where everything
            else of the update is equal?
Prediction  Small N wins: held-out pass@1 of the widest arm ends below that of N = 16, both at
            equal generated samples and at equal CPU seconds. A sample tells as much in a group of
            16 as in one of 512, but for the factor (N-1)/N, and few prompts a step make the step
            noisier.
Design      Varied: rollout.n, with prompts_per_step so that N times prompts is the same. Equal:
            warm start of each seed, problems, generated samples, kept samples a step and so the
            tokens of an update, mini-batches, learning rate and its rule, loss, optimizer. Not
            equal, and reported: steps and updates (the filter drops more at small N), kept
            samples, seconds.
Decided by  Holds where the interval of (widest minus N = 16) in held-out pass@1 lies below 0 both
            at equal generated samples and at equal CPU seconds. Refuted where one of them lies
            above 0. Else not decided. Differences at equal kept samples, update tokens and
            updates are told beside it and do not decide: there the arms differ in how much the
            filter left out.
Cost        24 minutes on two cores: 5 arms, 3 seeds, 100,000 generated samples a run.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from brorl.studies.runner.analysis import all_of, at_amount, below, comparison_json, shown
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
    check_divides,
)
from brorl.studies.runner.results import Comparison, Results

DECIDING: tuple[Budget, ...] = ("generated", "cpu_seconds")
TOLD: tuple[Budget, ...] = ("kept", "update_tokens", "updates")


class AllocationKnobs(Knobs):
    """Attributes: widths, the first is what the last is compared with; N·prompts of each step."""

    samples: Count = 100_000
    widths: Annotated[tuple[Annotated[int, Field(ge=2, le=65_536)], ...], Field(min_length=2)] = (
        16,
        8,
        64,
        256,
        512,
    )
    batch: Count = 512

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_divides(self.batch, self.widths)
        if len(set(self.widths)) < len(self.widths):
            raise ValueError(f"widths must differ, got {list(self.widths)}")
        return self


def arms(knobs: AllocationKnobs) -> list[Arm]:
    """One for each width; the first of them is the control."""
    return [
        Arm(
            f"n{n}",
            f"{knobs.batch // n} prompts with {n} rollouts each",
            {"rollout.n": n, "prompts_per_step": knobs.batch // n},
            factors={"n": n},
        )
        for n in knobs.widths
    ]


def judge(results: Results[AllocationKnobs]) -> Findings:
    """By the rule of the docstring."""
    widths = results.knobs.widths
    narrow, wide = f"n{widths[0]}", f"n{max(widths)}"
    decide = {b: results.compare(narrow, wide, budget=b) for b in DECIDING}
    told = {b: results.compare(narrow, wide, budget=b) for b in TOLD}
    holds = all_of(below(c.difference, 0.0) for c in decide.values())
    because = (
        f"N = {max(widths)} minus N = {widths[0]}: "
        + "; ".join(_says(c) for c in decide.values())
        + ". Beside it: "
        + "; ".join(_says(c) for c in told.values())
        + "."
    )
    figures = {str(b): comparison_json(c) for b, c in (decide | told).items()}
    return Findings(holds, because, [_steps(results)], [_chart(results)], figures)


def _says(found: Comparison) -> str:
    difference = shown(found.difference, signed=True)
    return f"{difference} at {at_amount(found.budget, found.amount)}"


def _steps(results: Results[AllocationKnobs]) -> Table:
    """What the same generated samples became."""
    rows = []
    for arm in results.arms:
        runs = results.of(arm)
        count = len(runs)
        rows.append(
            [
                results.factors[arm]["n"],
                sum(run.metrics[-1]["step"] for run in runs) / count,
                sum(run.totals["updates"] for run in runs) / count,
                sum(run.totals["kept"] / run.totals["generated"] for run in runs) / count,
                sum(run.mean("samples/kept_easy_share") or 0.0 for run in runs) / count,
                sum(run.mean("groups/solved_none") or 0.0 for run in runs) / count,
            ]
        )
    columns = ("N", "steps", "updates", "kept / generated", "kept from easy prompts", "all wrong")
    note = (
        "Means over seeds. Easy: groups at least 90 % right; a kept share that rises because such "
        "groups have one wrong answer in 512 is no progress."
    )
    return Table("What the samples became", columns, rows, note)


def _chart(results: Results[AllocationKnobs]) -> Chart:
    by_n = sorted(results.arms, key=lambda arm: float(results.factors[arm]["n"]))
    lines = []
    for budget in (*DECIDING, *TOLD):
        amount = results.common(budget)
        levels = [results.level(arm, budget=budget, amount=amount) for arm in by_n]
        lines.append(
            Line(
                at_amount(budget, amount),
                [float(results.factors[arm]["n"]) for arm in by_n],
                [x.value for x in levels],
            )
        )
    title = f"Held-out pass@1 with N times prompts = {results.knobs.batch}"
    return Chart(
        title, "N", "pass@1", lines, log_x=True, note="Each line at its own common amount."
    )


STUDY = Study(
    knobs=AllocationKnobs,
    arms=arms,
    judge=judge,
    minutes=24,
    base={"lr_warmup_updates": 0},  # arms make 6 to 300 updates: a warm-up would be most of some
    smoke={"study.widths": [4, 16], "study.batch": 32},
)
