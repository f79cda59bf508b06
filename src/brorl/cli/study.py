"""`brorl study`: list, show, run and report studies."""

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

from brorl.cli.run import Json

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Experiments with a question, a prediction and a decision rule set before they ran.",
    epilog="Example: brorl study run width --smoke",
)
Name = Annotated[str, typer.Argument(metavar="STUDY", help="A name from `brorl study list`.")]


@app.command("list")
def list_studies(as_json: Json = False) -> None:
    """Every study with its question and its prediction.

    Example: brorl study list
    """
    from brorl.studies.runner.text import read_text, study_names

    texts = [read_text(name) for name in study_names()]
    if as_json:
        keys = ("name", "question", "prediction")
        rows = [{k: getattr(text, k) for k in keys} for text in texts]
        typer.echo(json.dumps({"studies": rows}))
        return
    for text in texts:
        typer.echo(f"{text.name}\n  {text.question}\n  Predicted: {text.prediction}")


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """A study's question, prediction, design, decision rule and cost, and its knobs.

    Example: brorl study show width
    """
    from brorl.studies.runner.spec import load_study
    from brorl.studies.runner.text import docstring, read_text

    text, whole = read_text(name), docstring(name)
    study = load_study(name)
    knobs = study.knobs().model_dump(mode="json")
    if as_json:
        more = {"knobs": knobs, "seeds": study.seeds, "minutes": study.minutes}
        typer.echo(json.dumps(text._asdict() | more))
        return
    typer.echo(f"{whole.strip()}\n\nKnobs, with their defaults ({study.seeds} seeds):")
    for key, value in knobs.items():
        typer.echo(f"  study.{key}={json.dumps(value)}")


@app.command()
def run(
    name: Name,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of every run (model.path=...), or knobs (study.samples=...).",
        ),
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes; decides nothing.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds; the study's own number if unset.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Scales the samples to the time, and ends runs that would exceed it.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The study's folder; runs/studies/NAME if unset.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Runs at once, a process each; 2 where there are cores. 0: in this one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a study, or go on with it; then say whether its prediction holds.

    Exit status: 0 it holds or is not decided, 1 it is refuted.

    Example: brorl study run width --seeds 5 --budget 60 study.widths=[16,64,256]
    """
    from brorl.studies.runner.run import run_study
    from brorl.studies.runner.spec import make_spec

    spec = make_spec(
        name,
        overrides or [],
        smoke=smoke,
        seeds=seeds,
        budget_minutes=budget,
        workers=workers,
    )
    with Terminal() as terminal:
        result = run_study(spec, out, terminal)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        said = {True: "holds", False: "is refuted", None: "is not decided"}[result["holds"]]
        typer.echo(f"The prediction {said}. {result['because']}\n{result['report']}")
    if result["holds"] is False:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished study.")],
    as_json: Json = False,
) -> None:
    """Render a study's report from its result.json, and print its path.

    Example: brorl study report runs/studies/width
    """
    from brorl.studies.runner.run import answer, report_study

    path = report_study(folder)
    typer.echo(json.dumps(answer(folder)) if as_json else path)


class Terminal:
    """A study's voice on standard error: notes as lines, and how far it is.

    A terminal has one line that is rewritten; a file gets a line a minute.
    """

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._said_at = time.monotonic()
        self._line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear()

    def note(self, text: str) -> None:
        """One line."""
        self._clear()
        print(text, file=sys.stderr, flush=True)

    def share(self, done: float, left_s: float | None, doing: str) -> None:
        """Done in [0, 1], the time left, what runs now."""
        from brorl.studies.runner.progress import clock

        now = time.monotonic()
        if now - self._said_at < (0.2 if self._live else 60.0):
            return
        self._said_at = now
        left = f", {clock(left_s)} left" if left_s is not None else ""
        line = f"{100 * done:5.1f} %{left}  {doing}"
        if not self._live:
            self.note(line)
            return
        self._clear()
        self._line = line[:100]
        print(self._line, end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._line:
            print(f"\r{' ' * len(self._line)}\r", end="", file=sys.stderr, flush=True)
        self._line = ""
