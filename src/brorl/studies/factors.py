"""Which of width, prompts a step, rate rule, mini-batches and filter moves the score, and how far?

Question    The paper changes N, prompts a step, learning rate and the filter's yield at once. What
            does each of them do to held-out pass@1, alone and in pairs?
Prediction  Wide groups cost score at equal generated samples, whatever the other four are: the
            main effect of N lies below 0. The filter pays by what it leaves out of the update: its
            main effect lies above 0 at equal update tokens.
Design      Varied: rollout.n, prompts_per_step, lr_scaling (none, or sqrt of the batch in samples
            over 512), num_minibatches and dynamic_sampling.enable, two values each, in the 16 runs
            of the half fraction with I = ABCDE, of resolution V: every main effect and every pair
            is estimated apart from all others, if no three factors interact. Equal: warm start of
            each seed, problems, generated samples, loss, optimizer, base rate. An effect is the
            mean of the 8 arms with the high value minus the mean of the other 8, taken per seed
            and problem.
Decided by  Holds where the interval of the main effect of N at equal generated samples lies below
            0 and that of the filter at equal update tokens above 0. Refuted where one of them lies
            on the other side of 0. Else not decided. The filter at equal generated samples, all
            other effects and all pairs are told beside it, with p-values by Holm's rule.
Cost        20 minutes on two cores: 16 arms, 3 seeds, 50,000 generated samples a run.
"""

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from brorl.stats.multiplicity import holm
from brorl.stats.paired import PairedT
from brorl.studies.runner.analysis import above, all_of, at_amount, below, interval_json, shown
from brorl.studies.runner.contract import (
    BUDGETS,
    Arm,
    Budget,
    Chart,
    Count,
    Findings,
    Knobs,
    Line,
    Plain,
    Study,
    Table,
    check_grows,
)
from brorl.studies.runner.results import Results, over_seeds

Pair = Annotated[tuple[Count, ...], Field(min_length=2, max_length=2)]
N, PROMPTS, RATE, MINI, FILTER = "N", "prompts", "rate", "minibatches", "filter"
NAMES = (N, PROMPTS, RATE, MINI, FILTER)
DECIDING: dict[str, Budget] = {N: "generated", FILTER: "update_tokens"}


class FactorsKnobs(Knobs):
    """Attributes: low and high value of each factor; the batch in samples that lr is meant for."""

    samples: Count = 50_000
    evals: Count = 4
    widths: Pair = (16, 128)
    prompts: Pair = (8, 32)
    minibatches: Pair = (1, 4)
    base_samples: Count = 512

    @model_validator(mode="after")
    def _low_first(self) -> Self:
        for name in ("widths", "prompts", "minibatches"):
            check_grows(name, getattr(self, name))
        return self


class Effect(NamedTuple):
    """Of one factor, or of two together."""

    name: str
    test: PairedT


def signs() -> list[tuple[int, ...]]:
    """-1 or +1 of the five factors in each arm: the last is the product of the other four."""
    return [(*four, math.prod(four)) for four in product((-1, 1), repeat=4)]


def arms(knobs: FactorsKnobs) -> list[Arm]:
    """Half of the 32 combinations; the first has the low value of all but the filter."""
    return [_arm(knobs, row) for row in signs()]


def _arm(knobs: FactorsKnobs, row: tuple[int, ...]) -> Arm:
    n, prompts, mini = (
        pair[high > 0]
        for pair, high in zip(
            (knobs.widths, knobs.prompts, knobs.minibatches), (row[0], row[1], row[3]), strict=True
        )
    )
    root, filters = row[2] > 0, row[4] > 0
    rate = {"lr_scaling": "sqrt", "lr_base_samples": knobs.base_samples} if root else {}
    return Arm(
        f"n{n}-p{prompts}-{'sqrt' if root else 'held'}-m{mini}-{'filter' if filters else 'all'}",
        f"N = {n}, {prompts} prompts, rate {'by the root' if root else 'held'}, {mini} "
        f"mini-batches, {'filtered' if filters else 'not filtered'}",
        {
            "rollout.n": n,
            "prompts_per_step": prompts,
            "num_minibatches": mini,
            "dynamic_sampling.enable": filters,
            **rate,
        },
        factors=dict(zip(NAMES, row, strict=True)),
    )


def effects(results: Results[FactorsKnobs], budget: Budget) -> list[Effect]:
    """Main effects, then pairs, at the largest amount that every run spent.

    effect = 2/16 · sum over arms of sign · score, per seed and problem; of a pair the sign is the
    product of its two.
    """
    amount = results.common(budget)
    score_ASK = np.stack([results.scores_SK(a, budget=budget, amount=amount) for a in results.arms])
    found = []
    for names in _terms():
        sign_A = np.array(
            [math.prod(float(results.factors[a][n]) for n in names) for a in results.arms]
        )
        effect_SK = np.einsum("a,ask->sk", sign_A, score_ASK) / (len(results.arms) / 2)
        test, _, _ = over_seeds(effect_SK, level=results.knobs.level)
        found.append(Effect(" · ".join(names), test))
    return found


def _terms() -> Iterator[tuple[str, ...]]:
    yield from ((name,) for name in NAMES)
    yield from combinations(NAMES, 2)


def judge(results: Results[FactorsKnobs]) -> Findings:
    """By the rule of the docstring."""
    budgets: tuple[Budget, ...] = ("generated", "update_tokens", "updates", "cpu_seconds")
    table = {b: effects(results, b) for b in budgets if b in results.budgets()}
    found = {
        name: next(e for e in table[budget] if e.name == name) for name, budget in DECIDING.items()
    }
    beside = next(e for e in table["generated"] if e.name == FILTER)
    holds = all_of(
        [
            below(found[N].test.difference, 0.0),
            above(found[FILTER].test.difference, 0.0),
        ]
    )
    because = (
        f"N = {results.knobs.widths[1]} instead of {results.knobs.widths[0]} does "
        f"{shown(found[N].test.difference, signed=True)} at {_amount(results, 'generated')}; the "
        f"filter does {shown(found[FILTER].test.difference, signed=True)} at "
        f"{_amount(results, 'update_tokens')} and "
        f"{shown(beside.test.difference, signed=True)} at {_amount(results, 'generated')}."
    )
    return Findings(
        holds,
        because,
        [_table(results, budget, rows) for budget, rows in table.items()],
        [_chart(table)],
        {budget: {e.name: _json(e) for e in rows} for budget, rows in table.items()},
    )


def _amount(results: Results[FactorsKnobs], budget: Budget) -> str:
    return at_amount(budget, results.common(budget))


def _table(results: Results[FactorsKnobs], budget: Budget, rows: list[Effect]) -> Table:
    adjusted = holm([e.test.p_two_sided for e in rows])
    cells: list[list[Plain]] = [
        [e.name, shown(e.test.difference, signed=True), e.test.p_two_sided, float(p)]
        for e, p in zip(rows, adjusted, strict=True)
    ]
    k = results.knobs
    values = ", ".join(
        f"{name} {high} and {low}"
        for name, (low, high) in (("N", k.widths), (PROMPTS, k.prompts), (MINI, k.minibatches))
    )
    note = (
        f"High minus low: {values}, rate by the root of the batch over {k.base_samples} and held, "
        "filter on and off. A pair: half the difference of the first one's effect between the "
        "second's values."
    )
    return Table(
        f"Effects on held-out pass@1 at {_amount(results, budget)}",
        ("factor", "effect", "p", "p by Holm"),
        cells,
        note,
    )


def _chart(table: dict[Budget, list[Effect]]) -> Chart:
    lines = [
        Line(
            BUDGETS[budget],
            list(range(1, len(NAMES) + 1)),
            [e.test.difference.value for e in rows[: len(NAMES)]],
            [e.test.difference.low for e in rows[: len(NAMES)]],
            [e.test.difference.high for e in rows[: len(NAMES)]],
        )
        for budget, rows in table.items()
    ]
    order = ", ".join(f"{i}: {name}" for i, name in enumerate(NAMES, start=1))
    return Chart("Main effects at equal budgets", order, "effect on pass@1", lines)


def _json(effect: Effect) -> dict[str, Any]:
    return interval_json(effect.test.difference) | {"p": effect.test.p_two_sided}


STUDY = Study(
    knobs=FactorsKnobs,
    arms=arms,
    judge=judge,
    minutes=20,
    smoke={
        "study.samples": 128,
        "study.evals": 1,
        "study.widths": [4, 8],
        "study.prompts": [2, 4],
        "study.minibatches": [1, 2],
        "study.base_samples": 16,
    },
)
