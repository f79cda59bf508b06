"""Answers with three values, and tables that every study's report has."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from brorl.stats.intervals import Interval
from brorl.stats.multiplicity import holm
from brorl.studies.runner.contract import BUDGETS, Budget
from brorl.studies.runner.results import Comparison, Results


def above(interval: Interval, bound: float) -> bool | None:
    """True where the whole interval lies above a bound, False where below, else None."""
    return True if interval.low > bound else False if interval.high < bound else None


def below(interval: Interval, bound: float) -> bool | None:
    """True where the whole interval lies below a bound, False where above, else None."""
    return True if interval.high < bound else False if interval.low > bound else None


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """False where one is, else None where one is, else True; None where there is none."""
    found = list(answers)
    if not found or False in found:
        return False if found else None
    return None if None in found else True


def in_every_seed(seen: Sequence[bool]) -> bool | None:
    """True where all seeds show it, False where none does, None where they disagree."""
    return True if all(seen) else None if any(seen) else False


def any_of(answers: Iterable[bool | None]) -> bool | None:
    """True where one is, else None where one is, else False; None where there is none."""
    negated = all_of(None if a is None else not a for a in answers)
    return None if negated is None else not negated


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def shown(interval: Interval, *, signed: bool = False) -> str:
    """E.g. 0.812 [0.790, 0.834]."""
    form = "+.3f" if signed else ".3f"
    return f"{interval.value:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def at_amount(budget: Budget, amount: float) -> str:
    """E.g. 40,000 generated samples; 12.5 CPU seconds, evaluation left out."""
    return (
        f"{amount:,.0f} {BUDGETS[budget]}" if amount >= 100 else f"{amount:.3g} {BUDGETS[budget]}"
    )


def matched(results: Results[Any]) -> dict[str, Any]:
    """Arms at equal amounts of every budget on record: {budget: {amount, levels, comparisons}}.

    The amount is the largest that every run of every arm reached; comparisons are with the first
    arm, p-values adjusted for their number by Holm's rule.
    """
    return {budget: _at_budget(results, budget) for budget in results.budgets()}


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Plain values."""
    return {
        "a": found.a,
        "b": found.b,
        "budget": found.budget,
        "amount": found.amount,
        "k": found.k,
        **interval_json(found.difference),
        "p": found.p_two_sided,
        "per_seed": list(found.per_seed),
        "standard_error": {
            "seeds": _finite(found.seeds_standard_error),
            "problems": _finite(found.problems_standard_error),
        },
    }


def interval_json(interval: Interval) -> dict[str, float]:
    """Plain values."""
    return {name: float(x) for name, x in interval._asdict().items()}


def _at_budget(results: Results[Any], budget: Budget) -> dict[str, Any]:
    amount = results.common(budget)
    control, *others = results.arms
    levels = {arm: results.level(arm, budget=budget, amount=amount) for arm in results.arms}
    found = [results.compare(control, arm, budget=budget, amount=amount) for arm in others]
    adjusted = holm([c.p_two_sided for c in found])
    comparisons: list[Mapping[str, Any]] = [
        comparison_json(c) | {"p_holm": float(p)} for c, p in zip(found, adjusted, strict=True)
    ]
    return {
        "name": BUDGETS[budget],
        "amount": amount,
        "levels": {arm: interval_json(interval) for arm, interval in levels.items()},
        "comparisons": comparisons,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
