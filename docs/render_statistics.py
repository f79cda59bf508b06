"""The measurements and the tables of docs/statistics.md.

`python docs/render_statistics.py` renders the tables from docs/results/statistics.json; `--measure`
first measures again (about five minutes on one core) and writes that file; `--check` only says
whether the document is current. Everything is a function of named seeds: measuring twice gives the
same file.
"""

import json
import sys
from functools import partial
from pathlib import Path

import blocks
import numpy as np
from scipy import stats

from brorl.evaluate.render import Table, cell, p_value, to_markdown
from brorl.seeds import generator
from brorl.stats.clustered import clustered_difference
from brorl.stats.intervals import bootstrap_interval, mean_interval
from brorl.stats.paired import paired_t
from brorl.stats.power import design_effect, from_summary

DOCUMENT = Path(__file__).with_name("statistics.md")
RESULT = Path(__file__).with_name("results") / "statistics.json"
PROBLEMS = (30, 200, 500)
MEANS = (0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98)
# a + b of the Beta distribution of success rates, and samples a problem: from all-or-nothing
# problems answered once to problems that are all alike.
POPULATIONS = ((1e-3, 1), (0.3, 16), (1.0, 16), (5.0, 16), (1e9, 16))
ROUNDS, BOOTSTRAP_ROUNDS, RESAMPLES = 4000, 500, 500
LEVEL = 0.95

# arXiv:2510.01180v1, tables 3 to 5: the last ProRL row (+535 steps), the last BroRL row (+191).
COLUMNS = {
    "math": (
        (54.38, 35.83, 80.42, 92.15, 48.55, 60.77),
        (57.50, 36.88, 81.02, 92.14, 49.08, 61.54),
    ),
    "code": ((59.67, 55.09, 59.13, 37.06), (61.59, 56.62, 60.86, 37.74)),
    "Reasoning Gym": (
        (97.46, 55.56, 4.79, 85.70, 48.43, 46.33, 25.71, 92.56, 70.40, 80.31, 85.29),
        (97.59, 59.65, 6.27, 86.17, 49.45, 45.51, 25.77, 93.00, 72.03, 80.94, 85.56),
    ),
}
PAPER = {"difference": 0.0033, "t": 4.84, "pairs": 10_000}  # the same paper, its statistical test


def coverage(problems: int, mean: float, concentration: float, samples: int) -> dict[str, float]:
    """Share of simulated data sets whose 95 % interval holds the true mean, by rule."""
    path = ("coverage", problems, str(mean), str(concentration), samples)
    rng = generator(0, *path)
    t = float(stats.t.ppf(0.5 + LEVEL / 2, problems - 1))
    hits = {"mean_interval": 0, "student": 0, "bootstrap": 0}
    for round_ in range(ROUNDS):
        rates = rng.beta(concentration * mean, concentration * (1 - mean), problems)
        x = rng.binomial(samples, rates) / samples
        half = t * x.std(ddof=1) / np.sqrt(problems)
        hits["student"] += bool(abs(x.mean() - mean) <= half)
        got = mean_interval(x, level=LEVEL)
        hits["mean_interval"] += got.low <= mean <= got.high
        if round_ < BOOTSTRAP_ROUNDS:
            got = bootstrap_interval(x, level=LEVEL, resamples=RESAMPLES, seed=round_)
            hits["bootstrap"] += got.low <= mean <= got.high
    rounds = {"bootstrap": BOOTSTRAP_ROUNDS}
    return {rule: count / rounds.get(rule, ROUNDS) for rule, count in hits.items()}


def false_alarms(tasks: int, size: int, correlation: float, rounds: int) -> dict[str, float]:
    """Share of true nulls rejected at 5 % when problems of a task are alike."""
    rng = generator(0, "false-alarms", tasks, size, str(correlation))
    labels = np.repeat(np.arange(tasks), size).tolist()
    hits = {"problems": 0, "tasks": 0}
    for _ in range(rounds):
        shared = np.sqrt(correlation) * rng.normal(size=(tasks, 1))
        d = (shared + np.sqrt(1 - correlation) * rng.normal(size=(tasks, size))).ravel()
        hits["problems"] += paired_t(d, level=LEVEL).p_two_sided <= 0.05
        test = clustered_difference(d, labels, level=LEVEL).test
        hits["tasks"] += test.p_two_sided <= 0.05
    return {rule: count / rounds for rule, count in hits.items()}


def measure() -> dict[str, list[dict[str, object]]]:
    """Everything that takes time."""
    covered = [
        {
            "problems": k,
            "mean": m,
            "concentration": c,
            "samples": n,
            **coverage(k, m, c, n),
        }
        for k in PROBLEMS
        for m in MEANS
        for c, n in POPULATIONS
    ]
    alarms = [
        {"tasks": 96, "size": 100, "correlation": rho, **false_alarms(96, 100, rho, 2000)}
        for rho in (0.0, 0.01, 0.03, 0.08, 0.2)
    ]
    return {"coverage": covered, "false_alarms": alarms}


def tables(measured: dict[str, list[dict[str, object]]]) -> dict[str, str]:
    """The page's tables by name."""
    return {
        "coverage": to_markdown(_coverage_table(measured["coverage"])),
        "false-alarms": to_markdown(_alarm_table(measured["false_alarms"])),
        "paper": to_markdown(_paper_table()),
        "paper-clusters": to_markdown(_cluster_table()),
        "paper-columns": to_markdown(_column_table()),
    }


def _coverage_table(rows: list[dict[str, object]]) -> Table:
    rules = (
        ("mean_interval", "mean_interval"),
        ("student", "Student's t"),
        ("bootstrap", "bootstrap"),
    )
    lines = []
    for k in PROBLEMS:
        for m in MEANS:
            cells = [r for r in rows if r["problems"] == k and r["mean"] == m]
            shares = [[100 * c[rule] for c in cells] for rule, _ in rules]
            spans = [f"{min(x):.1f} to {max(x):.1f}" for x in shares]
            lines.append((f"{k}", f"{m:g}", *spans))
    return Table("", ("problems", "true mean", *(name for _, name in rules)), tuple(lines))


def _alarm_table(rows: list[dict[str, object]]) -> Table:
    lines = tuple(
        (
            f"{r['correlation']:g}",
            f"{design_effect(r['size'], r['correlation']):.1f}",
            f"{100 * r['problems']:.1f} %",
            f"{100 * r['tasks']:.1f} %",
        )
        for r in rows
    )
    return Table(
        "", ("correlation in a task", "design effect", "over problems", "over tasks"), lines
    )


def _paper_table() -> Table:
    lines = []
    for pairs in (10_001, 20_000):
        got = from_summary(PAPER["difference"], PAPER["t"], pairs)
        lines.append(
            (
                f"{pairs:,}",
                f"{got.standard_error:.2e}",
                f"{got.spread:.3f}",
                f"{got.p_greater:.1e}",
                f"{got.p_two_sided:.1e}",
            )
        )
    columns = ("pairs", "standard error", "s.d. of one difference", "p one-tailed", "p two-sided")
    return Table("", columns, tuple(lines))


def _cluster_table() -> Table:
    lines = []
    for rho in (0.0, 0.01, 0.03, 0.05, 0.08, 0.2):
        factor = design_effect(100, rho)
        t = PAPER["t"] / factor**0.5
        lines.append((f"{rho:g}", f"{factor:.1f}", f"{t:.2f}", p_value(float(stats.t.sf(t, 99)))))
    return Table("", ("correlation in a task", "design effect", "t", "p one-tailed"), tuple(lines))


def _column_table() -> Table:
    parts = {name: (np.array(b) - np.array(a)) / 100 for name, (a, b) in COLUMNS.items()}
    lines = []
    for name, d in {"all": np.concatenate(list(parts.values())), **parts}.items():
        test = paired_t(d, level=LEVEL)
        rose = f"{int((d > 0).sum())} of {d.size}"
        change = cell(test.difference, sign=True)
        lines.append((name, change, f"{test.t:.2f}", p_value(test.p_greater), rose))
    return Table("", ("columns", "mean difference", "t", "p one-tailed", "rose"), tuple(lines))


def rendered(page: str, filled: dict[str, str]) -> str:
    """The document with every table between its markers rendered anew."""
    return blocks.fill(page, _blocks(filled))


def _blocks(filled: dict[str, str]) -> blocks.Blocks:
    return {name: partial(filled.__getitem__, name) for name in filled}


def _measure() -> None:
    RESULT.write_text(json.dumps(measure(), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(
        blocks.main(__doc__, lambda: _blocks(tables(json.loads(RESULT.read_text()))), _measure)
    )
