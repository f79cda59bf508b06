"""From depth to width: `rollout.waves: auto` begins narrow and adds a wave where progress stalls.

A wave is added after a held-out evaluation when both hold:

1. progress has stalled: over the last `window` evaluations since the last switch the slope's
   interval leaves no room for a gain of `smallest_gain`; each look of the run is paid for
   (stats.plateau), so looking often does not make a stall;
2. width has something to find: at least `min_all_wrong` of the groups sampled since the last
   switch were all wrong at the width in use.

With `replay` a wave is added after the named steps instead, to repeat another run's switches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from brorl.evaluate.heldout import Heldout
from brorl.stats.plateau import Trend, plateau
from brorl.train.settings import AutoWavesSettings


class Switch(NamedTuple):
    """One wave added, and the numbers that caused it."""

    step: int
    waves: int  # in use from here on
    widest: int
    cause: str  # "stall" or "replay"
    all_wrong: float  # share of the groups sampled since the last switch
    gain_low: float | None  # of the window, score units; None for a replayed switch
    gain_high: float | None
    level: float | None  # of that interval, after the price of looking again
    look: int


@dataclass
class Widening:
    """How many waves of the ladder are in use, and what the next decision will look at.

    Attributes:
        waves: in use, 1 ... len(ladder).
        looks: evaluations judged so far in the whole run.
        window: (step, score, standard error) of evaluations since the last switch.
        groups, all_wrong: sampled since the last switch.
        switches: made so far.
    """

    settings: AutoWavesSettings
    waves: int = 1
    looks: int = 0
    window: list[tuple[int, float, float]] = field(default_factory=list)
    groups: int = 0
    all_wrong: int = 0
    switches: list[Switch] = field(default_factory=list)

    @property
    def totals(self) -> tuple[int, ...]:
        """Group sizes after each wave in use."""
        return self.settings.ladder[: self.waves]

    def saw_groups(self, groups: int, all_wrong: int) -> None:
        """Note what a step sampled."""
        self.groups += groups
        self.all_wrong += all_wrong

    def after_step(self, step: int) -> Switch | None:
        """A replayed switch, where one is due."""
        if self.settings.replay is None or step not in self.settings.replay or self._is_widest:
            return None
        return self._switch(step, "replay", None, None, None)

    def after_eval(self, step: int, score: float, error: float) -> Switch | None:
        """Note a held-out evaluation; add a wave where the rule says so.

        Args:
            step: of the evaluation.
            score: held-out pass@1.
            error: its standard error from sampling answers, the problems held fixed.
        """
        s = self.settings
        self.window = [*self.window, (step, score, error)][-s.window :]
        if s.replay is not None or self._is_widest or len(self.window) < s.window:
            return None
        self.looks += 1
        steps, scores, errors = (list(column) for column in zip(*self.window, strict=True))
        seen = plateau(
            steps,
            scores,
            level=s.level,
            look=self.looks,
            smallest_gain=s.smallest_gain,
            least_error=float(np.mean(errors)),
        )
        stalled = seen.trend in (Trend.FLAT, Trend.FALLING)
        if not stalled or self._share < s.min_all_wrong:
            return None
        gain = seen.gain_per_window
        return self._switch(step, "stall", gain.low, gain.high, seen.level)

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "waves": self.waves,
            "looks": self.looks,
            "window": [list(x) for x in self.window],
            "groups": self.groups,
            "all_wrong": self.all_wrong,
            "switches": [x._asdict() for x in self.switches],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.waves, self.looks = int(state["waves"]), int(state["looks"])
        self.window = [(int(a), float(b), float(c)) for a, b, c in state["window"]]
        self.groups, self.all_wrong = int(state["groups"]), int(state["all_wrong"])
        self.switches = [Switch(**x) for x in state["switches"]]

    @property
    def _is_widest(self) -> bool:
        return self.waves == len(self.settings.ladder)

    @property
    def _share(self) -> float:
        return self.all_wrong / self.groups if self.groups else 0.0

    def _switch(
        self, step: int, cause: str, low: float | None, high: float | None, level: float | None
    ) -> Switch:
        self.waves += 1
        made = Switch(
            step, self.waves, self.totals[-1], cause, self._share, low, high, level, self.looks
        )
        self.switches.append(made)
        self.window, self.groups, self.all_wrong = [], 0, 0
        return made


def sampling_error(result: Heldout) -> float:
    """Standard error of held-out pass@1 from sampling answers alone, the problems held fixed.

    sqrt(sum over problems of c (n - c) / (n^2 (n - 1))) / K: what two evaluations of one policy
    on the same problems differ by. Problems with one sample count with the largest variance.
    """
    variances = [
        p.c * (p.n - p.c) / (p.n**2 * (p.n - 1)) if p.n > 1 else 0.25 for p in result.problems
    ]
    return float(np.sqrt(np.sum(variances)) / len(variances))


def describe(switch: Switch, totals: Sequence[int]) -> str:
    """One line for the log."""
    why = f"{switch.all_wrong:.1%} of groups all wrong"
    if switch.gain_high is not None and switch.gain_low is not None:
        why += (
            f"; held-out gain over the window in [{switch.gain_low:+.4f}, {switch.gain_high:+.4f}] "
            f"at level {switch.level:.3f}, look {switch.look}"
        )
    return f"step {switch.step}: waves are now {list(totals)} ({switch.cause}: {why})"
