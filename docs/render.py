"""Put numbers into documents: blocks between markers are rendered from result files.

    <!-- begin NAME --> ... <!-- end NAME -->

`python docs/render.py` rewrites every block; `--check` only says which are out of date.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- begin (?P<name>[\w.-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)


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
        f"`make run` took {first['wall_s']:.0f} s after installation and prints the above; "
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


BLOCKS: dict[str, Callable[[], str]] = {
    "quickstart": quickstart_table,
    "make": make_output,
    "adaptive-weights": adaptive_weights,
}


def rendered(text: str) -> str:
    """The document with every block it holds rendered anew."""

    def fill(match: re.Match[str]) -> str:
        return match.group(1) + BLOCKS[match.group("name")]() + match.group(3)

    return BLOCK.sub(fill, text)


def documents() -> list[Path]:
    """Every Markdown file that holds a block of ours."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return [
        f
        for f in sorted(files)
        if any(m.group("name") in BLOCKS for m in BLOCK.finditer(f.read_text()))
    ]


def main() -> int:
    """Rewrite, or check; 1 where a document is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [f for f in documents() if rendered(f.read_text()) != f.read_text()]
    for file in stale:
        print(f"{file.relative_to(ROOT)}: {'out of date' if check else 'rendered'}")
        if not check:
            file.write_text(rendered(file.read_text()))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
