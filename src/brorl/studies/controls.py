"""What is left of the gain when the reward says nothing about the answer?

Question    A policy gains from rewards that tell right from wrong. How much of that gain is left
            when the update is paid at random, for any answer at all, for wrong labels, or for the
            starting policy's own most frequent answers, with narrow and with wide groups?
Prediction  Random, format and incorrect rewards keep less than a quarter of the true reward's
            gain, majority rewards more than half of it, at N = 16 and at N = 512. The large gains
            from spurious rewards in arXiv:2506.10947 are of a model that had the ability and
            needed the manner; this one has no manner to find.
Design      Varied: reward.source (ground_truth, random with probability 1/2, format, incorrect,
            majority) and rollout.n, 16 with 32 prompts a step and 512 with 4. Labels are the mode
            of 64 answers of the starting policy; incorrect keeps only the prompts whose label is
            wrong. Equal: warm start of each seed, held-out problems, generated samples, learning
            rate, mini-batches, loss, no KL term. Arms are compared at one N. As an option
            study.minibatches=[1,4] asks everything once with one update a batch and once with
            several, where clipping can favour what is already likely. Not equal, and reported:
            updates (a source without spread in a group updates nothing).
Decided by  A gain is held-out pass@1 at the largest common number of generated samples minus that
            before training. Holds where at every N the interval of (gain of random, of format, of
            incorrect, each minus 1/4 of the true reward's gain) lies below 0 and that of (gain of
            majority minus 1/2 of it) above 0. Refuted where one of them lies on the other side.
            Else not decided, as where the true reward's own gain does not lie above 0.
Cost        14 minutes on two cores: 10 arms, 3 seeds, 50,000 generated samples a run.
"""

from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from brorl.stats.intervals import Interval
from brorl.studies.runner.analysis import above, all_of, below, interval_json, mean, shown
from brorl.studies.runner.contract import Arm, Chart, Count, Findings, Knobs, Line, Study, Table
from brorl.studies.runner.results import Results, over_seeds

TRUE, MAJORITY = "ground_truth", "majority"
SOURCES: dict[str, dict[str, Any]] = {
    TRUE: {},
    "random": {"gamma": 0.5},
    "format": {},
    "incorrect": {"labels": "majority"},
    MAJORITY: {},
}
LITTLE, MUCH = 0.25, 0.5  # of the true reward's gain
Width = Annotated[int, Field(ge=2, le=65_536)]


class ControlsKnobs(Knobs):
    """Attributes: widths, prompts of a step at each, and numbers of updates of a batch."""

    samples: Count = 50_000
    widths: Annotated[tuple[Width, ...], Field(min_length=1)] = (16, 512)
    prompts: Annotated[tuple[Count, ...], Field(min_length=1)] = (32, 4)
    minibatches: Annotated[tuple[Count, ...], Field(min_length=1)] = (2,)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.widths) != len(self.prompts):
            raise ValueError(
                f"a width needs its prompts, got {list(self.widths)} and {list(self.prompts)}"
            )
        for name in ("widths", "minibatches"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must differ, got {list(values)}")
        return self


class Left(NamedTuple):
    """What a source keeps of the true reward's gain, all from the same seeds and problems."""

    gain: Interval
    share: Interval  # of the true reward's mean gain
    against: Interval  # gain minus `bound` times the true reward's gain
    bound: float


def arms(knobs: ControlsKnobs) -> list[Arm]:
    """A block for each N and number of updates; the true reward is its control."""
    return [
        Arm(
            f"n{n}-m{updates}-{source.replace('_', '-')}",
            f"N = {n}, {updates} updates a batch, paid by {source}",
            {
                "rollout.n": n,
                "prompts_per_step": prompts,
                "num_minibatches": updates,
                "reward.source": source,
                "reward.options": options,
            },
            factors={"n": n, "updates": updates, "source": source},
            block=f"n{n}-m{updates}",
        )
        for updates in knobs.minibatches
        for n, prompts in zip(knobs.widths, knobs.prompts, strict=True)
        for source, options in SOURCES.items()
    ]


def left(results: Results[ControlsKnobs], arm: str, true: str, bound: float) -> Left:
    """What an arm keeps of the gain of `true`.

    With d = gain - s · true gain per seed and problem and s the ratio of the means, mean d is 0
    and its interval over the mean true gain is that of s (the delta method).
    """
    level = results.knobs.level

    def gains(name: str) -> Any:
        return results.scores_SK(name) - results.scores_SK(name, amount=0.0)

    own_SK, true_SK = gains(arm), gains(true)
    whole = float(true_SK.mean())
    gain, against = (
        over_seeds(x, level=level)[0].difference for x in (own_SK, own_SK - bound * true_SK)
    )
    if whole == 0:
        share = Interval(float("nan"), float("nan"), float("nan"))
    else:
        s = float(own_SK.mean()) / whole
        ends = over_seeds(own_SK - s * true_SK, level=level)[0].difference
        half = (ends.high - ends.low) / 2 / abs(whole)
        share = Interval(s, s - half, s + half)
    return Left(gain, share, against, bound)


def judge(results: Results[ControlsKnobs]) -> Findings:
    """By the rule of the docstring."""
    answers: list[bool | None] = []
    told, tables, figures, missing = [], [], {}, []
    for block, part in results.parts().items():
        by_source = {str(part.factors[arm]["source"]): arm for arm in part.arms}
        true = by_source[TRUE]
        found = {
            source: left(part, arm, true, MUCH if source == MAJORITY else LITTLE)
            for source, arm in by_source.items()
        }
        if above(found[TRUE].gain, 0.0) is not True:
            missing.append(f"{block}: the true reward's gain is {shown(found[TRUE].gain)}")
        answers += [
            above(x.against, 0.0) if source == MAJORITY else below(x.against, 0.0)
            for source, x in found.items()
            if source != TRUE
        ]
        told.append(
            f"{block}: of a gain of {shown(found[TRUE].gain, signed=True)} are left "
            + ", ".join(f"{x.share.value:.0%} by {s}" for s, x in found.items() if s != TRUE)
        )
        tables.append(_table(part, block, by_source, found))
        figures[block] = {source: _json(x) for source, x in found.items()}
    holds = None if missing else all_of(answers)
    because = "; ".join([*missing, *told]) + "."
    return Findings(holds, because, tables, [_chart(results.knobs, figures)], figures)


def _table(
    part: Results[ControlsKnobs], block: str, arm_of: dict[str, str], found: dict[str, Left]
) -> Table:
    metrics = {
        "rewarded": "reward/mean",
        "true in training": "reward/true_mean",
        "groups kept": "dynamic_sampling/pass_rate",
        "clipped up": "policy/clipped_frac_high",
        "entropy": "policy/entropy",
    }
    rows = []
    for source, arm in arm_of.items():
        runs = part.of(arm)
        rows.append(
            [
                source,
                shown(found[source].gain, signed=True),
                shown(found[source].share),
                mean([run.totals["updates"] for run in runs]),
                *(mean([run.mean(m) for run in runs]) for m in metrics.values()),
            ]
        )
    columns = ("paid by", "gain in pass@1", "left of the true gain", "updates", *metrics)
    note = "Means over seeds and, but for the gain, over steps. Entropy in nats a token."
    return Table(f"Sources of reward, {block}", columns, rows, note)


def _chart(knobs: ControlsKnobs, figures: dict[str, Any]) -> Chart:
    lines = []
    for updates in knobs.minibatches:
        more = "" if len(knobs.minibatches) == 1 else f", {updates} updates a batch"
        for source in SOURCES:
            gains = [figures[f"n{n}-m{updates}"][source]["gain"] for n in knobs.widths]
            lines.append(
                Line(
                    source + more,
                    list(knobs.widths),
                    [g["value"] for g in gains],
                    [g["low"] for g in gains],
                    [g["high"] for g in gains],
                )
            )
    return Chart("Gain by what is paid", "N", "gain in held-out pass@1", lines, log_x=True)


def _json(found: Left) -> dict[str, Any]:
    return {
        "gain": interval_json(found.gain),
        "share": interval_json(found.share),
        "against": interval_json(found.against),
        "bound": found.bound,
    }


STUDY = Study(
    knobs=ControlsKnobs,
    arms=arms,
    judge=judge,
    minutes=14,
    base={
        # A source may leave no group with spread: a step ends soon, and the run goes on.
        "dynamic_sampling.max_gen_batches": 4,
        "dynamic_sampling.oversample": 1.5,
        "dynamic_sampling.max_empty_steps": 1_000_000,
    },
    smoke={
        "study.samples": 192,
        "study.evals": 1,
        "study.widths": [4, 16],
        "study.prompts": [4, 2],
    },
)
