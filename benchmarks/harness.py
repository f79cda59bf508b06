"""Two sides, each in a process of its own, measured alternately: how every figure is made.

A side is a script of benchmarks/sides that gets a case as JSON, sets itself up, warms up once and
then does its work once for every line "go" that it is sent, answering with seconds and memory.
Sides of one figure get equal threads and are never at work at the same time. A figure is the
ratio of two of them: one ratio a round, of which median, least and most are kept.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results.json"
PYTHONS = {
    "main": ROOT / ".venv/bin/python",
    "peers": ROOT / ".venv-peers/bin/python",
    "vllm": ROOT / ".venv-vllm/bin/python",
}
PACKAGES = ("torch", "transformers", "numpy", "brorl")


class Side:
    """A process that does one piece of work again and again, on request."""

    def __init__(self, script, case, *, python="main", threads=1):
        self.name = script
        found = PYTHONS[python] if PYTHONS[python].exists() else Path(sys.executable)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }
        self._process = subprocess.Popen(
            [str(found), str(ROOT / f"benchmarks/sides/{script}.py"), json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("BENCH_LOUD") else None,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self.ready = self._answer()

    def go(self):
        """One repeat: {"wall": s, "cpu": s, "peak_growth": bytes, ...}."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        for line in self._process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        raise RuntimeError(f"{self.name} ended with {self._process.wait()}; BENCH_LOUD=1 shows why")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def alternate(sides, repeats):
    """{name: [reading, ...]}: one warm-up each, then `repeats` rounds, in turn."""
    readings = {name: [] for name in sides}
    with ExitStack() as stack:
        open_sides = {name: stack.enter_context(make()) for name, make in sides.items()}
        for side in open_sides.values():
            side.go()
        for number in range(repeats):
            order = list(open_sides) if number % 2 == 0 else list(open_sides)[::-1]
            for name in order:
                readings[name].append(open_sides[name].go())
    return readings


def figure(name, readings, *, ours, theirs, unit, target=None, at_most=False, key="wall", **more):
    """One line of the results: theirs over ours (or ours over theirs where small is good)."""
    a, b = ([r[key] for r in readings[side]] for side in (ours, theirs))
    pairs = [(x / y if at_most else y / x) for x, y in zip(a, b, strict=True)]
    return stated(name, pairs, target=target, at_most=at_most) | {
        "ours": {"side": ours, "median": statistics.median(a), "all": a},
        "theirs": {"side": theirs, "median": statistics.median(b), "all": b},
        "unit": unit,
        **more,
    }


def stated(name, ratios, *, target, at_most=False):
    """A figure's name, ratio, spread, target, and whether it is met."""
    middle = statistics.median(ratios)
    met = None if target is None else (middle <= target if at_most else middle >= target)
    return {
        "name": name,
        "ratio": middle,
        "least": min(ratios),
        "most": max(ratios),
        "target": target,
        "at_most": at_most,
        "met": met,
    }


def machine(threads):
    """What it ran on; names of hosts and folders stay out."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "threads": threads,
        "load": [round(x, 1) for x in os.getloadavg()],
        "python": platform.python_version(),
        "versions": {p: _version(p) for p in PACKAGES},
    }


def write(section, figures, threads):
    """Put one section's figures into results.json; the others stay as they are."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sections": {}}
    results["sections"][section] = {"machine": machine(threads), "figures": figures}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for f in figures:
        goal = "" if f["target"] is None else f" target {f['target']:g} met {f['met']}"
        print(f"{section}: {f['name']}: {f['ratio']:.3g} [{f['least']:.3g}, {f['most']:.3g}]{goal}")


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None
