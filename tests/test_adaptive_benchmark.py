"""The comparison of benchmarks/adaptive.py, on made-up runs (hand-computed)."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks/adaptive.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("adaptive_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(task, start, seed, arm, end, cpu_s):
    """From 0.5 to `end` in 100 samples and `cpu_s` seconds."""
    points = [{"generated": 0, "cpu_s": 0.0, "score": 0.5},
              {"generated": 100, "cpu_s": cpu_s, "score": end}]  # fmt: skip
    return {"task": task, "start": start, "seed": seed, "arm": arm, "curve": points}


def rows(bench, gain):
    """Every arm ends at 0.7; `adaptive` at 0.7 + gain(start), in half of the seconds."""
    return [
        run(task, start, seed, arm, 0.7 + (gain(start) if arm == "adaptive" else 0.0),
            10.0 if arm == "adaptive" else 20.0)
        for task in ("a", "b") for start in (0, 1) for seed in (1, 2, 3) for arm in bench.ARMS
    ]  # fmt: skip


def test_equal_samples_and_equal_seconds(bench):
    """At 100 samples +0.1; at 10 s the others are half way, 0.6, against 0.8: +0.2."""
    found = bench.compare(rows(bench, lambda start: 0.1), 100)
    assert found["generated"]["adaptive"]["all"]["difference"] == pytest.approx(0.1)
    assert found["cpu_s"]["adaptive"]["all"]["difference"] == pytest.approx(0.2)
    assert found["cpu_s"]["N=512"]["tasks"]["a"]["score"] == pytest.approx(0.6)
    assert "difference" not in found["generated"]["N=16"]["tasks"]["a"]


def test_starts_are_the_unit_over_all_tasks(bench):
    """Two starts that disagree by ±0.1 in every seed leave nothing: t = 0 over 4 units."""
    found = bench.compare(rows(bench, lambda start: 0.1 if start else -0.1), 100)
    whole = found["generated"]["adaptive"]["all"]
    assert whole["difference"] == pytest.approx(0.0)
    assert whole["p"] == pytest.approx(1.0)
    assert whole["high"] == pytest.approx(3.182 * 0.1 / 3**0.5, rel=1e-3)  # t_3, sd 0.115, n 4


def test_a_block_that_is_not_finished_is_left_out(bench):
    unfinished = [r for r in rows(bench, lambda start: 0.1)
                  if (r["task"], r["arm"], r["seed"]) != ("a", "N=512", 3)]  # fmt: skip
    found = bench.compare(unfinished, 100)
    assert found["generated"]["adaptive"]["tasks"]["a"]["runs"] == 4
    assert found["generated"]["adaptive"]["tasks"]["b"]["runs"] == 6
