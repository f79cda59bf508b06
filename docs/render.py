"""Put numbers into documents: `python docs/render.py` rewrites these blocks (docs/blocks.py)."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import blocks

ROOT = Path(__file__).parent.parent


def quickstart_table() -> str:
    """Before and after of the quickstart, per seed."""
    result = json.loads((ROOT / "docs/results/quickstart.json").read_text())
    lines = [
        "| seed | held-out pass@1 before | after | samples | seconds |",
        "|---|---|---|---|---|",
    ]
    for run in result["runs"]:
        before, after = (
            f"{e['pass@1']:.3f} [{e['low']:.3f}, {e['high']:.3f}]"
            for e in (run["eval_before"], run["eval_after"])
        )
        lines.append(
            f"| {run['seed']} | {before} | {after} | {run['samples_generated']:,} | "
            f"{run['wall_s']:.0f} |"
        )
    lines.append(
        f"\n{result['problems']} held-out problems, {result['samples']} samples each, 95 % "
        f"intervals over problems; seconds are of the whole command, warm start and start-up "
        f"included, with {result['threads']} torch thread(s) on {result['cpus']} cores under a "
        f"load of {result['load'][0]:g} to {result['load'][1]:g}."
    )
    return "\n".join(lines) + "\n"


def make_output() -> str:
    """What the two commands print last, and their seconds."""
    quickstart = json.loads((ROOT / "docs/results/quickstart.json").read_text())
    tests = json.loads((ROOT / "docs/results/tests.json").read_text())
    first = quickstart["runs"][0]
    return (
        f"```\n{first['printed']}\n```\n\n"
        f"`make run` took {first['wall_s']:.0f} s after installation and prints the above on "
        f"{quickstart['machine']} (last bits differ between kinds of processor, and then more); "
        f"`make test` took {tests['seconds']} s and ends with `{tests['printed']}`: on "
        f"{tests['cpus']} cores, which other work kept busy as well (load {tests['load']:g}).\n"
    )


def adaptive_weights() -> str:
    """w(p) and E[n] of the default waves, relative to the first wave's fixed width."""
    from brorl.algo.waves import expected_samples, prompt_weight

    waves, stop_right = (16, 64, 256, 512), 2
    lines = [
        f"| p | E[n] | w(p), group mean | w(p), unbiased | w(p) of fixed N = {waves[0]} |",
        "|---|---|---|---|---|",
    ]
    for p in (0.0005, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9):
        n = expected_samples(p, waves=waves, stop_right=stop_right)
        group, unbiased = (
            prompt_weight(p, waves=waves, stop_right=stop_right, baseline=b)
            for b in ("group", "unbiased")
        )
        lines.append(f"| {p:g} | {n:.1f} | {group:.1f} | {unbiased:.1f} | {waves[0] - 1} |")
    lines.append(f"\nWaves {list(waves)}, stop at {stop_right} right answers.")
    return "\n".join(lines) + "\n"


def kill_table() -> str:
    """Where a hundred runs died, and how they ended when they had gone on."""
    result = json.loads((ROOT / "docs/results/kills.json").read_text())
    shown = {phase: n for phase, n in result["died_in"].items() if n}
    shown |= {"all": result["kills"], "identical endings": result["identical"]}
    return (
        f"| {' | '.join(shown)} |\n{'|---' * len(shown)}|\n"
        f"| {' | '.join(map(str, shown.values()))} |\n\n"
        f"`{result['command']}`: phases in which the process died by SIGKILL; "
        f"{result['killed_again_while_resuming']} were killed again while they went on. Compared "
        "with the unbroken run: metrics, weights, optimizer, answers, evaluations, names of files."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "quickstart": quickstart_table,
    "make": make_output,
    "kills": kill_table,
    "adaptive-weights": adaptive_weights,
}


def rendered(text: str) -> str:
    """The document with every block of this script rendered anew."""
    return blocks.fill(text, BLOCKS)


def documents() -> list[Path]:
    """Every Markdown file that holds one."""
    return blocks.documents(BLOCKS)


if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS))
