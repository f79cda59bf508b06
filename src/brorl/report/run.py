"""report.html: what a run did, on one page that opens from the file system."""

from collections.abc import Sequence
from pathlib import Path

from brorl.errors import DataError, RunError
from brorl.record.files import write_atomic
from brorl.report.load import RunRecord, read_run
from brorl.report.page import gather, render

FILE = "report.html"


def write_report(run: Path) -> Path:
    """Write RUN/report.html from what the run has recorded so far; replaces an older one whole.

    Args:
        run: the run folder; the run may be finished, killed or going on.

    Returns:
        The path of the page.

    Raises:
        DataError: not a run, or a recorded file that cannot be read.
        RunError: the page cannot be written.
    """
    path = run / FILE
    write_page([run], path, refresh_s=None)
    return path


def write_page(runs: Sequence[Path], path: Path, *, refresh_s: int | None) -> list[RunRecord]:
    """Write one page of one or several runs side by side, complete or not at all.

    Args:
        runs: run folders of one task; at least one.
        path: of the page; its folder must exist.
        refresh_s: let a browser that shows the page read it again after so many seconds.

    Returns:
        The records that it was written from.

    Raises:
        DataError: no run, one that cannot be read, or runs of different tasks.
        RunError: the page cannot be written.
    """
    records = [read_run(run) for run in runs]
    names = _names(records)
    gathered = [
        gather(record, name, runs=len(runs)) for record, name in zip(records, names, strict=True)
    ]
    try:
        write_atomic(path, render(gathered, refresh_s))
    except OSError as error:
        raise RunError(f"{path}: the report cannot be written: {error.strerror}") from error
    return records


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Folder names, or whole paths where two are alike. Refuses runs of different tasks."""
    if not records:
        raise DataError("a report needs at least one run, got none")
    tasks = {record.task: record.path for record in records}
    if len(tasks) > 1:
        told = ", ".join(f"{path}: {task}" for task, path in tasks.items())
        raise DataError(f"runs side by side need one task, got {told}")
    names = [record.name for record in records]
    return names if len(set(names)) == len(names) else [str(record.path) for record in records]
