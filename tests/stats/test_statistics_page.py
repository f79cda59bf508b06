"""docs/statistics.md says what was measured, and what was measured can be measured again."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MEASURED = json.loads((ROOT / "docs/results/statistics.json").read_text())


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "render_statistics", ROOT / "docs/render_statistics.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_current(script):
    """Policy: no number of the page is typed."""
    page = (ROOT / "docs/statistics.md").read_text()
    assert script.rendered(page, script.tables(MEASURED)) == page


def test_a_cell_measures_the_same_again(script):
    """Identity: the hardest cell, 30 problems with mean 0.05, mostly all or nothing."""
    (cell,) = (
        r
        for r in MEASURED["coverage"]
        if (r["problems"], r["mean"], r["concentration"]) == (30, 0.05, 0.3)
    )
    again = script.coverage(30, 0.05, 0.3, 16)
    assert {rule: cell[rule] for rule in again} == again


def test_the_promised_coverage():
    """Statistical: 4,000 data sets a cell, 4 standard errors beyond the promised range."""
    error = 4 * np.sqrt(0.95 * 0.05 / 4000)
    inner = [
        r["mean_interval"]
        for r in MEASURED["coverage"]
        if r["problems"] >= 200 and 0.1 <= r["mean"] <= 0.9
    ]
    assert len(inner) == 50
    assert min(inner) >= 0.93 - error
    assert max(inner) <= 0.97 + error
    few = [r["mean_interval"] for r in MEASURED["coverage"] if r["problems"] == 30]
    assert len(few) == 45
    assert min(few) >= 0.90 - error
