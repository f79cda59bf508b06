"""Figures of a study: what is drawn, and what an empty or foreign result gives."""

import json

import pytest

from brorl.errors import DataError
from brorl.studies.runner.figure import draw_all
from brorl.studies.runner.report import write_study_report


def result(scores):
    curve = {"spent": {"generated": list(range(len(scores)))}, "scores": {"pass@1": scores}}
    return {
        "matched": {"all": {}},
        "match": "generated",
        "arms": [{"name": "a", "block": "all"}],
        "runs": [{"arm": "a", "curve": curve}],
        "charts": [],
    }


def test_a_study_that_only_measures_has_no_curves(tmp_path):
    assert draw_all(result([0.3]), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_one_that_trains_has(tmp_path):
    ((name, _),) = draw_all(result([0.3, 0.4]), tmp_path)
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_result_of_another_make_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("brorl.studies.runner.report.read_outcome", lambda folder: {"study": "x"})
    (tmp_path / "result.json").write_text(json.dumps({}))
    with pytest.raises(DataError, match="not what a study writes") as found:
        write_study_report(tmp_path)
    assert "\n" not in str(found.value)
