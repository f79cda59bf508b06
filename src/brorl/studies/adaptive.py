"""Does adaptive width beat every fixed width, and drawing solved prompts less often?

Question    Groups that grow from 16 to 512 only while fewer than two answers are right: do they
            beat fixed widths, and the plain control of drawing solved prompts one time in eight,
            from a warm start and from a plateau, at equal generated samples, seconds and updates?
Prediction  From the plateau adaptive width with cut groups (keep 16) ends above every fixed width
            and above the control at equal generated samples, since only wide groups find what is
            right once in hundreds of times. From the warm start it is no better than the control:
            there it is allocation, not width, that gains.
Design      Varied: the width rule (fixed, waves, waves cut to 16 a group) or solved_weight.
            Equal: the checkpoint of each seed and task (from the plateau with its optimizer),
            problems, generated samples, mini-batches, loss, learning rate, prompts a step (a
            quarter of them at N = 512, as in the paper). Not equal, and reported: updates, kept
            samples, seconds. Three tasks, each from its warm start and from a run of N = 16 that
            follows it.
Decided by  Holds where, from the plateau and at equal generated samples, the interval of
            (adaptive keep 16 minus the other) over tasks and seeds lies above 0 for every fixed
            width and for the control. Refuted where one of them lies below 0. Else not decided.
            What is found from the warm start, at equal CPU seconds and updates, is told beside it.
Cost        25 minutes on two cores: 36 arms, 3 seeds, 20,000 generated samples a run, after a
            start of 60,000 samples for each task and seed.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from brorl.stats.intervals import Interval
from brorl.stats.multiplicity import holm
from brorl.stats.paired import PairedT, paired_t
from brorl.studies.runner.analysis import above, all_of, interval_json, shown
from brorl.studies.runner.contract import (
    BUDGETS,
    Arm,
    Budget,
    Count,
    Findings,
    Knobs,
    Plain,
    Study,
    Table,
)
from brorl.studies.runner.results import Results
from brorl.studies.runner.spec import SMOKE_TASK

TASKS: dict[str, dict[str, Any]] = {
    "spell_backward": {"task.name": "spell_backward", "task.prompt": "rev {word}="},
    "chain_sum": {
        "task.name": "chain_sum",
        "task.config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
        "task.prompt": "{expression} =",
    },
    "composition": {
        "task.name": "composition",
        "task.prompt": "{expression}=",
        "task.levels": [1],
        "task.eval_levels": [1],
        "task.eval_functions": "train",
        "rollout.max_new_tokens": 32,
    },
    "letter_counting": SMOKE_TASK,
    "own": {},  # the task or data of the recipe
}
PROMPTS, WIDE, WIDE_PROMPTS = 32, 512, 8
STARTS = ("warm", "plateau")
GO_ON = {"init.restore": ["weights", "optimizer"]}
BEST, CONTROL = "adaptive-keep16", "n16-solved"
SHOWN: tuple[Budget, ...] = ("generated", "cpu_seconds", "updates")


class AdaptiveKnobs(Knobs):
    """Attributes: tasks by name; fixed widths; totals of the waves; samples of the plateau run."""

    samples: Count = 20_000
    evals: Count = 3
    tasks: Annotated[
        tuple[Literal["spell_backward", "chain_sum", "composition", "letter_counting", "own"], ...],
        Field(min_length=1),
    ] = ("spell_backward", "chain_sum", "composition")
    fixed: Annotated[tuple[Count, ...], Field(min_length=1)] = (16, 64, 512)
    waves: Annotated[tuple[Count, ...], Field(min_length=2)] = (16, 64, 256, 512)
    keep: Count = 16
    start_samples: Count = 60_000


def rules(knobs: AdaptiveKnobs) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name of a rule to what it is and its settings; the narrowest fixed width first."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for n in knobs.fixed:
        prompts = WIDE_PROMPTS if n >= WIDE else PROMPTS
        found[f"n{n}"] = (f"N = {n}", {"rollout.n": n, "prompts_per_step": prompts})
    narrow = found[f"n{knobs.fixed[0]}"][1]
    waves = {
        "rollout.n": None,
        "rollout.waves": list(knobs.waves),
        "prompts_per_step": PROMPTS,
    }
    found[CONTROL] = ("solved prompts drawn 1 in 8", narrow | {"data.solved_weight": 0.125})
    found["adaptive"] = ("waves until two are right", waves)
    found[BEST] = ("the same, groups cut", waves | {"rollout.keep_per_group": knobs.keep})
    return found


def arms(knobs: AdaptiveKnobs) -> list[Arm]:
    """Every rule, from both starts, on every task."""
    made = []
    for task in knobs.tasks:
        for start in STARTS:
            for name, (says, settings) in rules(knobs).items():
                first = rules(knobs)[f"n{knobs.fixed[0]}"][1]
                from_run = TASKS[task] | first | {"max_samples": knobs.start_samples}
                made.append(
                    Arm(
                        f"{task.replace('_', '-')}-{start}-{name}",
                        f"{says}, {task} from the {start}",
                        TASKS[task] | settings | (GO_ON if start == "plateau" else {}),
                        start=from_run if start == "plateau" else None,
                        factors={"task": task, "start": start, "rule": name},
                        block=f"{task.replace('_', '-')}-{start}",
                    )
                )
    return made


def judge(results: Results[AdaptiveKnobs]) -> Findings:
    """By the rule of the docstring."""
    others = [r for r in rules(results.knobs) if r != BEST]
    against = {
        (start, budget): {r: over_tasks(results, start, r, budget) for r in others}
        for start in STARTS
        for budget in SHOWN
    }
    decide = {r: test for r, test in against["plateau", "generated"].items() if r != "adaptive"}
    holds = all_of(above(test.difference, 0.0) for test in decide.values())
    said = "; ".join(f"{r}: {shown(t.difference, signed=True)}" for r, t in decide.items())
    warm = against["warm", "generated"][CONTROL].difference
    because = (
        f"From the plateau, at equal generated samples, adaptive width with cut groups minus the "
        f"other, over {len(results.knobs.tasks)} tasks: {said}. From the warm start, minus the "
        f"control: {shown(warm, signed=True)}."
    )
    figures = {
        f"{start}, {budget}": {r: interval_json(t.difference) for r, t in tests.items()}
        for (start, budget), tests in against.items()
    }
    return Findings(holds, because, [_table(against, others), _scores(results)], [], figures)


def over_tasks(results: Results[AdaptiveKnobs], start: str, other: str, budget: Budget) -> PairedT:
    """BEST minus another rule, a pair for each task and seed.

    In each block at the amount that all of its arms reached. The interval is over pairs, so that
    tasks that differ make it wide.
    """
    pairs: list[float] = []
    for task in results.knobs.tasks:
        block = f"{task.replace('_', '-')}-{start}"
        part = results.part(block)
        found = part.compare(
            f"{block}-{other}", f"{block}-{BEST}", budget=budget, amount=part.common(budget)
        )
        pairs += found.per_seed
    return paired_t(pairs, level=results.knobs.level)


def _table(against: Mapping[tuple[str, Budget], Mapping[str, PairedT]], others: list[str]) -> Table:
    rows: list[list[Plain]] = []
    for (start, budget), tests in against.items():
        adjusted = holm([test.p_two_sided for test in tests.values()])
        for (other, test), p in zip(tests.items(), adjusted, strict=True):
            rows.append(
                [start, BUDGETS[budget], other, shown(test.difference, signed=True), float(p)]
            )
    columns = ("from the", "at equal", "other", f"{BEST} minus the other", "p (Holm)")
    note = (
        f"A pair for each task and seed. Holm's correction over the {len(others)} rules of a row."
    )
    return Table("Adaptive width over all tasks", columns, rows, note)


def _scores(results: Results[AdaptiveKnobs]) -> Table:
    """Mean score of every rule, task by task, at equal generated samples."""
    rows: list[list[Plain]] = []
    for rule in rules(results.knobs):
        row: list[Plain] = [rule]
        for block, part in results.parts().items():
            amount = part.common("generated")
            level: Interval = part.level(f"{block}-{rule}", budget="generated", amount=amount)
            row.append(level.value)
        spent = [run for (arm, _), run in results.runs.items() if arm.endswith(f"-{rule}")]
        easy = [run.mean("samples/kept_easy_share") for run in spent]
        row.append(float(np.mean([x for x in easy if x is not None] or [0.0])))
        rows.append(row)
    columns = ("rule", *results.parts(), "kept from easy prompts")
    return Table("Held-out pass@1 at equal generated samples", columns, rows)


STUDY = Study(
    knobs=AdaptiveKnobs,
    arms=arms,
    judge=judge,
    minutes=25,
    base={
        "task.train_size": 256,
        "task.eval_size": 128,
        "lr_warmup_updates": 0,
        "dynamic_sampling.max_gen_batches": 20,
        "dynamic_sampling.max_empty_steps": 1000,
    },
    smoke={
        "study.tasks": ["letter_counting"],
        "study.fixed": [4, 16],
        "study.waves": [4, 16],
        "study.keep": 4,
        "study.start_samples": 256,
    },
)
