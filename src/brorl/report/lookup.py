"""Find a step and a problem among a run's recorded rollouts, or say what is nearest."""

import difflib
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from brorl.errors import DataError
from brorl.record.rollouts import FOLDER, read_rollouts, rollout_steps
from brorl.record.rundir import require_run
from brorl.report.groups import Group, Step


class Found(NamedTuple):
    """The groups that were asked for, and the step that they are in."""

    step: Step
    groups: list[Group]


def find_groups(run: Path, *, step: int | None, problem: str | None) -> Found:
    """Groups of a step, or of one problem.

    Args:
        run: the run folder.
        step: None takes the newest recorded step, or the newest that sampled the problem.
        problem: a problem's id or a group's; None takes all groups of the step.

    Raises:
        DataError: not a run, no such step, or no such problem; the nearest one is named.
    """
    require_run(run)
    steps = rollout_steps(run)
    if not steps:
        raise DataError(f"{run / FOLDER}: no rollouts are recorded")
    if problem is None:
        shown = Step(run, steps[-1] if step is None else step)
        return Found(shown, shown.groups())
    names: set[str] = set()
    for candidate in reversed(steps) if step is None else [step]:
        ids = _ids(run, candidate)
        if problem in ids:
            shown = Step(run, candidate)
            groups = [g for g in shown.groups() if problem in (g.problem_id, g.group_id)]
            return Found(shown, groups)
        names |= ids
    raise DataError(_unknown(run, step, problem, names))


def _ids(run: Path, step: int) -> set[str]:
    """Problem and group ids of a step."""
    table = read_rollouts(run, step, ("problem_id", "group_id"))
    return {name for column in table.columns for name in pc.unique(column).to_pylist()}


def _unknown(run: Path, step: int | None, problem: str, names: set[str]) -> str:
    where = f"{run / FOLDER}: step {step}" if step is not None else f"{run / FOLDER}: no step"
    verb = "has no" if step is not None else "has a"
    near = difflib.get_close_matches(problem, sorted(names), n=1, cutoff=0.0)
    hint = f"; the nearest is {near[0]!r}" if near else ""
    return f"{where} {verb} problem or group {problem!r}{hint}"
