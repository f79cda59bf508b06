"""What does the width N itself cost, and what does it buy?

Question    With everything else held, how do held-out score, seconds, memory, tokens a second and
            the pass rate of dynamic sampling change as N goes from 16 to 1024: once with the
            prompts of a step fixed, once with N times prompts fixed?
Prediction  The pass rate of dynamic sampling rises with N, and at equal generated samples the
            widest arm ends below N = 16 in both series: width alone adds no signal a sample, it
            spends the samples on fewer prompts and fewer updates.
Design      Varied: rollout.n, and prompts_per_step with it in one series. Equal: warm start of
            each seed, problems, generated samples, mini-batches a step, loss, optimizer, and the
            learning rate, which is held (lr_scaling none). Not equal, and reported: updates, kept
            samples, tokens, seconds. The tiny policy on spell_backward unless the user brings
            another.
Decided by  Holds where, for both series, the interval of (widest minus N = 16) in held-out pass@1
            at equal generated samples lies below 0 and the widest arm's pass rate is the higher
            one in every seed. Refuted where one of the intervals lies above 0 or a seed's pass
            rate falls. Else not decided.
Cost        25 minutes on two cores: 7 arms, 3 seeds, 80,000 generated samples a run.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from brorl.record.rollouts import rollout_steps
from brorl.record.rundir import CONFIG
from brorl.stats.intervals import Interval
from brorl.studies.runner.analysis import (
    all_of,
    at_amount,
    below,
    comparison_json,
    interval_json,
    mean,
    shown,
)
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
    check_divides,
    check_grows,
)
from brorl.studies.runner.results import Results
from brorl.train.recipe import load_settings

WHOLE_RUN = 1_000_000  # steps: the advisor's window
Width = Annotated[int, Field(ge=2, le=65_536)]


class WidthKnobs(Knobs):
    """Attributes: widths, ascending; prompts of a step in one series, N·prompts in the other."""

    samples: Count = 80_000
    widths: Annotated[tuple[Width, ...], Field(min_length=2)] = (16, 64, 256, 1024)
    prompts: Count = 16
    batch: Count = 1024

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_grows("widths", self.widths)
        check_divides(self.batch, self.widths)
        return self


def series(knobs: WidthKnobs) -> dict[str, list[tuple[int, int]]]:
    """(N, prompts a step) of each series."""
    return {
        f"{knobs.prompts} prompts a step": [(n, knobs.prompts) for n in knobs.widths],
        f"N times prompts = {knobs.batch}": [(n, knobs.batch // n) for n in knobs.widths],
    }


def name(n: int, prompts: int) -> str:
    """Of an arm."""
    return f"n{n}-p{prompts}"


def arms(knobs: WidthKnobs) -> list[Arm]:
    """Every (N, prompts) of both series once; those of the smallest N first."""
    pairs = sorted({pair for some in series(knobs).values() for pair in some})
    return [
        Arm(
            name(n, p),
            f"N = {n}, {p} prompts a step",
            {"rollout.n": n, "prompts_per_step": p},
            factors={"n": n, "prompts": p},
        )
        for n, p in pairs
    ]


def measure(run: Path, knobs: WidthKnobs) -> dict[str, Any]:
    """What the advisor predicts for every width from the records of a narrowest run."""
    from brorl.train.advise import advise

    settings = load_settings(run / CONFIG, (), may_change=())
    narrowest = settings.rollout.n, settings.prompts_per_step
    if narrowest != (knobs.widths[0], knobs.prompts) or not rollout_steps(run):
        return {}  # another arm, or one that a budget ended before its first step
    found = advise([run], settings, widths=knobs.widths, window=WHOLE_RUN)
    return {
        "advice": {
            str(row.totals[0]): {
                "groups kept": interval_json(row.pass_rate),
                "kept samples / s": interval_json(row.kept_per_s),
                "seconds a step": interval_json(row.seconds),
            }
            for row in found.at
        },
        "enough": found.enough,
    }


def judge(results: Results[WidthKnobs]) -> Findings:
    """By the rule of the docstring."""
    answers, told, figures, charts = [], [], {}, []
    for title, pairs in series(results.knobs).items():
        narrow, wide = name(*pairs[0]), name(*pairs[-1])
        found = results.compare(narrow, wide)
        rises = all(
            b > a
            for a, b in zip(_pass_rates(results, narrow), _pass_rates(results, wide), strict=True)
        )
        answers += [below(found.difference, 0.0), rises]
        difference = shown(found.difference, signed=True)
        told.append(
            f"{title}: N = {pairs[-1][0]} minus N = {pairs[0][0]} is {difference} at "
            f"{at_amount(found.budget, found.amount)}, its pass rate is "
            f"{'' if rises else 'not '}the higher one in every seed"
        )
        figures[title] = comparison_json(found) | {"pass_rate_rises": rises}
    charts = [_scores(results), *(_by_width(results, *what) for what in _MEASURED)]
    tables = [_table(results), *_advice(results)]
    return Findings(all_of(answers), "; ".join(told) + ".", tables, charts, figures)


_MEASURED = (
    ("Dynamic-sampling pass rate", "groups kept", "dynamic_sampling/pass_rate"),
    ("Kept samples a second", "samples / s", "throughput/kept_samples_per_s"),
)


def _pass_rates(results: Results[WidthKnobs], arm: str) -> list[float]:
    """Of each seed: mean over steps."""
    return [run.mean("dynamic_sampling/pass_rate") or 0.0 for run in results.of(arm)]


def _table(results: Results[WidthKnobs]) -> Table:
    rows = []
    for arm in results.arms:
        runs = results.of(arm)
        rows.append(
            [
                results.factors[arm]["n"],
                results.factors[arm]["prompts"],
                shown(results.level(arm)),
                mean([run.mean("dynamic_sampling/pass_rate") for run in runs]),
                mean([run.per_thousand("time/generate") for run in runs]),
                mean([run.per_thousand("time/update") for run in runs]),
                mean([run.mean("throughput/tokens_per_s") for run in runs]),
                mean([run.mean("throughput/kept_samples_per_s") for run in runs]),
                mean([_mib(run.largest("memory/kv_cache")) for run in runs]),
                mean([_mib(run.largest("memory/peak_rss")) for run in runs]),
                mean([run.totals["updates"] for run in runs]),
            ]
        )
    columns = (
        "N",
        "prompts a step",
        "pass@1 at equal samples",
        "groups kept",
        "s of sampling per 1,000 samples",
        "s of update per 1,000 samples",
        "tokens / s",
        "kept samples / s",
        "KV cache, MiB",
        "peak memory, MiB",
        "updates",
    )
    note = "Means over seeds. Peak memory is of the whole process, libraries included."
    return Table("What each width cost and bought", columns, rows, note)


def _advice(results: Results[WidthKnobs]) -> list[Table]:
    """The advisor's predictions from the narrowest runs, beside what the wider ones measured."""
    knobs = results.knobs
    advised = [
        run.measured.get("advice") for run in results.of(name(knobs.widths[0], knobs.prompts))
    ]
    if not all(advised):
        return []
    rows = []
    for n in knobs.widths:
        runs = results.of(name(n, knobs.prompts))
        steps = [max(1, run.metrics[-1]["step"]) for run in runs]
        seconds = [run.totals["seconds"] / s for run, s in zip(runs, steps, strict=True)]
        measured = {
            "groups kept": mean([run.mean("dynamic_sampling/pass_rate") for run in runs]),
            "kept samples / s": mean([run.mean("throughput/kept_samples_per_s") for run in runs]),
            "seconds a step": mean(seconds),
        }
        row: list[Plain] = [n]
        for what, value in measured.items():
            said = [a[str(n)][what] for a in advised if a is not None]
            ends = (mean([x[e] for x in said]) or 0.0 for e in ("value", "low", "high"))
            row += [shown(Interval(*ends)), value]
        rows.append(row)
    columns = ["N", *(f"{what}, {how}" for what in measured for how in ("predicted", "measured"))]
    note = (
        f"Predicted by `brorl plan --from` the runs with N = {knobs.widths[0]} and "
        f"{knobs.prompts} prompts a step, from all of their steps; means over seeds. The policy "
        "moves at another pace in each arm, which no prediction from one of them can know."
    )
    return [Table("The advisor's predictions", columns, rows, note)]


def _mib(value: float | None) -> float | None:
    return None if value is None else value / 2**20


def _scores(results: Results[WidthKnobs]) -> Chart:
    lines = []
    for title, pairs in series(results.knobs).items():
        levels = [results.level(name(*pair)) for pair in pairs]
        lines.append(
            Line(
                title,
                [n for n, _ in pairs],
                [x.value for x in levels],
                [x.low for x in levels],
                [x.high for x in levels],
            )
        )
    amount = results.common(results.knobs.match)
    title = f"Held-out pass@1 by width at {at_amount(results.knobs.match, amount)}"
    return Chart(title, "N", "pass@1", lines, log_x=True)


def _by_width(results: Results[WidthKnobs], title: str, unit: str, metric: str) -> Chart:
    lines = []
    for told, pairs in series(results.knobs).items():
        values = [[run.mean(metric) or 0.0 for run in results.of(name(*p))] for p in pairs]
        lines.append(
            Line(
                told,
                [n for n, _ in pairs],
                [sum(v) / len(v) for v in values],
                [min(v) for v in values],
                [max(v) for v in values],
            )
        )
    return Chart(title, "N", unit, lines, log_x=True, note="Band: smallest to largest seed.")


STUDY = Study(
    knobs=WidthKnobs,
    arms=arms,
    judge=judge,
    measure=measure,
    minutes=25,
    base={"lr_warmup_updates": 0},  # arms make 6 to 300 updates: a warm-up would be most of some
    smoke={"study.widths": [4, 16], "study.prompts": 4, "study.batch": 32},
)
