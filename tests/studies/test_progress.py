"""How far a study is: shares by samples, and the time left at this session's pace."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from brorl.record.metrics import append_metrics
from brorl.studies.runner import progress
from brorl.studies.runner.progress import Quiet, Watch, clock


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


def piece(name, samples, folder=Path("nowhere")):
    return SimpleNamespace(name=name, folder=folder, samples=samples)


def test_time_left_is_at_the_pace_of_this_session(monkeypatch):
    """Hand-computed: 100 of 400 samples done before; 100 more in 30 s leave 200, so 60 s."""
    time = Clock()
    monkeypatch.setattr(progress, "time", time)
    watch = Watch({"a": 100, "b": 200, "c": 100}, {"a"}, Quiet())
    assert (watch.done, watch.left_s) == (0.25, None)
    time.now = 30.0
    watch.begins(piece("b", 200))
    watch.made(piece("b", 200), 100)
    assert watch.done == 0.5
    assert watch.left_s == pytest.approx(60.0)


def test_a_start_of_one_sample_tells_no_time_left(monkeypatch):
    """Two minutes of warm start for 1 sample of 100,001 are not 139 days; 1 % in 10 s is a pace."""
    time = Clock()
    monkeypatch.setattr(progress, "time", time)
    watch = Watch({"start": 1, "a": 100_000}, set(), Quiet())
    time.now = 120.0
    watch.made(piece("start", 1), 1)
    assert watch.left_s is None
    time.now = 130.0
    watch.made(piece("a", 100_000), 1000)
    assert watch.left_s == pytest.approx(130 * 99, rel=1e-3)


def test_a_run_is_looked_up_in_what_it_has_recorded(tmp_path):
    append_metrics(tmp_path, {"step": 0})
    append_metrics(tmp_path, {"step": 1, "samples/generated": 30, "eval/pass@1": 0.5})
    notes = []
    voice = SimpleNamespace(note=notes.append, share=lambda *a: None)
    watch = Watch({"a": 40}, set(), voice)
    one = piece("a", 40, tmp_path)
    watch.begins(one)
    assert watch.done == 0.75
    append_metrics(tmp_path, {"step": 2, "samples/generated": 30})
    watch.look(one)
    assert watch.done < 1.0  # more than asked for, but its end is not on record
    watch.ends(one)
    assert watch.done == 1.0
    assert notes[0].split() == ["1/1", "a", "held-out", "pass@1", "0.500", "→", "0.500"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0s"), (59, "59s"), (65, "1m05s"), (3599.6, "1h00m"), (7500, "2h05m")],
)
def test_clock(seconds, said):
    assert clock(seconds) == said
