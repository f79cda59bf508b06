"""What a study is made of: knobs, arms, and a judgement. docs/studies.md has an example.

Light on purpose: a study's module imports this and no torch, so that `brorl study show` is quick.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from brorl.studies.runner.results import Results

Count = Annotated[int, Field(ge=1, le=10**9)]
Budget = Literal[
    "generated",
    "kept",
    "tokens",
    "update_tokens",
    "updates",
    "update_seconds",
    "seconds",
    "cpu_seconds",
]
"""What arms can be matched on."""

BUDGETS: dict[Budget, str] = {
    "generated": "generated samples",
    "kept": "kept samples",
    "tokens": "generated tokens",
    "update_tokens": "update tokens",
    "updates": "optimizer updates",
    "update_seconds": "seconds of updating",
    "seconds": "seconds, evaluation left out",
    "cpu_seconds": "CPU seconds, evaluation left out",
}

Plain = float | int | str | None
"""What a cell of a table holds; a float is rounded for the eye, never in result.json."""


class Knobs(BaseModel):
    """What a user may change of a study: `study.NAME=VALUE`. A study adds its own.

    Attributes:
        recipe: what every arm starts from; a study's own settings for the tiny policy are laid on
            the default recipe only.
        samples: generated samples of a run; a run ends with the step that reaches them.
        evals: held-out evaluations on the way, evenly over the samples, besides the one before.
        match: the budget at which arms are compared for the decision; all others are shown too.
        level: of every interval.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    recipe: str = "quickstart"
    samples: Count = 40_000
    evals: Count = 5
    match: Budget = "generated"
    level: Annotated[float, Field(gt=0.5, lt=1)] = 0.95


@dataclass(frozen=True)
class Arm:
    """One way to train, run once a seed.

    Attributes:
        name: letters, digits, dots and dashes: it names run folders.
        says: what is different about it, for a reader.
        settings: dotted settings of this arm on top of what all share.
        start: dotted settings of a run to begin from, `max_samples` among them; arms with equal
            ones share the run, made once a seed and kept in the cache by content. None: from the
            recipe's own warm start, which arms of one seed share as well.
        factors: what an analysis groups arms by, e.g. {"n": 16}.
        block: arms are compared within a block, with its first; for studies on several tasks, whose
            held-out problems are not the same.
    """

    name: str
    says: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] | None = None
    factors: Mapping[str, float | str] = field(default_factory=dict)
    block: str = "all"


def check_grows(name: str, values: Sequence[int]) -> None:
    """Refuse knob values that are not strictly ascending. Raises ValueError, for a validator."""
    if list(values) != sorted(set(values)):
        raise ValueError(f"{name} must grow, got {list(values)}")


def check_divides(batch: int, widths: Sequence[int]) -> None:
    """Refuse a batch that some width does not divide. Raises ValueError, for a validator."""
    for n in widths:
        if batch % n:
            raise ValueError(f"batch={batch} must be a multiple of every width, not of {n}")


def measured_policies(samples: int) -> list[Arm]:
    """Two policies of each seed that are only measured: warm-started, and trained with N = 16."""
    narrow = {"rollout.n": 16, "prompts_per_step": 32, "max_samples": samples}
    return [
        Arm("warm-start", "the warm start", {"steps": 0}),
        Arm("trained", "after training with N = 16", {"steps": 0}, start=narrow),
    ]


class Table(NamedTuple):
    """A table of the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Plain]]
    note: str = ""


class Line(NamedTuple):
    """A curve; `low` and `high` are the ends of its band, or empty."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


class Chart(NamedTuple):
    """A figure of the report."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    note: str = ""


class Findings(NamedTuple):
    """A study's answer.

    Attributes:
        holds: the prediction, by the decision rule; None: not decided at this size.
        because: one or two sentences with the numbers that decided.
        tables, charts: of this study; curves and budgets of the arms come without being asked.
        figures: numbers for whoever reads result.json with a program.
    """

    holds: bool | None
    because: str
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    figures: Mapping[str, Any] = {}


K = TypeVar("K", bound=Knobs)


@dataclass(frozen=True)
class Study(Generic[K]):
    """How a question is asked and judged; the docstring of its module says which.

    Attributes:
        knobs: the class of its knobs; its defaults are the full plan.
        arms: from knobs to arms; the first is what the others are compared with.
        judge: from the results of all runs to findings. The runner makes `holds` None for a smoke
            run.
        minutes: what the default plan costs on two cores, as the docstring's Cost says; a budget
            scales `samples` by its ratio to this.
        base: dotted settings of all arms, for the tiny policy of the default recipe.
        smoke: knobs (`study.NAME`) and settings of `--smoke`, on top of runner.spec.SMOKE.
        seeds: how many, unless the user says otherwise.
        least_seeds: below it there is no interval, and the study is refused. 1 only where no
            interval is over seeds.
        measure: called with a finished run's folder, in the run's process; what it returns (plain
            values) is in the run's results under `measured`. See runner.measure.
    """

    knobs: type[K]
    arms: Callable[[K], Sequence[Arm]]
    judge: Callable[["Results[K]"], Findings]
    minutes: float
    base: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3
    least_seeds: int = 2
    measure: Callable[[Path, K], Mapping[str, Any]] | None = None
