"""`brorl compare`: parse, call, print."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brorl.evaluate.pairing import Arm


def compare(
    arms: Annotated[
        list[str],
        typer.Argument(
            metavar="EVALUATION",
            help="Evaluations: a file, the folder of `brorl eval`, or a run (its newest one). The "
            "first is the reference. Join several runs of one recipe with commas: one arm.",
        ),
    ],
    metric: Annotated[
        str, typer.Option(help="score (mean score of the samples) or pass@K.")
    ] = "score",
    level: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    power: Annotated[float, typer.Option(help="For the smallest detectable difference.")] = 0.8,
    start: Annotated[
        str | None,
        typer.Option(help="Evaluation of the checkpoint that A and B both started from."),
    ] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Compare only the problems that all files have.")
    ] = False,
    draws: Annotated[int, typer.Option(help="Sign vectors of the permutation test.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of the permutation test and the bootstrap.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page with figures here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables here.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """Compare evaluations of the same problems, with intervals and paired tests.

    Example: brorl compare evals/base evals/wide-1,evals/wide-2,evals/wide-3
    """
    from brorl.errors import ConfigError
    from brorl.evaluate import comparison_report
    from brorl.evaluate.compare import Knobs, compare_arms, correct_for_arms
    from brorl.evaluate.distribution import distribution
    from brorl.evaluate.regimes import regimes
    from brorl.evaluate.render import page_html, page_markdown, page_text

    if len(arms) < 2:
        raise ConfigError(f"compare needs at least two evaluations, got {len(arms)}")
    if not 0 < level < 1 or not 1 - level < power < 1:
        raise ConfigError(
            f"need 0 < --level < 1 and 1 - level < --power < 1, got {level} and {power}"
        )
    if draws < 1:
        raise ConfigError(f"need --draws >= 1, got {draws}")
    if start is not None and len(arms) != 2:
        raise ConfigError(f"--start needs exactly two arms, got {len(arms)}")
    knobs = Knobs(metric, level, power, exact_up_to=16, draws=draws, seed=seed, common=common)
    reference, *others = _arms(arms)
    comparisons = [compare_arms(reference, other, knobs) for other in others]
    adjusted = correct_for_arms(comparisons)
    moved = regimes(_arms([start])[0], reference, others[0], knobs) if start else ()
    beside = [
        distribution(reference, other, level=level, resamples=2000, seed=seed, common=common)
        for other in others
    ]
    page = comparison_report.report(comparisons, adjusted, beside, moved, figures=html is not None)
    if html is not None:
        _write(html, page_html(page))
    if markdown is not None:
        _write(markdown, page_markdown(page))
    if not as_json:
        typer.echo(page_text(page))
        return
    objects: list[dict[str, Any]] = [
        comparison_report.as_json(c)
        | {"p_holm_over_arms": p, "distribution": comparison_report.distribution_json(d)}
        for c, p, d in zip(comparisons, adjusted, beside, strict=True)
    ]
    found = dict(objects[0])
    if len(objects) > 1:
        found["comparisons"] = objects
    if start:
        found["regimes"] = [
            r._asdict() | {k: getattr(r, k)._asdict() for k in ("change_a", "change_b", "b_over_a")}
            for r in moved
        ]
    typer.echo(json.dumps(found))


def _arms(arms: list[str]) -> list["Arm"]:
    """An Arm from each `FILE[,FILE]...`, named after its files as shortly as tells them apart."""
    from brorl.errors import ConfigError
    from brorl.evaluate.pairing import Arm
    from brorl.evaluate.results import read_evaluation

    files = [[name for name in arm.split(",") if name] for arm in arms]
    if not all(files):
        raise ConfigError(f"an arm is FILE or FILE,FILE, got {arms[files.index([])]!r}")
    short = ["+".join(_short(name) for name in names) for names in files]
    names = short if len(set(short)) == len(short) else arms
    return [
        Arm(name, tuple((file, read_evaluation(_evaluation(file))) for file in group))
        for name, group in zip(names, files, strict=True)
    ]


def _evaluation(name: str) -> Path:
    """The file that an argument means: itself, that of an --out folder, a run's newest."""
    from brorl.record.evals import eval_path, eval_steps

    path = Path(name)
    if not path.is_dir():
        return path
    inside = path / "evaluation.json"
    if not inside.exists() and (steps := eval_steps(path)):
        return eval_path(path, steps[-1])
    return inside


def _short(name: str) -> str:
    path = Path(name)
    return path.parent.name if path.name == "evaluation.json" else path.stem


def _write(path: Path, text: str) -> None:
    from brorl.errors import ConfigError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
