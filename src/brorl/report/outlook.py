"""Has held-out progress stopped, and what do the records suggest next? One stated rule.

After each scheduled evaluation the slope of held-out pass@1 over the last `window` of them gets an
interval (stats.plateau) that pays for every look of the run. Evaluations before a wave was added
belong to another setting and leave the window. Then:

1. rising, or undecided: more steps;
2. flat or falling, at least ALL_WRONG of the window's groups all wrong at their widest, and at
   least FOUND of prompts solved by the last doubling of the width alone: more width;
3. flat or falling, and at least SOLVED of the window's groups all right, or every prompt seen
   drawn VISITS times or more on average: more prompts;
4. else: nothing, the records name no remedy.

docs/report.md says where each number is recorded and why the thresholds are what they are.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from brorl.stats.plateau import Plateau, Trend, plateau

ALL_WRONG = 0.02  # share of groups; as rollout.auto.min_all_wrong
FOUND = 0.01  # pass@N - pass@(N/2) of training groups
SOLVED = 0.5  # share of groups
VISITS = 4.0  # groups a distinct prompt

Row = Mapping[str, Any]


class Next(StrEnum):
    """What the records suggest."""

    STEPS = "more steps"
    WIDTH = "more width"
    PROMPTS = "more prompts"
    NOTHING = "nothing"


class Window(NamedTuple):
    """When to call it a plateau; `plateau` of a run's settings."""

    evaluations: int
    smallest_gain: float  # of held-out pass@1 over the window: a smaller one is not worth having
    level: float  # that no look of the whole run errs


class Seen(NamedTuple):
    """What the steps of the window recorded; None where they did not."""

    all_wrong: float | None  # share of groups, at their widest
    all_right: float | None
    last_doubling: float | None  # pass@N - pass@(N/2) of the training groups
    widest: int | None
    visits: float | None  # groups sampled in the whole run for each distinct prompt


class Outlook(NamedTuple):
    """The verdict after one evaluation."""

    first_step: int  # of the window
    last_step: int
    look: int
    found: Plateau
    seen: Seen
    suggests: Next

    @property
    def stopped(self) -> bool:
        """Whether held-out progress has stopped."""
        return self.found.trend in (Trend.FLAT, Trend.FALLING)

    def metrics(self) -> dict[str, Any]:
        """As a line of metrics.jsonl has it."""
        gain = self.found.gain_per_window
        return {
            "plateau/stopped": int(self.stopped),
            "plateau/gain": gain.value,
            "plateau/gain_low": gain.low,
            "plateau/gain_high": gain.high,
            "plateau/level": self.found.level,
            "plateau/look": self.look,
            "plateau/next_reason": str(self.suggests),
        }


def window_of(config: Mapping[str, Any]) -> Window:
    """The `plateau` section of a run's settings; the defaults for a run older than it."""
    given = config.get("plateau") or {}
    return Window(
        int(given.get("window", 10)),
        float(given.get("smallest_gain", 0.02)),
        float(given.get("level", 0.95)),
    )


def outlook(rows: Sequence[Row], *, window: Window) -> Outlook | None:
    """The verdict after the last scheduled evaluation of `rows`.

    Args:
        rows: lines of metrics.jsonl, ascending. Evaluations off the schedule (`eval/scheduled`
            is 0: that of a last step) do not count, so that a run that is made longer decides
            as if it had been so from the start.
        window: when to call it a plateau.

    Returns:
        None where the window is not full.
    """
    evals, looks = _window(rows, window.evaluations)
    if len(evals) < window.evaluations:
        return None
    steps = [int(r["step"]) for r in evals]
    found = plateau(
        steps,
        [float(r["eval/pass@1"]) for r in evals],
        level=window.level,
        look=looks,
        smallest_gain=window.smallest_gain,
        least_error=float(np.mean([r["eval/sampling_error"] for r in evals])),
    )
    seen = _seen([r for r in rows if r["step"] <= steps[-1]], steps[0])
    return Outlook(steps[0], steps[-1], looks, found, seen, suggest(found.trend, seen))


def waiting(rows: Sequence[Row], *, window: Window) -> str | None:
    """How many evaluations a first verdict still needs; None where it needs none, or none come."""
    evals, _ = _window(rows, window.evaluations)
    if not evals or len(evals) == window.evaluations:
        return None
    return (
        f"whether held-out progress goes on is said after {window.evaluations} scheduled "
        f"evaluations; there are {len(evals)}"
    )


def suggest(trend: Trend, seen: Seen) -> Next:
    """The rule; see the head of this file."""
    if trend not in (Trend.FLAT, Trend.FALLING):
        return Next.STEPS
    found = FOUND if seen.last_doubling is None else seen.last_doubling  # not known: no veto
    if seen.all_wrong is not None and seen.all_wrong >= ALL_WRONG and found >= FOUND:
        return Next.WIDTH
    solved = seen.all_right is not None and seen.all_right >= SOLVED
    worn = seen.visits is not None and seen.visits >= VISITS
    return Next.PROMPTS if solved or worn else Next.NOTHING


def describe(o: Outlook) -> str:
    """One line: what the window shows, what is suggested, and the numbers that decided it."""
    gain = o.found.gain_per_window
    words = {
        Trend.RISING: "held-out pass@1 is rising",
        Trend.FALLING: "held-out progress has stopped: pass@1 is falling",
        Trend.FLAT: "held-out progress has stopped",
        Trend.UNDECIDED: "held-out progress is undecided",
    }[o.found.trend]
    change = f"{gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]".replace("-", "−")
    return (
        f"{words}: {change} over steps {o.first_step} to {o.last_step}, level "
        f"{o.found.level:.3f} at look {o.look}; the records suggest {o.suggests}{_because(o)}"
    )


def _because(o: Outlook) -> str:
    s = o.seen
    told = {
        "all wrong": None if s.all_wrong is None else f"{s.all_wrong:.1%} of groups all wrong",
        "all right": None if s.all_right is None else f"{s.all_right:.1%} all right",
        "doubling": None
        if s.last_doubling is None
        else f"the last doubling to {s.widest} solved {s.last_doubling:.1%} of prompts",
        "visits": None if s.visits is None else f"prompts drawn {s.visits:.1f} times on average",
    }
    known = [text for text in told.values() if text]
    return f" ({', '.join(known)})" if known and o.stopped else ""


def _window(rows: Sequence[Row], size: int) -> tuple[list[Row], int]:
    """The last `size` scheduled evaluations since a wave was added, and how many were judged."""
    evals: list[Row] = []
    looks = 0
    for row in rows:
        if row.get("eval/scheduled") and row.get("eval/sampling_error") is not None:
            evals = [*evals, row][-size:]
            looks += len(evals) == size
        if row.get("width/switch_widest") is not None:
            evals = []
    return evals, looks


def _seen(rows: Sequence[Row], first_step: int) -> Seen:
    """Means over the steps after `first_step`; visits over the whole run."""
    inside = [r for r in rows if r["step"] > first_step]
    known = [k for r in inside for k in _ks(r)]
    widest = max(known, default=None)
    half = max((k for k in known if widest and 2 * k <= widest), default=None)
    drawn = [r.get("groups/sampled") for r in rows if r["step"] > 0]
    known_draws = [float(n) for n in drawn if n is not None]
    distinct = rows[-1].get("prompts/seen")
    doubling = None
    if half is not None:
        gains = [
            r[f"pass@k/{widest}"] - r[f"pass@k/{half}"]
            for r in inside
            if r.get(f"pass@k/{widest}") is not None and r.get(f"pass@k/{half}") is not None
        ]
        doubling = float(np.mean(gains)) if gains else None
    return Seen(
        _mean([_all_wrong(r) for r in inside]),
        _mean([r.get("groups/solved_all") for r in inside]),
        doubling,
        widest,
        sum(known_draws) / distinct if distinct and len(known_draws) == len(drawn) else None,
    )


def _all_wrong(row: Row) -> float | None:
    """Share of a step's groups that are all wrong at the width in use."""
    unsolved, sampled = row.get("groups/unsolved_at_max"), row.get("groups/sampled")
    if unsolved is not None and sampled:
        return float(unsolved) / float(sampled)
    return row.get("groups/solved_none")


def _ks(row: Row) -> list[int]:
    names = (name.removeprefix("pass@k/") for name in row if name.startswith("pass@k/"))
    return [int(k) for k in names if k.isdecimal()]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [float(v) for v in values if v is not None]
    return float(np.mean(known)) if known else None
