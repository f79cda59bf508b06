"""eval/step-000010.json: held-out evaluations of a run, in the format of `brorl eval`."""

from pathlib import Path

from brorl.record.files import step_files, sweep_asides

FOLDER = "eval"


def eval_path(run: Path, step: int) -> Path:
    """Where the evaluation after `step` steps lies."""
    return run / FOLDER / f"step-{step:06d}.json"


def eval_steps(run: Path) -> list[int]:
    """Steps that were evaluated, ascending."""
    return step_files(run / FOLDER, "json")


def cut_evals(run: Path, last_step: int) -> None:
    """Remove evaluations after `last_step` and leftovers of interrupted writes."""
    for step in eval_steps(run):
        if step > last_step:
            eval_path(run, step).unlink()
    sweep_asides(run / FOLDER)
