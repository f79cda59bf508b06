"""A comparison as sentences, tables, figures and JSON."""

import math
from collections.abc import Sequence
from typing import Any

from brorl.evaluate.compare import Comparison, Part, claim
from brorl.evaluate.distribution import Distribution
from brorl.evaluate.figures import changes_svg
from brorl.evaluate.regimes import TaskRegime
from brorl.evaluate.render import Page, Table, cell, number, p_value
from brorl.stats.clustered import Clustered
from brorl.stats.intervals import Interval


def as_json(c: Comparison) -> dict[str, Any]:
    """The object that `brorl compare A B --json` prints."""
    d = c.headline.difference
    return {
        "a": c.a,
        "b": c.b,
        "metric": c.metric,
        "level": c.level,
        "difference": d.value,
        "low": d.low,
        "high": d.high,
        "standard_error": c.standard_error,
        "p_value": {
            "t": c.headline.p_two_sided,
            "permutation": c.permutation.p_two_sided,
            "wilcoxon": c.wilcoxon,
        },
        "permutation_exact": c.permutation.exact,
        "problems": c.problems,
        "runs": [c.runs_a, c.runs_b],
        "mean_a": c.mean_a._asdict(),
        "mean_b": c.mean_b._asdict(),
        "effect_size": _finite(c.effect_size),
        "counts": c.counts._asdict(),
        "smallest_detectable": c.smallest_detectable,
        "power": c.power,
        "by_benchmark": _clustered(c.by_benchmark),
        "by_task": _clustered(c.by_task),
        "run_standard_error": c.by_runs.run_standard_error if c.by_runs else None,
        "benchmarks": [_part(p) for p in c.benchmarks],
        "tasks": [_part(p) for p in c.tasks],
        "claim": claim(c),
        "notes": list(c.notes),
    }


def _clustered(x: Clustered | None) -> dict[str, Any] | None:
    if x is None:
        return None
    return {
        "low": x.test.difference.low,
        "high": x.test.difference.high,
        "p": x.test.p_two_sided,
        "clusters": x.clusters,
        "design_effect": _finite(x.design_effect),
    }


def _finite(x: float) -> float | None:
    """JSON has neither nan nor infinity."""
    return x if math.isfinite(x) else None


def _part(part: Part) -> dict[str, Any]:
    return part._asdict() | {"difference": part.difference._asdict() if part.difference else None}


def distribution_json(d: Distribution) -> dict[str, Any]:
    """What changed beside the mean, for `brorl compare --json`."""
    m, x = d.moves, d.crossing
    return {
        "shifts": [s._asdict() | {"difference": s.difference._asdict()} for s in d.shifts],
        "moves": m._asdict() | {"newly_solved": m.newly_solved._asdict(), "lost": m.lost._asdict()},
        "pass@k": {
            str(k): {"difference": float(v), "low": float(low), "high": float(high)}
            for k, v, low, high in zip(d.ks, x.difference_J, x.low_J, x.high_J, strict=True)
        },
        "crossing": {"k": x.k, "low": x.low, "high": x.high, "share_of_resamples": x.share},
    }


def report(
    comparisons: Sequence[Comparison],
    adjusted: Sequence[float],
    distributions: Sequence[Distribution],
    regimes: Sequence[TaskRegime],
    *,
    figures: bool,
) -> Page:
    """One page: a claim for each arm against the first, then what it rests on."""
    first = comparisons[0]
    sentences = [claim(c) for c in comparisons]
    for c in comparisons:
        sentences += [f"{c.b}: {note}." for note in c.notes]
    tables = [_tests(comparisons, adjusted)]
    for c, d in zip(comparisons, distributions, strict=True):
        tables.append(_levels(c))
        for title, parts in (("Benchmarks", c.benchmarks), ("Tasks", c.tasks)):
            if len(parts) > 1:
                tables.append(_parts(f"{title}: {c.b} against {c.a}", parts))
        tables += [_shifts(c, d), _reach(c, d)]
    if regimes:
        tables.append(_regimes(regimes, comparisons[0]))
    drawn = [
        changes_svg(parts, a=c.a, b=c.b, level=c.level)
        for c in comparisons
        for parts in (c.benchmarks, c.tasks)
        if figures and len(parts) > 1
    ]
    others = ", ".join(c.b for c in comparisons)
    title = f"{others} against {first.a}, {first.metric}"
    return Page(title, tuple(sentences), tuple(tables), tuple(drawn))


def _tests(comparisons: Sequence[Comparison], adjusted: Sequence[float]) -> Table:
    names = (
        "problems",
        f"mean {comparisons[0].a}",
        "mean",
        "difference",
        "t-test p",
        "sign-flip p",
        "Wilcoxon p",
        "effect size",
        "wins/ties/losses",
        "smallest detectable",
    )
    columns = [
        [
            f"{c.problems}",
            cell(c.mean_a),
            cell(c.mean_b),
            cell(c.headline.difference, sign=True),
            p_value(c.headline.p_two_sided),
            p_value(c.permutation.p_two_sided) + ("" if c.permutation.exact else " (sampled)"),
            p_value(c.wilcoxon),
            number(c.effect_size, 3),
            "/".join(str(x) for x in c.counts),
            number(c.smallest_detectable),
        ]
        for c in comparisons
    ]
    rows = [(name, *(column[i] for column in columns)) for i, name in enumerate(names)]
    if len(comparisons) > 1:
        rows.append(("t-test p, Holm over arms", *(p_value(p) for p in adjusted)))
    c = comparisons[0]
    return Table(
        "Tests",
        ("", *(c.b for c in comparisons)),
        tuple(rows),
        f"{100 * c.level:g} % intervals; detectable with {100 * c.power:g} % chance.",
    )


def _levels(c: Comparison) -> Table:
    """The same difference with other things taken as drawn."""
    drawn, count = "problems", f"{c.problems}"
    if c.by_runs is not None:
        drawn, count = "problems and runs", f"{c.problems}, {c.runs_a} + {c.runs_b}"
    d, p = cell(c.headline.difference, sign=True), p_value(c.headline.p_two_sided)
    rows = [(drawn, count, d, p, "-")]
    for name, clustered in (("tasks", c.by_task), ("benchmarks", c.by_benchmark)):
        if clustered is not None:
            rows.append(
                (
                    name,
                    f"{clustered.clusters}",
                    cell(clustered.test.difference, sign=True),
                    p_value(clustered.test.p_two_sided),
                    number(clustered.design_effect, 2),
                )
            )
    return Table(
        f"{c.b} against {c.a}: what counts as drawn",
        ("drawn", "units", "difference", "t-test p", "design effect"),
        tuple(rows),
        "Fewer than about 10 clusters make even the clustered interval too narrow.",
    )


def _parts(title: str, parts: Sequence[Part]) -> Table:
    ordered = sorted(parts, key=lambda p: p.mean_b - p.mean_a, reverse=True)
    rows = tuple(
        (
            p.name,
            f"{p.problems}",
            number(p.mean_a),
            number(p.mean_b),
            cell(p.difference, sign=True) if p.difference else f"{p.mean_b - p.mean_a:+.4f}",
            p_value(p.p),
            p_value(p.p_holm),
        )
        for p in ordered
    )
    return Table(title, ("", "problems", "A", "B", "B - A", "p", "p (Holm)"), rows)


def _shifts(c: Comparison, d: Distribution) -> Table:
    rows = [
        (
            s.name,
            f"{s.problems}",
            f"{s.mean_a:.4g}",
            f"{s.mean_b:.4g}",
            cell(s.difference, sign=True),
        )
        for s in d.shifts
    ]
    m = d.moves
    for name, share, chance in (
        ("newly solved, share", m.newly_solved, m.newly_by_chance),
        ("lost, share", m.lost, m.lost_by_chance),
    ):
        rows.append((name, f"{m.problems}", f"{chance:.4g} by chance", "", cell(share)))
    return Table(
        f"Beside the mean: {c.b} against {c.a}",
        ("", "problems", "A", "B", "B - A"),
        tuple(rows),
        "Newly solved: no success in A, at least one in B; by chance: if both were one policy. "
        f"Newly solved against lost: p = {p_value(m.p)} (exact sign test).",
    )


def _reach(c: Comparison, d: Distribution) -> Table:
    x = d.crossing
    rows = tuple(
        (f"{k}", cell(Interval(float(v), float(low), float(high)), sign=True))
        for k, v, low, high in zip(d.ks, x.difference_J, x.low_J, x.high_J, strict=True)
    )
    if x.k is None:
        where = "The two curves do not cross"
    else:
        where = f"The curves cross at k = {x.k:.1f}"
        if x.low is not None and x.high is not None:
            where += f" [{x.low:.1f}, {x.high:.1f}]"
    return Table(
        f"Reach: pass@k of {c.b} minus {c.a}",
        ("k", "B - A"),
        rows,
        f"{where}; {100 * x.share:.0f} % of resamples of problems cross. The band holds all k at "
        "once.",
    )


def _regimes(regimes: Sequence[TaskRegime], c: Comparison) -> Table:
    rows = tuple(
        (
            r.task,
            f"{r.problems}",
            cell(r.change_a, sign=True),
            cell(r.change_b, sign=True),
            r.regime,
        )
        for r in regimes
    )
    return Table(
        f"Change from the common start (A is {c.a}, B is {c.b})",
        ("task", "problems", "A", "B", "regime"),
        rows,
    )
