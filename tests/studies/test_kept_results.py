"""Policy: what is kept under studies/results is full, answers today's text, and is rendered."""

import json
from pathlib import Path

import pytest

from brorl.studies.runner import figure
from brorl.studies.runner.outcome import read_outcome
from brorl.studies.runner.report import markdown
from brorl.studies.runner.text import read_text

KEPT = sorted((Path(__file__).parents[2] / "studies" / "results").glob("*/result.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.parent.name)
def test_a_kept_result_is_of_a_full_run_and_its_question_was_not_changed_after_it(path):
    result = read_outcome(path.parent)
    assert result["study"] == path.parent.name.split(".")[0]  # NAME.WORD: with other knobs
    assert result["smoke"] is False
    assert result["text"] == read_text(result["study"])._asdict()
    assert path.stat().st_size < 1 << 20


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.parent.name)
def test_its_report_is_what_it_renders_to(path, monkeypatch):
    monkeypatch.setattr(figure, "_save", lambda drawn, to: None)
    result = json.loads(path.read_text())
    figures = figure.draw_all(result, path.parent)
    assert (path.parent / "report.md").read_text() == markdown(result, figures)
    assert all((path.parent / name).is_file() for name, _ in figures)
