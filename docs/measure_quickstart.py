"""Run the quickstart for seeds 0, 1, 2 and record what it gave.

    python docs/measure_quickstart.py        # about five minutes on two idle cores

Writes docs/results/quickstart.json and docs/figures/quickstart.svg; `make docs` puts the figures
into the README. The runs are the shipped recipe, unchanged but for the seed.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib
import torch

matplotlib.use("svg")
import matplotlib.pyplot as plt

from brorl.cli.summary import summary
from brorl.record.metrics import read_metrics
from brorl.train.recipe import load_recipe

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)


def cpu() -> str:
    """The processor: results differ in their last bits between kinds, and then more and more."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def measure(seed: int, folder: Path) -> dict[str, object]:
    """One run through the command line; its JSON, its wall clock and its held-out curve."""
    run = folder / f"seed-{seed}"
    command = ["brorl", "train", "quickstart", f"seed={seed}", f"run_dir={run}", "--json"]
    start = time.perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name(command[0])), *command[1:]],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"BRORL_CACHE": str(folder / "cache")},  # a first run, warm start included
    )
    result = json.loads(done.stdout)
    generated = 0
    curve = []
    for row in read_metrics(run):
        generated += row.get("samples/generated", 0)
        if "eval/pass@1" in row:
            points = {name: row[f"eval/{name}"] for name in ("pass@1", "pass@1_low", "pass@1_high")}
            curve.append({"step": row["step"], "generated": generated, **points})
    wall_s = time.perf_counter() - start
    printed = summary(run, result).replace(str(run), "runs/quickstart")
    result.pop("run")
    return {"seed": seed, "wall_s": wall_s, **result, "printed": printed, "curve": curve}


def draw(result: dict[str, object], path: Path) -> None:
    """Held-out pass@1 against samples, a line and a band a seed."""
    plt.rcParams.update({"svg.hashsalt": "brorl", "font.size": 10})
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for run, colour in zip(result["runs"], ("#1f6feb", "#d97706", "#2a9d5c"), strict=True):
        x = [p["generated"] / 1000 for p in run["curve"]]
        y, low, high = (
            [p[name] for p in run["curve"]] for name in ("pass@1", "pass@1_low", "pass@1_high")
        )
        axes.plot(x, y, color=colour, marker="o", markersize=3, label=f"seed {run['seed']}")
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("samples generated (thousands)")
    axes.set_ylabel("held-out pass@1")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, write, draw, and say whether each seed's intervals are apart."""
    settings = load_recipe("quickstart")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(seed, Path(folder)) for seed in SEEDS]
    result = {
        "command": "brorl train quickstart seed=S",
        "machine": cpu(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [round(x, 1) for x in (load, *os.getloadavg()[:1])],
        "python": platform.python_version(),
        "width": settings.rollout.widest,
        "problems": settings.task["eval_size"],
        "samples": settings.eval.samples,
        "runs": runs,
    }
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "figures").mkdir(exist_ok=True)
    (HERE / "results/quickstart.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, HERE / "figures/quickstart.svg")
    for run in runs:
        before, after = run["eval_before"], run["eval_after"]
        apart = after["low"] > before["high"]
        print(f"seed {run['seed']}: {before} -> {after}, {run['wall_s']:.0f} s, apart: {apart}")


if __name__ == "__main__":
    main()
