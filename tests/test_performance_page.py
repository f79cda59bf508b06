"""docs/performance.md and benchmarks/results.html say what benchmarks/results.json says."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_both_pages_are_current():
    """Policy: rendering them again would change nothing."""
    spec = importlib.util.spec_from_file_location("rp", ROOT / "docs/render_performance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(check=True) == 0, "make docs"


def test_every_section_has_its_table():
    """Policy: a section that is measured is shown."""
    runs = (ROOT / "benchmarks/run.py").read_text()
    page = (ROOT / "docs/performance.md").read_text()
    for name in (
        "generation",
        "update",
        "growth",
        "limit",
        "overhead",
        "smollm2",
        "step",
        "vllm",
        "repeats",
        "shares",
        "profile",
        "functions",
        "pieces",
    ):
        assert f'"{name}":' in runs
        assert f"<!-- begin bench-{name} -->" in page
