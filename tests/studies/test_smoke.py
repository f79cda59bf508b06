"""Every study's smoke run, as a user types it: it ends, decides nothing, and reports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from brorl.studies.runner.text import study_names


@pytest.mark.slow
@pytest.mark.parametrize("name", study_names())
def test_smoke(name, tmp_path):
    command = [Path(sys.executable).parent / "brorl", "study", "run", name, "--smoke", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
        env=os.environ | {"BRORL_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert set(said) >= {"study", "holds", "result", "report"}
    assert (said["study"], said["holds"]) == (name, None)
    result = json.loads((tmp_path / said["result"]).read_text())
    assert result["smoke"] is True
    assert result["because"].startswith("A smoke run decides nothing.")
    moved = [r for r in result["runs"] if r["totals"]["updates"] > 0]
    trained = [r for r in result["runs"] if r["steps"] > 0]
    assert len(moved) == len(trained) or len(moved) > len(trained) / 2
    page = (tmp_path / said["report"]).read_text()
    assert result["text"]["title"].replace("'", "&#39;") in page
    assert (tmp_path / said["report"]).with_suffix(".md").is_file()
