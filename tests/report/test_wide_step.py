"""A step of 65,536 rollouts: the page and the memory that it takes stay bounded."""

import json
import subprocess
import sys

import numpy as np
import pytest

from brorl.record.metrics import append_metrics
from brorl.record.rollouts import write_rollouts

from .recorded import CONFIG, metrics, new_run, row
from .test_page import page_of

pytestmark = pytest.mark.slow

PROMPTS, N, CHARACTERS = 128, 512, 2000

REPORT = """
import json, resource, sys
from pathlib import Path
from brorl.report.run import write_report
write_report(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_report(Path(sys.argv[2]))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([before, after]))
"""


def wide_rows(prompts, n):
    """Answers of one Zipf law, a tenth of them right on even prompts, each with 2,000 characters."""
    rng = np.random.default_rng(0)
    texts = ["".join(map(chr, rng.integers(97, 123, CHARACTERS))) for _ in range(64)]
    for p in range(prompts):
        draws = rng.zipf(1.3, n).clip(max=10_000)
        right = (rng.random(n) < 0.1) & (p % 2 == 0)
        for i in range(n):
            yield row(
                problem_id=f"p{p}",
                group_id=f"p{p}#0",
                sample_index=i,
                text=texts[i % 64],
                extracted="cba" if right[i] else str(draws[i]),
                raw_score=float(right[i]),
                true_score=float(right[i]),
                verdict="correct" if right[i] else "wrong",
                kept=p % 2 == 0,
            )


def run_of(path, prompts, n):
    run = new_run(path, CONFIG | {"rollout": {"n": n, "waves": None}, "prompts_per_step": prompts})
    write_rollouts(run, 1, list(wide_rows(prompts, n)))
    append_metrics(run, metrics(1, **{"samples/generated": prompts * n}))
    return run


def test_65536_rollouts_are_read_as_aggregates(tmp_path):
    """131 MB of texts on 65,536 rows. The page stays under 1.5 MB, and what it takes to make it above
    a small run's page under 300 MiB: narrow columns and one batch of texts at a time."""
    small, wide = run_of(tmp_path / "small", 2, 8), run_of(tmp_path / "wide", PROMPTS, N)
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(small), str(wide)],
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = json.loads(done.stdout)
    assert (after - before) / 1024 < 300
    path = wide / "report.html"
    assert path.stat().st_size < 1_500_000
    groups = page_of(path).data["runs"][0]["groups"]
    assert 20 <= len(groups) <= 30
    assert all(g["n"] == N for g in groups)
    assert sum(sum(step) for step in page_of(path).data["runs"][0]["spent"]["generated"]) == 65_536
