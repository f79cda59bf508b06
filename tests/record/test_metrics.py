"""metrics.jsonl: what a kill tears is left out, what a resume undoes is cut, NaN is never written."""

import json
import math

import pytest

from brorl.errors import DataError
from brorl.record.metrics import append_metrics, cut_metrics, read_metrics

ROWS = [{"step": i, "reward/mean": i / 3, "name": "ß\u2028\ud800"} for i in range(4)]


def run_with(folder, rows=ROWS):
    for row in rows:
        append_metrics(folder, row)
    return folder / "metrics.jsonl"


def test_what_is_appended_reads_back_equal(tmp_path):
    path = run_with(tmp_path)
    assert read_metrics(tmp_path) == ROWS
    assert len(path.read_bytes().split(b"\n")) == 5  # no value breaks a line


def test_no_file_is_no_steps(tmp_path):
    assert read_metrics(tmp_path) == []


def test_values_that_are_not_finite_become_null(tmp_path):
    path = run_with(tmp_path, [{"step": 1, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.0}])
    assert json.loads(path.read_text()) == {"step": 1, "a": None, "b": None, "c": None, "d": 0.0}


def test_a_line_torn_at_any_byte_is_left_out_and_cut(tmp_path):
    """Attack: a kill while appending leaves any beginning of the last line."""
    path = run_with(tmp_path)
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert [r["step"] for r in read_metrics(tmp_path)] == [0, 1, 2]
        cut_metrics(tmp_path, 9)
        append_metrics(tmp_path, ROWS[3])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("last", range(-1, 5))
def test_cut_keeps_what_came_before(tmp_path, last):
    path = run_with(tmp_path)
    before = path.read_bytes()
    cut_metrics(tmp_path, last)
    assert read_metrics(tmp_path) == ROWS[: last + 1]
    assert before.startswith(path.read_bytes())  # byte for byte, so that a diff shows nothing
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    "line", ["", "{", "[1]", "null", '{"step": "2"}', '{"a": 1}', "\x00", "é{"]
)
def test_a_damaged_line_is_named_by_file_and_number(tmp_path, line):
    path = run_with(tmp_path)
    lines = path.read_text(encoding="ascii").split("\n")
    path.write_text("\n".join([lines[0], line, *lines[1:]]), encoding="latin-1")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: not a line of metrics"):
        read_metrics(tmp_path)
