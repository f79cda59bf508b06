"""docs/planning.md is current, and the planner holds on the steps that were measured for it."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        spec = importlib.util.spec_from_file_location(
            "render_planning", ROOT / "docs/render_planning.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return module


def test_rendered_blocks_are_current(script):
    """Policy: `python docs/render_planning.py` would change nothing, and every block has a place."""
    (page,) = script.documents()
    text = page.read_text()
    assert script.rendered(text) == text
    assert [n for n in script.BLOCKS if f"<!-- begin {n} -->" not in text] == []


def test_constants_solved_from_two_widths_are_met_there(script):
    """Identity: at the widths that they were solved from, predictions are the measured seconds."""
    result = json.loads(script.RESULT.read_text())
    device = script.own_device(result)
    for point in result["points"]:
        if point["n"] in script.KNOWN:
            found = script.own_plan(point, device)
            assert 60 * found.generate_min == pytest.approx(point["generate_s"], rel=1e-6)
            rest = 60 * (found.update_min + found.fixed_min)
            assert rest == pytest.approx(point["rest_s"], rel=1e-6)


def test_measured_steps_of_other_widths_are_predicted(script):
    """Up to 4 times the widest width that constants were solved from, within 15 %."""
    result = json.loads(script.RESULT.read_text())
    device = script.own_device(result)
    others = [p for p in result["points"] if p["n"] not in script.KNOWN]
    assert max(p["n"] for p in others) >= 4 * max(script.KNOWN)
    for point in others:
        found = script.own_plan(point, device)
        assert 60 * found.generate_min == pytest.approx(point["generate_s"], rel=0.15)
        rest = 60 * (found.update_min + found.fixed_min)
        assert rest == pytest.approx(point["rest_s"], rel=0.15)
