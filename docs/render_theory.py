"""The sweep, the figures and the tables of docs/theory.md.

`python docs/render_theory.py` renders the tables of the document from docs/results/simulator.json;
`--measure` first runs the sweep again (eight cells, five seeds, some three minutes of processor
time), writes that file and draws the figures; `--check` only says whether the document is current.
Everything is a function of the seed: measuring twice gives the same numbers.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import blocks
import numpy as np

from brorl.seeds import generator
from brorl.simulator.curves import simulate
from brorl.simulator.figure import draw, draw_sweep
from brorl.simulator.flat import make_settings, sweep_cells
from brorl.simulator.output import result_object
from brorl.simulator.step import TokenSimulator
from brorl.theory.correct_mass import mass_change, weighted_mass_change
from brorl.theory.coverage import expected_unsampled_second_moment, width_for_share

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/theory.md"
RESULT = ROOT / "docs/results/simulator.json"
FIGURES = ROOT / "docs/figures"
AXES = ["eps=1e-8,1e-10,1e-12,1e-20", "decay=0.01,0"]
SEEDS = 5
BLOCK = blocks.BLOCK


def measure() -> None:
    """Run the sweep; write its rows and draw the two figures, marked with the rows' digest."""
    cells = sweep_cells({"seeds": SEEDS}, AXES)
    done = 0

    def on_steps(steps: int) -> None:
        nonlocal done
        before, done = done // 100_000, done + steps
        if done // 100_000 > before:
            print(f"{done:,} steps", file=sys.stderr)

    curves = simulate(
        [cell.settings for cell in cells],
        workers=len(os.sched_getaffinity(0)),
        on_steps=on_steps,
    )
    result = result_object(cells, curves, 0.0)
    del result["seconds"]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    FIGURES.mkdir(exist_ok=True)
    mark = {"Description": digest()}
    draw(curves[0], FIGURES / "theory_simulator.png", mark)
    draw_sweep(cells, curves, FIGURES / "theory_eps_decay.png", mark)


def digest() -> str:
    """Of the result file; the figures carry the one they were drawn from."""
    return (
        "sha256 of docs/results/simulator.json: " + hashlib.sha256(RESULT.read_bytes()).hexdigest()
    )


def counterexample() -> str:
    """Multiplicities: the same draws as a set and as counts."""
    p = np.array([0.6, 0.1, 0.3])
    correct = sampled = np.array([True, True, False])
    counts = np.array([1.0, 10.0, 0.0])
    as_set = mass_change(p, correct, sampled, reward_correct=1.0, reward_wrong=-1.0)
    counted = weighted_mass_change(p, correct, sampled, counts)
    lines = [
        "| weights | S | sampled correct | sampled wrong | unsampled | total |",
        "|---|---|---|---|---|---|",
    ]
    for name, s, terms in (
        ("each token once: 1, 1, 0", p[sampled].sum(), as_set),
        ("as drawn: 1, 10, 0", counts @ p, counted),
    ):
        parts = " | ".join(_signed(x) for x in (*terms, terms.total))
        lines.append(f"| {name} | {s:.1f} | {parts} |")
    return "\n".join(lines) + "\n"


def moments() -> str:
    """Lemma 2 on the start of the paper's simulation."""
    simulator = TokenSimulator(make_settings({}), 4)
    p = np.empty(128_000)
    p[: simulator.p_L.size] = simulator.p_L
    p[simulator.p_L.size :] = simulator.p_L[-1]
    correct = np.arange(p.size) < 10_000
    widths = (0, 4, 16, 512, 51_200)
    u2 = expected_unsampled_second_moment(p, correct, widths)
    lines = ["| N | E[U2], correct | left | E[U2], wrong | left |", "|---|---|---|---|---|"]
    for n, right, wrong in zip(widths, u2.correct_W, u2.wrong_W, strict=True):
        shares = right / u2.correct_W[0], wrong / u2.wrong_W[0]
        lines.append(f"| {n:,} | {right:.3g} | {shares[0]:.1%} | {wrong:.3g} | {shares[1]:.1%} |")
    needed = ", ".join(
        f"{100 * (1 - s):g} % at N = {width_for_share(p, share=s):,}" for s in (0.5, 0.1, 0.01)
    )
    return "\n".join(lines) + f"\n\nOver all tokens E[U2] has lost {needed}.\n"


def coupling_steps() -> str:
    """How far Adam takes a token that is never drawn, by eps, at the start and N = 4."""
    z = np.array([5.0, 3.0, 0.0])  # anchor, other correct tokens, wrong tokens
    p = np.exp(z) / (np.exp(z) @ [1, 9_999, 118_000])
    masses = p * [1, 9_999, 118_000]
    counts = generator(0, "docs", "coupling").multinomial(4, masses / masses.sum(), size=10_000)
    rewards = np.array([1.0, 1.0, -1.0])
    advantages = rewards - (counts @ rewards / 4)[:, None]
    pull = np.abs((counts * advantages) @ p / 4).mean()
    right, wrong = p[1] * pull, p[2] * pull
    lines = [
        f"A correct token that is never drawn has a gradient of about {right:.1e}, a wrong one of "
        f"{wrong:.1e}: both are p times the same mean pull of the drawn tokens, {pull:.1e}.\n",
        "| eps | step of the correct one, in lr | of the wrong one | difference |",
        "|---|---|---|---|",
    ]
    for eps in (1e-8, 1e-10, 1e-12, 1e-20):
        a, b = right / (right + eps), wrong / (wrong + eps)
        lines.append(f"| 1e{np.log10(eps):.0f} | {a:.3f} | {b:.3f} | {a - b:.3f} |")
    return "\n".join(lines) + "\n"


def _signed(value: float) -> str:
    return f"{round(value, 4) + 0.0:+.4f}"  # + 0.0: no minus sign on a zero


def _result() -> dict[str, Any]:
    return dict(json.loads(RESULT.read_text()))


def _rows(result: Mapping[str, Any], eps: str, decay: str) -> list[dict[str, Any]]:
    return [r for r in result["rows"] if r["cell"] == {"eps": eps, "decay": decay}]


def figure_table() -> str:
    """The defaults: ends of the curves over seeds."""
    result = _result()
    lines = [
        "| N | correct mass at the end | improved | worst change over the run | sampled correct "
        "| sampled wrong | unsampled | of it never drawn | of all: decay |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in _rows(result, "1e-8", "0.01"):
        each = [s["correct_mass"] for s in row["per_seed"]]
        worst = [s["worst_change"] for s in row["per_seed"]]
        parts = ("sampled_correct", "sampled_wrong", "unsampled", "never_drawn", "decay")
        lines.append(
            f"| {row['n']:,} | {row['correct_mass']:.4f} ({min(each):.4f} to {max(each):.4f}) "
            f"| {row['improved_share']:.1%} | {min(worst):.1e} to {max(worst):.1e} | "
            + " | ".join(_signed(row[name]) for name in parts)
            + " |"
        )
    start = result["rows"][0]["correct_mass_start"]
    seeds = result["settings"]["seeds"]
    return (
        "\n".join(lines) + f"\n\nStart {start:.4f}; means over {seeds} seeds, ranges in brackets.\n"
    )


def cell_table() -> str:
    """Total change of the correct mass in every cell."""
    result = _result()
    widths = result["settings"]["widths"]
    lines = [
        "| eps | decay | " + " | ".join(f"N = {n:,}" for n in widths) + " |",
        "|---|---|" + "---|" * len(widths),
    ]
    for axes in dict.fromkeys(tuple(row["cell"].values()) for row in result["rows"]):
        changes = [row["correct_mass"] - row["correct_mass_start"] for row in _rows(result, *axes)]
        lines.append(
            f"| {axes[0]} | {axes[1]} | " + " | ".join(f"{c:+.4f}" for c in changes) + " |"
        )
    return "\n".join(lines) + "\n"


def effect_table() -> str:
    """Two factors, their sum and their interaction."""
    effects = _result()["effects"]
    names = [f"{f['name']} {f['from']} → {f['to']}" for f in effects["factors"]]
    lines = [
        f"| N | change as given | {names[0]} adds | {names[1]} adds | both add | interaction |",
        "|---|---|---|---|---|---|",
    ]
    for row in effects["rows"]:
        cells = (
            f"{row[k]['value']:+.4f} ± {row[k]['standard_error']:.5f}"
            for k in ("reference", "first", "second", "both", "interaction")
        )
        lines.append(f"| {row['n']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\nMean ± standard error over seeds, cells paired by seed.\n"


def answer() -> str:
    """Which part of the decline is whose, in words, at every width that declines."""
    result = _result()
    lines = []
    for row, effect in zip(_rows(result, "1e-8", "0.01"), result["effects"]["rows"], strict=True):
        change = row["exact_change"]
        if change >= 0:
            continue
        eps, decay, both = (effect[k] for k in ("first", "second", "interaction"))
        sampled = row["sampled_correct"] + row["sampled_wrong"]
        lines.append(
            f"- **N = {row['n']}**: the correct mass changes by {change:+.4f}. Sampled tokens add "
            f"{sampled:+.4f}, **unsampled tokens {row['unsampled']:+.4f}**, and nearly all of "
            f"that, {row['never_drawn']:+.4f}, is on tokens that no step ever drew. Of the change, "
            f"**weight decay is {row['decay']:+.4f}**; without it {change + decay['value']:+.4f} "
            f"is left. **With eps at 1e-20 and the decay kept the mass rises**, by "
            f"{change + eps['value']:+.4f}: eps is worth {-eps['value']:+.4f}. The two nearly add "
            f"up: their interaction is {both['value']:+.4f} ± {both['standard_error']:.5f}."
        )
    return "\n".join(lines) + "\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "theory.counterexample": counterexample,
    "theory.moments": moments,
    "theory.coupling": coupling_steps,
    "theory.figure": figure_table,
    "theory.cells": cell_table,
    "theory.effects": effect_table,
    "theory.answer": answer,
}


def rendered(text: str) -> str:
    """The document with its blocks rendered anew."""
    return blocks.fill(text, BLOCKS)


if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS, measure))
