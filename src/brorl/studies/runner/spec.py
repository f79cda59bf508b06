"""From a command line to a plan: which runs, with which settings; every mistake before any run."""

import importlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from brorl.errors import ConfigError
from brorl.studies.runner.contract import Arm, Knobs, Study
from brorl.studies.runner.memory import check_memory
from brorl.studies.runner.text import docstring
from brorl.tasks.names import unknown_name
from brorl.train.recipe import Overrides, load_recipe, override_pairs
from brorl.train.settings import TrainSettings

COMMON: dict[str, Any] = {
    "steps": 1_000_000,  # samples end a run
    "eval_every": None,
    "save_every": 50,
    "keep_checkpoints": 1,
    "logger": [],
    "record.tokens": "none",
}
"""Settings of every run of a study, below all others."""

SMOKE: dict[str, Any] = {
    "study.samples": 256,
    "study.evals": 2,
    "model.shape.layers": 1,
    "model.shape.hidden": 32,
    "model.shape.heads": 2,
    "model.shape.kv_heads": 2,
    "model.shape.mlp": 64,
    "task.train_size": 24,
    "task.eval_size": 16,
    "task.warmstart_size": 320,
    "warmstart.steps": 40,
    "warmstart.warmup_steps": 5,
    "warmstart.lr": 0.01,
    "warmstart.batch_size": 32,
    "eval.samples": 4,
    "grading.workers": 0,
    "grading.check_golds": 0,
    "prompts_per_step": 4,
    "dynamic_sampling.max_gen_batches": 2,
    "dynamic_sampling.max_empty_steps": 1000,
}
"""What `--smoke` makes small; everything else is the full plan's."""
SMOKE_TASK: dict[str, Any] = {
    "task.name": "letter_counting",
    "task.config": {"min_words": 1, "max_words": 2},
    "task.prompt": "{question}",
    "rollout.max_new_tokens": 3,
}
"""For studies and users that name no task: a policy of 40 steps is right some of the time."""

_OURS = {
    "seed": "--seeds",
    "name": "--out",
    "run_dir": "--out",
    "steps": "study.samples",
    "max_samples": "study.samples",
    "max_seconds": "--budget",
    "eval_every": "study.evals",
    "eval_every_samples": "study.evals",
    "init.from": "nothing: arms share their start",
}
_NAME = re.compile(r"[A-Za-z0-9.\-]+")
SMOKE_SEEDS = 2
DEFAULT_RECIPE: str = Knobs.model_fields["recipe"].default


@dataclass(frozen=True)
class Spec:
    """What was asked for. Two calls that ask for the same go on with the same study."""

    study: str
    overrides: tuple[tuple[str, Any], ...]  # of settings, by dotted key
    knobs: Knobs
    seeds: int
    smoke: bool
    budget_minutes: float | None
    workers: int

    def to_json(self) -> dict[str, Any]:
        """Plain values, for study.json and result.json."""
        plain = asdict(self) | {"knobs": self.knobs.model_dump(mode="json")}
        return plain | {"overrides": dict(self.overrides)}


@dataclass(frozen=True)
class RunPlan:
    """One run: its name, and everything that `brorl.train` needs."""

    name: str
    arm: str
    seed: int
    recipe: str
    settings: tuple[tuple[str, Any], ...]
    start: tuple[tuple[str, Any], ...] | None  # of the run that it begins from
    samples: int


def load_study(name: str) -> Study[Any]:
    """The STUDY of a module. Raises ConfigError naming the nearest study."""
    docstring(name)  # the list of names is the files': no import of anything else
    study = importlib.import_module(f"brorl.studies.{name}").STUDY
    assert isinstance(study, Study)
    return study


def make_spec(
    name: str,
    overrides: Overrides = (),
    *,
    smoke: bool = False,
    seeds: int | None = None,
    budget_minutes: float | None = None,
    workers: int | None = None,
) -> Spec:
    """Read and check what a user asked for; see `brorl study run --help`.

    Raises:
        ConfigError: unknown study or knob, a setting that the study varies or the runner sets, too
            few seeds, a budget or number of workers that makes no sense.
    """
    study = load_study(name)
    own = override_pairs(overrides)
    given = {k.removeprefix("study."): v for k, v in own if k.startswith("study.")}
    small = SMOKE | dict(study.smoke) if smoke else {}
    knobs = _knobs(name, study, {k[6:]: v for k, v in small.items() if k[:6] == "study."} | given)
    count = seeds if seeds is not None else SMOKE_SEEDS if smoke else study.seeds
    if count < study.least_seeds:
        raise ConfigError(
            f"study {name} puts intervals over seeds: --seeds needs at least "
            f"{study.least_seeds}, got {count}"
        )
    if budget_minutes is not None:
        if not (math.isfinite(budget_minutes) and budget_minutes > 0):
            raise ConfigError(f"--budget is minutes above 0, got {budget_minutes}")
        if "samples" not in given and not smoke:
            knobs = _scaled(knobs, budget_minutes / (study.minutes * count / study.seeds))
    if workers is not None and not 0 <= workers <= 64:
        raise ConfigError(f"--workers lies in 0 ... 64, got {workers}")
    spec = Spec(
        name,
        tuple((k, v) for k, v in own if not k.startswith("study.")),
        knobs,
        count,
        smoke,
        budget_minutes,
        workers if workers is not None else 1 if smoke else min(2, os.cpu_count() or 1),
    )
    _own_keys(spec, study)
    return spec


def plan_runs(spec: Spec) -> list[RunPlan]:
    """Every run of a study, arm by arm within a seed, its settings checked as `brorl train` does.

    Raises:
        ConfigError: settings that contradict each other, or do not fit this machine's memory.
    """
    study = load_study(spec.study)
    arms = study.arms(spec.knobs)
    _check_arms(spec, arms)
    below = _below(spec, study)
    plans = []
    for seed in range(spec.seeds):
        for arm in arms:
            start = _start(spec, arm, below, seed)
            settings = {
                **below,
                **arm.settings,
                "name": f"{arm.name}-s{seed}",
                "seed": seed if start is None else 1000 + seed,  # streams that its start had not
                "max_samples": spec.knobs.samples,
                "eval_every_samples": max(1, spec.knobs.samples // spec.knobs.evals),
            }
            plans.append(
                RunPlan(
                    f"{arm.name}-s{seed}",
                    arm.name,
                    seed,
                    spec.knobs.recipe,
                    tuple(settings.items()),
                    start,
                    spec.knobs.samples,
                )
            )
    for plan in plans[: len(arms)]:
        check_memory(plan.arm, settings_of(plan), workers=max(1, spec.workers))
    return plans


def settings_of(plan: RunPlan) -> TrainSettings:
    """The settings of a run, to be checked: where its start lies is not known yet.

    Raises:
        ConfigError: in one line.
    """
    start = None if plan.start is None else Path(f"start of seed {plan.seed}")
    return load_recipe(plan.recipe, pairs_of(plan, start))


def pairs_of(plan: RunPlan, start: Path | None) -> list[tuple[str, Any]]:
    """Overrides of a run, with the folder that it begins from."""
    return [*plan.settings, *([("init.from", str(start))] if start is not None else [])]


def _below(spec: Spec, study: Study[Any]) -> dict[str, Any]:
    """Settings under those of the arms: common ones, the study's, smoke's, the user's."""
    tuned = spec.knobs.recipe == DEFAULT_RECIPE
    below = dict(COMMON)
    if tuned:
        below |= study.base
    if spec.smoke:
        small = SMOKE | dict(study.smoke) if tuned else {"eval.samples": SMOKE["eval.samples"]}
        given = [*study.base, *study.smoke, *dict(spec.overrides)]
        if tuned and not _name_a_task(given):
            small |= SMOKE_TASK
        if "task" in given:  # a whole section, with sizes of its own
            small = {k: v for k, v in small.items() if not k.startswith("task.")}
        below |= {k: v for k, v in small.items() if not k.startswith("study.")}
    below |= dict(spec.overrides)
    if spec.workers > 1 and "threads" not in below:
        below["threads"] = max(1, (os.cpu_count() or 1) // spec.workers)
    return below


def _name_a_task(keys: Sequence[str]) -> bool:
    return any(key.split(".")[0] in ("task", "data") for key in keys)


def _start(
    spec: Spec, arm: Arm, below: Mapping[str, Any], seed: int
) -> tuple[tuple[str, Any], ...] | None:
    if arm.start is None:
        return None
    samples = int(arm.start["max_samples"])
    more = {"seed": seed, "eval_every_samples": max(1, samples // spec.knobs.evals)}
    return tuple((dict(below) | dict(arm.start) | more).items())


def _knobs(name: str, study: Study[Any], given: Mapping[str, Any]) -> Knobs:
    for key in given:
        if key not in study.knobs.model_fields:
            raise ConfigError(unknown_name(f"knob of study {name}", key, study.knobs.model_fields))
    try:
        made: Knobs = study.knobs.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["study", *map(str, first["loc"])]).rstrip(".")
        what = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{place}: {what}, got {first.get('input')!r:.80}") from error
    return made


def _scaled(knobs: Knobs, factor: float) -> Knobs:
    return knobs.model_copy(update={"samples": max(1, round(knobs.samples * factor))})


def _own_keys(spec: Spec, study: Study[Any]) -> None:
    """Refuse a setting that would be overwritten: nothing is accepted and ignored."""
    varied = {k for arm in study.arms(spec.knobs) for k in [*arm.settings, *(arm.start or {})]}
    if varied & {"rollout.n", "rollout.waves"}:
        varied |= {"rollout.n", "rollout.waves"}
    for key, _ in spec.overrides:
        for own in (k for k in _OURS if k == key or k.startswith(f"{key}.")):
            raise ConfigError(f"{own} is the runner's in a study; use {_OURS[own]}")
        for own in sorted(k for k in varied if k == key or k.startswith(f"{key}.")):
            raise ConfigError(
                f"{own} is what study {spec.study} sets in its arms; see its knobs with "
                f"`brorl study show {spec.study}`"
            )


def _check_arms(spec: Spec, arms: Sequence[Arm]) -> None:
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise ConfigError(f"study {spec.study} needs arms with different plain names, got {names}")
    for arm in arms:
        if arm.start is not None and "max_samples" not in arm.start:
            raise ConfigError(f"study {spec.study}: the start of arm {arm.name} needs max_samples")
