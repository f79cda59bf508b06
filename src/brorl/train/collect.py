"""Dynamic sampling: ask for prompts, sample them wide, keep the groups that can teach.

Groups grow in waves within a step, so they may differ in size. The filter and the wave rule
look at raw scores, before any shaping. Nothing here loops without a bound: a step asks at most
`max_gen_batches` times, and says why it found too little.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from brorl.algo.filtering import GroupOutcomes, OutcomeCounts, group_outcomes, outcome_counts
from brorl.algo.waves import samples_to_add
from brorl.errors import RunError
from brorl.policy.model import Policy
from brorl.rollout.engine import Completion, Engine, Request, Sampling, check_counts
from brorl.seeds import derive_seed
from brorl.train.grading import Backlog, GradingDesk
from brorl.train.groups import Fate, Group
from brorl.train.prompts import Draw, PromptSource
from brorl.train.settings import TrainSettings
from brorl.train.widening import Widening

_FORGET = 0.9  # weight of the past in the pass-rate estimate, per round


@dataclass
class PassRate:
    """Kept over generated groups, lately: decides how many prompts a round asks for.

    A weighted count with one made-up kept and one made-up dropped group, so that it is never 0.
    """

    kept: float = 0.0
    generated: float = 0.0

    @property
    def value(self) -> float:
        return (self.kept + 1.0) / (self.generated + 2.0)

    def update(self, kept: int, generated: int) -> None:
        self.kept = _FORGET * self.kept + kept
        self.generated = _FORGET * self.generated + generated


@dataclass
class Collected:
    """What one step sampled.

    Attributes:
        kept: groups for the update, at most prompts_per_step, in the order they were drawn.
        fresh: every group sampled in this step, kept or not.
        carry: kept groups beyond what the update takes, for the next step (surplus: carry).
        rounds: generation batches used.
        found: fresh groups that passed the filter, surplus included.
        counts: outcomes of the fresh groups.
        escalated: wave total to the number of fresh groups that grew to it.
        totals: group sizes after each wave in use.
        generated: answers sampled in this step.
    """

    kept: list[Group] = field(default_factory=list)
    fresh: list[Group] = field(default_factory=list)
    carry: list[Group] = field(default_factory=list)
    rounds: int = 0
    found: int = 0
    counts: OutcomeCounts = field(default_factory=lambda: OutcomeCounts(*[0] * 8))
    escalated: dict[int, int] = field(default_factory=dict)
    totals: tuple[int, ...] = ()

    @property
    def generated(self) -> int:
        return sum(len(g.samples) for g in self.fresh)


@dataclass
class Collector:
    """Samples and grades groups for a step, and remembers what the next step needs."""

    settings: TrainSettings
    source: PromptSource
    engine: Engine
    desk: GradingDesk
    policy: Policy
    pass_rate: PassRate = field(default_factory=PassRate)
    carried: list[Group] = field(default_factory=list)
    widening: Widening | None = None

    @property
    def totals(self) -> tuple[int, ...]:
        """Group sizes after each wave in use."""
        return self.widening.totals if self.widening else self.settings.rollout.totals

    def collect(self, step: int) -> Collected:
        """Groups for one step.

        Raises:
            RunError: dynamic_sampling.on_exhausted is stop and too few groups had spread, or
                no group could be graded at all.
        """
        s, target = self.settings, self.settings.prompts_per_step
        out = Collected(kept=self.carried, totals=self.totals)
        self.desk.waited_s, self.desk.backlog = 0.0, Backlog(0, 0)
        self.carried = []
        dynamic = s.dynamic_sampling
        rounds = dynamic.max_gen_batches if dynamic.enable else 1
        while len(out.kept) < target and out.rounds < rounds:
            groups = self._sample(step, self._want(target - len(out.kept)), out.escalated)
            out.fresh += groups
            out.rounds += 1
            kept = [g for g, keep in zip(groups, self._filter(groups), strict=True) if keep]
            self.pass_rate.update(len(kept), len(groups))
            out.found += len(kept)
            out.kept += kept
        out.counts = outcome_counts(self._outcomes(out.fresh))
        self._settle(step, out, target)
        return out

    def _settle(self, step: int, out: Collected, target: int) -> None:
        """Mark every group's fate; keep, carry or drop the surplus; act on a shortage."""
        s = self.settings.dynamic_sampling
        for group in out.fresh:
            group.mark(Fate.NO_SPREAD)
            if group.counting:
                self.source.saw(group.problem.id, group.right_share)
        for group in out.kept:
            group.mark(Fate.KEPT)
        if out.fresh and not any(g.counting for g in out.fresh):
            raise RunError(
                f"step {step}: none of {out.generated} answers could be graded; the first because: "
                f"{out.fresh[0].samples[0].verdict.reason}"
            )
        take = target
        if len(out.kept) < target and s.enable:
            if s.on_exhausted == "stop":
                raise RunError(f"step {step}: {shortage(out, target)}")
            if s.on_exhausted == "skip":
                take = 0
        surplus, out.kept = out.kept[take:], out.kept[:take]
        for group in surplus:
            group.mark(Fate.SURPLUS)
        out.carry = self.carried = surplus if s.surplus == "carry" else []

    def _want(self, missing: int) -> int:
        """Prompts for one round: missing / recent pass rate, at most `oversample` batches."""
        s = self.settings
        if not s.dynamic_sampling.enable:
            return missing
        most = math.ceil(s.dynamic_sampling.oversample * s.prompts_per_step)
        return min(math.ceil(missing / self.pass_rate.value), most)

    def _sample(self, step: int, count: int, escalated: dict[int, int]) -> list[Group]:
        """Draw prompts and grow their groups wave by wave, all prompts of a wave at once."""
        groups = [self._open(step, draw) for draw in self.source.draw(count)]
        growing = groups
        for total in self.totals:
            self._grow(growing, total)
            escalated[total] = escalated.get(total, 0) + len(growing)
            if self.settings.rollout.waves is not None:
                growing = [g for g in growing if self._grows_on(g)]
            if not growing:
                break
        self.engine.forget([g.id for g in groups])
        return groups

    def _open(self, step: int, draw: Draw) -> Group:
        seed = derive_seed(self.settings.seed, "rollout", draw.problem.id, draw.number)
        prompt = self.policy.encode(draw.problem.prompt)
        return Group(draw.group_id, draw.problem, prompt, seed, step)

    def _grow(self, groups: list[Group], total: int) -> None:
        r = self.settings.rollout
        requests = [
            Request(g.id, g.problem.id, g.prompt, len(g.samples), total - len(g.samples), g.seed)
            for g in groups
        ]

        def graded(index: int, offset: int, completions: list[Completion]) -> None:
            self.desk.take(groups[index], requests[index].first + offset, completions)

        sampling = Sampling(r.temperature, r.top_p, r.top_k, r.max_new_tokens)
        check_counts(requests, self.engine.sample(requests, sampling, graded))
        self.desk.finish()
        for group in groups:
            if [x.index for x in group.samples] != list(range(total)):
                raise RunError(
                    f"problem {group.problem.id}: needs samples 0 ... {total - 1}, "
                    f"got {len(group.samples)}"
                )

    def _grows_on(self, group: Group) -> bool:
        """One-sided: search on until `stop_right` right answers are found."""
        r = self.settings.rollout
        more = samples_to_add(
            group.n_right, len(group.samples), waves=self.totals, stop_right=r.stop_right
        )
        return more > 0

    def _filter(self, groups: list[Group]) -> list[bool]:
        if not self.settings.dynamic_sampling.enable:
            return [bool(g.counting) for g in groups]
        kept: list[bool] = self._outcomes(groups).kept_P.tolist()
        return kept

    def _outcomes(self, groups: list[Group]) -> GroupOutcomes:
        rows = [(x.raw, i) for i, g in enumerate(groups) for x in g.counting]
        return group_outcomes(
            torch.tensor([raw for raw, _ in rows], dtype=torch.float64),
            torch.tensor([i for _, i in rows], dtype=torch.int64),
            n_groups=len(groups),
            metric=self.settings.dynamic_sampling.metric,
        )

    def state(self) -> Mapping[str, Any]:
        """Plain values for a checkpoint; carried groups are saved beside them."""
        return {"kept": self.pass_rate.kept, "generated": self.pass_rate.generated}


def shortage(out: Collected, target: int) -> str:
    """Why a step has too few groups, in words that say what to change."""
    c = out.counts
    most = "all wrong" if c.dropped_wrong >= c.dropped_right else "all right"
    advice = {
        "all wrong": "the prompts are too hard for this width: widen it, or take easier prompts",
        "all right": "the prompts are too easy: take harder ones",
    }[most]
    return (
        f"{len(out.kept)} of {target} groups had answers that disagree after {out.rounds} "
        f"generation batches; of {c.groups} groups {c.dropped_wrong} were all wrong, "
        f"{c.dropped_right} all right, {c.dropped_flat} equal in part credit; mostly {most}: "
        f"{advice}"
    )
