"""What is not the model: start-up, and a step's own work."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import ROOT, Side, alternate, stated
from widths import case

START = {
    "import brorl": ([sys.executable, "-c", "import brorl"], 0.3),
    "brorl --help": ([str(Path(sys.executable).with_name("brorl")), "--help"], 0.5),
}


def measure(repeats, threads):
    """Seconds beside the same of an empty Python; milliseconds outside model calls."""
    return [*_start(repeats), _step(repeats, threads)]


def _start(repeats):
    figures = []
    for name, (command, target) in START.items():
        taken = {"it": [], "python": []}
        for number in range(3 * repeats + 1):
            for key, argv in (("it", command), ("python", [sys.executable, "-c", "pass"])):
                start = time.perf_counter()
                subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
                if number:  # the first one warms the file cache
                    taken[key].append(time.perf_counter() - start)
        figures.append(
            stated(f"seconds of `{name}`", taken["it"], target=target, at_most=True)
            | {"empty_python_s": statistics.median(taken["python"])}
        )
    return figures


def _step(repeats, threads):
    """A step at N = 16 of the tiny policy, without the time in calls of the policy's model."""
    c = case("step", "32 + 64", 16, overhead=True)
    readings = alternate({"step": lambda: Side("ours", c, threads=threads)}, 3 * repeats)["step"]
    outside = [r["wall"] - r["model"] for r in readings]
    return stated(
        "seconds of a step outside model calls, N = 16", outside, target=0.02, at_most=True
    ) | {"whole_step_s": statistics.median(r["wall"] for r in readings)}
