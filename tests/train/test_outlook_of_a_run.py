"""A run says that held-out progress has stopped: in its notes, its metrics, and alike after a kill."""

import pytest

from brorl.train import api

from .runs import Killed, Stopper, lines, no_report, same_end
from .toys import recipe

__all__ = ["no_report"]
pytestmark = pytest.mark.usefixtures("no_report")

STILL = {
    "lr": 1e-12,  # moves no score, so that every evaluation is the same
    "steps": 5,
    "eval_every": 1,
    "save_every": 1,
    "eval": {"samples": 64},
    "plateau": {"window": 3, "smallest_gain": 99.0, "level": 0.5},
}


def test_a_policy_that_does_not_move_has_stopped(tmp_path):
    """Evaluations 0 to 5, window 3: verdicts after steps 2 to 5, of looks 1 to 4."""
    made = str(recipe(tmp_path, **STILL))
    progress = Stopper()
    api.train(made, {"run_dir": tmp_path / "whole"}, progress=progress)
    rows = lines(tmp_path / "whole")
    assert [r.get("plateau/look") for r in rows] == [None, None, 1, 2, 3, 4]
    assert [r.get("plateau/stopped") for r in rows] == [None, None, 1, 1, 1, 1]
    assert rows[2]["plateau/level"] == pytest.approx(0.75)
    assert sum("held-out progress has stopped" in note for note in progress.notes) == 4
    with pytest.raises(Killed):
        api.train(made, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "whole", tmp_path / "run")


def test_prompts_seen_are_distinct_ones(tmp_path):
    """Oracle: the ids in the recorded rollouts so far."""
    from brorl.record.rollouts import read_rollouts

    api.train(str(recipe(tmp_path)), {"run_dir": tmp_path / "run"})
    ids: set[str] = set()
    for row in lines(tmp_path / "run")[1:]:
        ids |= set(read_rollouts(tmp_path / "run", row["step"])["problem_id"].to_pylist())
        assert row["prompts/seen"] == len(ids)


def test_a_last_evaluation_off_the_schedule_gives_no_verdict(tmp_path):
    api.train(str(recipe(tmp_path, **STILL | {"eval_every": 2})), {"run_dir": tmp_path / "run"})
    rows = lines(tmp_path / "run")
    assert [r.get("eval/scheduled") for r in rows] == [1, None, 1, None, 1, 0]
    assert [r.get("plateau/look") for r in rows] == [None, None, None, None, 1, None]
