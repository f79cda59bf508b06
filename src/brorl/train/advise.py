"""What other widths would do on this policy and these prompts, predicted from a run's own records.

A prompt's success rate is shrunk towards the others' (stats.shrinkage: Beta prior or two, empirical
Bayes, valid for groups that stopped on success), so that 0 of 16 does not predict 0. Each draw of a
prompt has a rate of its own: the policy moved between two of them. With p from the posteriors of
the window's groups, a group of N is kept with

    P(kept) = 1 - E[p^N] - E[(1 - p)^N]

and one that grows in waves n_1 < ... < n_W until `stop_right` are right with 1 - E[p^n_1] -
E[(1-p)^n_W], at a cost of sum over waves of P(reach) · (samples it adds). Seconds follow from the
recorded seconds of each phase: non-negative least squares on groups and samples where several
widths (or waves) were measured, in proportion to samples where one was.

The policy is taken to stand still: predictions are about the policy of the window. Beyond the
measured widths pass rates rest on the Beta form; `direct` is the same figure without it, for
every width that the run's groups contain.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brorl.algo.waves import check_waves
from brorl.errors import ConfigError
from brorl.seeds import generator
from brorl.stats.intervals import Interval
from brorl.stats.shrinkage import Prior, fit_prior
from brorl.train.advise_costs import Costs, fit_costs
from brorl.train.advise_groups import Shares, direct_pass_rate, rated, shares
from brorl.train.advise_records import Counts, Records, Timing, read_records
from brorl.train.settings import TrainSettings

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
WINDOW = 20  # steps
LEVEL = 0.95
RESAMPLES = 200
WORTH = 0.02
"""A width is enough where no wider one has kept samples per second beyond this share above its."""

_SAME = ("model.path", "model.shape", "reward.source", "rollout.temperature",
         "rollout.max_new_tokens")  # fmt: skip

Array = NDArray[np.float64]


class AtWidth(NamedTuple):
    """Predictions for one width, each with a bootstrap interval over prompts and steps."""

    totals: tuple[int, ...]  # one number, or the totals of waves
    pass_rate: Interval
    direct: float | None  # the pass rate without the Beta form; None beyond the groups' size
    solved: Interval
    samples_per_step: Interval
    kept_per_step: Interval
    seconds: Interval
    kept_per_s: Interval
    reward_variance: Interval


class Advice(NamedTuple):
    """The answer of `brorl plan RECIPE --from RUN`."""

    runs: list[str]
    steps: tuple[int, int]
    prompts: int
    groups: int
    prior: Prior
    measured_pass_rate: float
    at: list[AtWidth]
    enough: int | None  # the width beyond which kept samples per second no longer rise
    enough_low: int | None  # of the resamples; None: it still rises at the widest
    enough_high: int | None
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = []
        for row in self.at:
            values = {
                k: v._asdict() if isinstance(v, Interval) else v for k, v in row._asdict().items()
            }
            rows.append(values | {"totals": list(row.totals)})
        return self._asdict() | {
            "prior": {name: list(values) for name, values in self.prior._asdict().items()},
            "steps": list(self.steps),
            "at": rows,
        }


def advise(
    runs: Sequence[Path],
    settings: TrainSettings,
    *,
    widths: Sequence[int] = WIDTHS,
    window: int = WINDOW,
) -> Advice:
    """Predict a recipe's step at other widths.

    Args:
        runs: the first says how hard the prompts are; all of them say what work costs.
        settings: of the recipe that is planned.
        widths: fixed widths to predict, each >= 2; the recipe's own width or waves are added.
        window: steps at the end of each run that count.

    Raises:
        ConfigError: a width below 2, no run, or a recipe for another task.
        DataError: a run without usable records.
    """
    if not runs or min([*widths, 2]) < 2 or window < 1:
        raise ConfigError(
            f"advice needs a run, widths of at least 2 and a window of at least 1 step, got "
            f"{len(runs)} runs, widths {list(widths)}, window {window}"
        )
    records = [read_records(run, window=window) for run in runs]
    for found in records:
        _require_task(found, settings)
    own = tuple(settings.rollout.totals)
    plans = sorted({(int(n),) for n in widths} | {own})
    for totals in plans:
        check_waves(totals, stop_right=min(settings.rollout.stop_right, totals[0]))
    drawn = [_predict(records, settings, plans, prior) for prior in _resampled(records)]
    point, spread = drawn[0], np.stack([d.table for d in drawn[1:]])
    rows = [
        _row(records[0], totals, point.table[i], spread[:, i]) for i, totals in enumerate(plans)
    ]
    fixed = [i for i, totals in enumerate(plans) if len(totals) == 1]
    ladder = [plans[i][0] for i in fixed]
    choices = [enough(ladder, d.table[fixed, 6]) for d in drawn]
    low, high = _range(choices[1:])
    return Advice(
        [str(run) for run in runs],
        records[0].steps,
        records[0].prompts,
        len(records[0].right_G),
        point.prior,
        _measured(records[0]),
        rows,
        choices[0],
        low,
        high,
        _notes(records, settings, point.costs),
    )


def enough(widths: Sequence[int], kept_per_s: Array) -> int | None:
    """The smallest width with none wider more than WORTH above it; None: the widest still gains."""
    for n, here, wider in _with_wider(widths, kept_per_s):
        if wider.max() <= (1 + WORTH) * here:
            return n
    return None


class _Drawn(NamedTuple):
    """Predictions from the records, or from one resample of them: a row a plan."""

    prior: Prior
    costs: Costs
    table: Array  # [plans, 7], in the order of AtWidth


class _Sample(NamedTuple):
    """Groups and steps to predict from: all of them, or a resample."""

    groups: Counts  # indices
    timings: list[Timing]
    start: tuple[Prior, Prior] | None  # of right and of zero


def _resampled(records: Sequence[Records]) -> Iterator[_Sample]:
    """The records themselves, then RESAMPLES draws of prompts and of each run's steps."""
    r = records[0]
    yield _Sample(
        np.arange(len(r.right_G)), [t for found in records for t in found.timings_S], None
    )
    right = fit_prior(r.right_G, r.total_G)
    start = (right, fit_prior(r.zero_G, r.total_G) if r.part_credit else right)
    for i in range(RESAMPLES):
        rng = generator(0, "advise", i)
        groups = r.draws_of(rng.integers(r.prompts, size=r.prompts))
        timings = [
            found.timings_S[j]
            for found in records
            for j in rng.integers(len(found.timings_S), size=len(found.timings_S))
        ]
        yield _Sample(groups, timings, start)


def _predict(
    records: Sequence[Records],
    s: TrainSettings,
    plans: Sequence[tuple[int, ...]],
    sample: _Sample,
) -> _Drawn:
    r, i = records[0], sample.groups
    start = sample.start or (None, None)
    prior = fit_prior(r.right_G[i], r.total_G[i], start=start[0])
    right, zero = rated(r.right_G[i], r.total_G[i], prior), None
    if r.part_credit and s.dynamic_sampling.metric == "score":
        zero_prior = fit_prior(r.zero_G[i], r.total_G[i], start=start[1])
        zero = rated(r.zero_G[i], r.total_G[i], zero_prior)
    costs = fit_costs(sample.timings)
    rows = []
    for totals in plans:
        found = shares(
            right,
            zero,
            totals,
            stop_right=s.rollout.stop_right,
            keep_per_group=s.rollout.keep_per_group,
        )
        rows.append(_step(found, costs, s, r.overhead))
    return _Drawn(prior, costs, np.array(rows))


def _step(found: Shares, costs: Costs, s: TrainSettings, overhead: float) -> list[float]:
    """pass rate, solved, samples, kept samples, seconds, kept a second and variance of a step."""
    dynamic = s.dynamic_sampling
    wanted, groups = float(s.prompts_per_step), float(s.prompts_per_step)
    kept_samples = found.kept_samples
    if dynamic.enable:
        most = dynamic.max_gen_batches * np.ceil(dynamic.oversample * wanted)
        groups = min(overhead * wanted / max(found.kept, 1e-12), most)
        used = min(wanted, groups * found.kept)
        kept_samples = used * found.kept_samples / max(found.kept, 1e-12)
    else:
        kept_samples *= groups
    samples = groups * found.samples
    seconds = (
        costs.generate_group * groups
        + (costs.generate_sample + costs.grade_sample + costs.other_sample) * samples
        + costs.update_step
        + costs.update_sample * kept_samples
        + costs.other_step
    )
    rate = kept_samples / seconds if seconds > 0 else 0.0
    return [found.kept, found.solved, samples, kept_samples, seconds, found.variance, rate]


def _row(records: Records, totals: tuple[int, ...], point: Array, spread: Array) -> AtWidth:
    low, high = np.quantile(spread, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
    made = [
        Interval(float(p), float(min(a, p)), float(max(b, p)))
        for p, a, b in zip(point, low, high, strict=True)
    ]
    pass_rate, solved, samples, kept, seconds, variance, rate = made
    return AtWidth(
        totals,
        pass_rate,
        _direct(records, totals),
        solved,
        samples,
        kept,
        seconds,
        rate,
        variance,
    )


def _direct(records: Records, totals: tuple[int, ...]) -> float | None:
    waves = (records.record.config.get("rollout") or {}).get("waves")
    if len(totals) > 1 or waves or records.part_credit or totals[0] > records.total_G.min():
        return None
    return direct_pass_rate(
        records.right_G.astype(np.float64), records.total_G.astype(np.float64), totals[0]
    )


def _measured(records: Records) -> float:
    """Share of the window's groups whose answers disagreed, on right and score 0."""
    r = records
    same = (r.right_G == r.total_G) | (r.zero_G == r.total_G)
    return float(np.mean(~same))


def _range(choices: Sequence[int | None]) -> tuple[int | None, int | None]:
    """The middle LEVEL of the choices; None stands above every width."""
    order = sorted(choices, key=lambda n: np.inf if n is None else n)
    cut = int(np.floor((1 - LEVEL) / 2 * len(order)))
    return order[cut], order[len(order) - 1 - cut]


def _require_task(found: Records, s: TrainSettings) -> None:
    config = found.record.config
    ours, theirs = _data(s.model_dump(mode="json")), _data(config)
    if ours != theirs:
        raise ConfigError(
            f"the recipe trains on {ours}, and {found.record.path} on {theirs}: advice is about "
            "one task"
        )


def _data(config: dict[str, Any]) -> str:
    """What a configuration trains on, in words that can be compared."""
    task = config.get("task")
    if task:
        return ", ".join(f"{k}={task[k]}" for k in sorted(task))
    data = config.get("data") or {}
    return f"{data.get('train')} judged by {data.get('verifier')}"


def _notes(records: Sequence[Records], s: TrainSettings, costs: Costs) -> list[str]:
    notes = []
    if not costs.apart:
        notes.append(
            "one width was measured: seconds are taken in proportion to samples, so what wider "
            "groups save by sharing a prompt is not counted; add a run of another width with --from"
        )
    mine = s.model_dump(mode="json")
    for found in records:
        for key in _SAME:
            a, b = _get(mine, key), _get(found.record.config, key)
            if a != b:
                notes.append(f"{key} is {a} in the recipe and was {b} in {found.record.name}")
    devices = {str(f.record.environment.get("device_name")) for f in records}
    if len(devices) > 1:
        notes.append(f"the runs were made on different devices: {', '.join(sorted(devices))}")
    if records[0].part_credit:
        notes.append("scores give part credit: groups that agree on such a score count as kept")
    return notes


def _get(config: dict[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = (value or {}).get(part)
    return value


def _with_wider(widths: Sequence[int], values: Array) -> Iterator[tuple[int, float, Array]]:
    order = np.argsort(widths)
    for at, i in enumerate(order[:-1]):
        yield widths[i], float(values[i]), values[order[at + 1 :]]
