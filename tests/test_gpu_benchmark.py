"""benchmarks/gpu.py at toy size on the CPU: it ends in time, and its correctness part is correct."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/gpu.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_the_toy_run_measures_every_part_and_agrees_with_plain_forwards(tmp_path):
    """Identity: in float32 engine, trainer and plain rows agree to float error."""
    done = run("--toy", "--out", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    found = result["correctness"]["toy"]
    assert found["engine_trainer_most_nats"] < 1e-5
    assert found["trainer_plain_mean_nats"] < 1e-5
    assert found["gradient_relative_difference"] < 1e-4
    assert [c["n"] for c in result["cases"]] == [4, 16]
    for case in result["cases"]:
        assert case["generation"]["ratio"] > 0
        assert case["update"]["ratio"] > 0
        assert 0 < case["shares"]["update_share_of_products"] < 1


@pytest.mark.slow
def test_no_time_no_case(tmp_path):
    """Attack: a bound that is passed already; every case says that it was left out."""
    done = run("--toy", "--minutes", "0.26", "--out", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert "skipped" in result["cases"][-1]
