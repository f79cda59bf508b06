"""`brorl rollouts --hacking`: what choosing harder by the rewarded score does to the true one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brorl.evaluate.best_of_n import Threshold
    from brorl.evaluate.hacking import Hacking

LEVEL, GRID = 0.95, 200


def measured(run: Path, step: int) -> "Hacking":
    """Of the groups sampled in one step; thresholds are looked for up to the widest group.

    Raises:
        DataError: no graded rollouts of that step.
    """
    from brorl.evaluate.hacking import groups_of_run, hacking

    groups = groups_of_run(run, first_step=step, last_step=step)
    widest = max(len(proxy) for proxy, _ in groups)  # type: ignore[arg-type]
    return hacking(groups, level=LEVEL, theta_max=float(max(widest, 2)), grid=GRID)


def text(found: "Hacking", step: int) -> str:
    """A table of best-of-n, and a sentence for each way of choosing."""
    from brorl.evaluate.render import Table, cell, to_text

    rows = tuple(
        (str(p.n), cell(p.proxy, 3), cell(p.true, 3), cell(p.hacked, 3), f"{p.kl_bound:.2f}")
        for p in found.curve
    )
    columns = ("best of", "rewarded score", "true score", "hacked", "KL at most")
    note = (
        f"{found.groups} groups, {found.samples} answers; hacked: picks that are paid in full and "
        "are not right"
    )
    return "\n".join(
        [
            to_text(Table(f"step {step}", columns, rows, note)),
            _said("best of n", "n", found.best_of_n),
            _said("best of 1 + Poisson(mu)", "mu", found.best_of_poisson),
        ]
    )


def plain(found: "Hacking", run: Path, step: int) -> dict[str, Any]:
    """The JSON object."""
    curve = [
        {
            "n": p.n,
            "kl_bound": p.kl_bound,
            **{name: getattr(p, name)._asdict() for name in ("proxy", "true", "hacked")},
        }
        for p in found.curve
    ]
    return {
        "run": str(run),
        "step": step,
        "groups": found.groups,
        "samples": found.samples,
        "curve": curve,
        "best_of_n": found.best_of_n._asdict(),
        "best_of_poisson": found.best_of_poisson._asdict(),
    }


def _said(way: str, symbol: str, t: "Threshold") -> str:
    ends = f"from {t.reward_at_start:.3f} to {t.reward_at_end:.3f}"
    if t.theta is not None:
        peak = f"turns at {symbol} = {t.theta:.1f}, where it is {t.reward_at_threshold:.3f}"
        return f"{way}: the true score {peak} ({ends})"
    return f"{way}: the true score {t.shape} ({ends})"
