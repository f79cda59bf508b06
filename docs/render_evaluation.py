"""The example, the figures and the tables of docs/evaluation.md.

`python docs/render_evaluation.py` renders the document from docs/results/evaluation/*.json;
`--measure` first trains the quickstart and evaluates it (some ten minutes on two idle cores),
writes those files and draws docs/figures/evaluation-*.svg; `--check` only says whether the document
is current.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import blocks

from brorl.cli.eval import evaluate
from brorl.evaluate import comparison_report
from brorl.evaluate.compare import Comparison, Knobs, claim, compare_arms
from brorl.evaluate.distribution import distribution
from brorl.evaluate.figures import curves_svg, pass_curve
from brorl.evaluate.pairing import Arm
from brorl.evaluate.render import Table, to_markdown
from brorl.evaluate.results import read_evaluation
from brorl.evaluate.suites import BENCHMARKS
from brorl.evaluate.tables import by_suite, protocol_sentence, summary_table
from brorl.tasks.build import build_task
from brorl.train.api import train, warm_start_only
from brorl.train.recipe import load_recipe

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/evaluation.md"
RESULTS = ROOT / "docs/results/evaluation"
FIGURES = ROOT / "docs/figures"
PROBLEMS, SAMPLES, LEVEL = 64, 16, 0.95
KNOBS = Knobs("score", LEVEL, 0.8, exact_up_to=16, draws=20_000, seed=0, common=False)


def measure() -> None:
    """The warm-started policy under two seeds, and the trained one, on the same words."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = load_recipe("quickstart")
        words = build_task(recipe.task, {}).problems("eval")[:PROBLEMS]
        suite = folder / "reversed.jsonl"
        rows = [json.dumps({"prompt": p.prompt, "answer": p.gold}) + "\n" for p in words]
        suite.write_text("".join(rows))
        warm, _ = warm_start_only("quickstart")
        run = train("quickstart", {"run_dir": str(folder / "trained")})["run"]
        RESULTS.mkdir(parents=True, exist_ok=True)
        for label, source, seed in (
            ("warm", warm, 0),
            ("warm-again", warm, 1),
            ("trained", run, 0),
        ):
            model = folder / label
            if not model.exists():
                shutil.copytree(source, model)
            evaluate(
                str(model),
                [str(suite)],
                samples=SAMPLES,
                temperature=1.0,
                top_p=1.0,
                max_new_tokens=12,
                seed=seed,
                verifier="exact",
                out=folder / f"out-{label}",
            )
            found = read_evaluation(folder / f"out-{label}/evaluation.json")
            plain = found.model.model_copy(update={"source": label})
            own = found.suites["reversed"].model_copy(update={"source": "reversed.jsonl"})
            found = found.model_copy(update={"model": plain, "suites": {"reversed": own}})
            (RESULTS / f"{label}.json").write_text(found.model_dump_json() + "\n")
    draw()


def draw() -> None:
    """The pass@k curves."""
    curves = [
        pass_curve(
            label,
            read_evaluation(RESULTS / f"{label}.json").suites["reversed"].problems,
            level=LEVEL,
            resamples=2000,
            seed=0,
        )
        for label in ("warm", "warm-again", "trained")
    ]
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / "evaluation-pass-at-k.svg").write_text(curves_svg(curves, level=LEVEL) + "\n")


def suites_table() -> str:
    """Every benchmark, where its file belongs and where it comes from."""
    rows = tuple(
        (name, f"`{b.file}`", b.verifier, b.origin, b.hub or "") for name, b in BENCHMARKS.items()
    )
    columns = ("suite", "file in the data folder", "verifier", "copied from", "on the hub")
    return to_markdown(Table("", columns, rows))


def example_table() -> str:
    """Summary of the three evaluations."""
    found = [
        read_evaluation(RESULTS / f"{label}.json") for label in ("warm", "warm-again", "trained")
    ]
    rows = [s._replace(name=e.model.source) for e in found for s in by_suite(e, level=LEVEL)]
    return f"{protocol_sentence(found[0])}\n\n{to_markdown(summary_table('', rows, level=LEVEL))}"


def _compared(a: str, b: str) -> tuple[Arm, Arm, Comparison]:
    arms = [Arm(x, ((x, read_evaluation(RESULTS / f"{x}.json")),)) for x in (a, b)]
    return arms[0], arms[1], compare_arms(arms[0], arms[1], KNOBS)


def comparison(a: str, b: str) -> str:
    """What `brorl compare` says, without the per-task tables of which there are none here."""
    one, two, c = _compared(a, b)
    beside = distribution(one, two, level=LEVEL, resamples=2000, seed=0, common=False)
    page = comparison_report.report([c], [c.headline.p_two_sided], [beside], [], figures=False)
    shown = [t for t in page.tables if t.title == "Tests" or t.title.startswith("Beside")]
    return "\n\n".join([f"> {claim(c)}", *(to_markdown(t) for t in shown)])


BLOCKS: dict[str, Callable[[], str]] = {
    "suites": suites_table,
    "example": example_table,
    "same": lambda: comparison("warm", "warm-again"),
    "gain": lambda: comparison("warm", "trained"),
}


def rendered(page: str) -> str:
    """The document with every table between its markers rendered anew."""
    return blocks.fill(page, BLOCKS)


if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS, measure))
