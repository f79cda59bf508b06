"""`brorl report`: write the page of a run, of several side by side, or of a study."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders; several of one task stand together. Or the folder of one study.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page's file: RUN/report.html, or ./report.html for several runs."),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Write it again as the runs go on, until all are finished."),
    ] = False,
    every: Annotated[
        int | None, typer.Option(help="Seconds between looks with --watch; 10 where not given.")
    ] = None,
) -> None:
    """Write one self-contained HTML page and print its path.

    A study's page is rendered from its result.json, beside it.

    Example: brorl report runs/narrow runs/wide --out compare.html
    """
    from brorl.errors import ConfigError
    from brorl.report.run import FILE, write_page

    if every is not None and not watch:
        raise ConfigError("--every is for --watch: without it the page is written once")
    if every is not None and every < 1:
        raise ConfigError(f"--every needs at least 1 second, got {every}")
    if any(map(_is_study, runs)):
        typer.echo(_study(runs, {"--out": out, "--watch": watch}))
        return
    path = out or (runs[0] / FILE if len(runs) == 1 else Path(FILE))
    if out is not None and not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: {path.parent} is not a folder")
    if watch:
        _watch(runs, path, 10 if every is None else every)
    else:
        write_page(runs, path, refresh_s=None)
    typer.echo(path)


def _is_study(folder: Path) -> bool:
    """Whether a folder has a study's plan or result, and no run's configuration."""
    from brorl.record.rundir import CONFIG
    from brorl.studies.runner.outcome import RESULT
    from brorl.studies.runner.run import FILE

    has_run = (folder / CONFIG).is_file()
    return not has_run and any((folder / name).is_file() for name in (FILE, RESULT))


def _study(folders: list[Path], options: dict[str, object]) -> Path:
    """Hand over to the study's own report."""
    from brorl.errors import ConfigError
    from brorl.studies.runner.run import report_study

    if len(folders) > 1:
        found = next(f for f in folders if _is_study(f))
        raise ConfigError(
            f"{found} is a study: its report stands alone, got {len(folders)} folders"
        )
    idle = [name for name, value in options.items() if value]
    if idle:
        raise ConfigError(f"{' and '.join(idle)} is for runs, and {folders[0]} is a study")
    return report_study(folders[0])


def _watch(runs: list[Path], path: Path, every_s: int) -> None:
    """Rewrite the page when something new is recorded; a browser that shows it follows.

    Ends with the last step of the last run, or by Ctrl-C: a run that was stopped may be resumed
    meanwhile.
    """
    from brorl.errors import Interrupted

    try:
        _follow(runs, path, every_s)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped watching; the page is {path}") from None


def _follow(runs: list[Path], path: Path, every_s: int) -> None:
    from brorl.errors import DataError
    from brorl.report.run import write_page

    seen, told = None, False
    while True:
        now = _state(runs)
        if now != seen:
            try:
                records = write_page(runs, path, refresh_s=every_s)
            except DataError:
                if not told:
                    raise
                time.sleep(every_s)  # a resume is cutting files back: look again
                continue
            seen = now
            if all(record.finished for record in records):
                write_page(runs, path, refresh_s=None)
                return
            if not told:
                print(f"watching; open {path}", file=sys.stderr)
                told = True
        time.sleep(every_s)


def _state(runs: list[Path]) -> list[tuple[int, int] | None]:
    """Size and time of every run's metrics: a step appends a line last of all its files."""
    from brorl.record.metrics import FILE

    found: list[tuple[int, int] | None] = []
    for run in runs:
        try:
            stat = (run / FILE).stat()
            found.append((stat.st_size, stat.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found
