"""docs/evaluation.md says what its recorded evaluations say (policy)."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_and_its_figure_are_current(tmp_path):
    spec = importlib.util.spec_from_file_location(
        "render_evaluation", ROOT / "docs/render_evaluation.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs/evaluation.md").read_text()
    assert script.rendered(page) == page
    script.FIGURES = tmp_path
    script.draw()
    drawn = (tmp_path / "evaluation-pass-at-k.svg").read_text()
    assert drawn == (ROOT / "docs/figures/evaluation-pass-at-k.svg").read_text()
