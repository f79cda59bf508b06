"""What the loop decides between steps: which checkpoints stay, what counts as stale or empty."""

import json
from types import SimpleNamespace

import pytest

from brorl.algo.filtering import OutcomeCounts
from brorl.errors import RunError
from brorl.evaluate.heldout import evaluate_heldout
from brorl.train import api
from brorl.train.checkpoint import checkpoint_path, checkpoint_steps, open_checkpoint
from brorl.train.loop import Loop, StopFlag

from .runs import Killed, Stopper, lines, no_report
from .toys import recipe, settings

__all__ = ["no_report"]
pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture
def scored(monkeypatch):
    """Held-out evaluations with given scores, by step, in the order in which they come."""

    def with_scores(*scores):
        waiting = list(scores)

        def fake(*args, **kwargs):
            result = evaluate_heldout(*args, **kwargs)
            one = result.pass_at_k[1]._replace(value=waiting.pop(0))
            return result._replace(pass_at_k=result.pass_at_k | {1: one})

        monkeypatch.setattr("brorl.train.loop.evaluate_heldout", fake)

    return with_scores


def best_of(run):
    return json.loads((run / "best.json").read_text())


def test_the_best_checkpoint_is_saved_off_schedule_and_stays(tmp_path, scored):
    """Scores of steps 0 to 4: step 1 is best; 1 is on no save schedule and older than one kept."""
    scored(0.1, 0.5, 0.3, 0.5, 0.2)
    made = recipe(tmp_path, save_every=100, eval_every=1, keep_checkpoints=1, steps=4)
    api.train(str(made), {"run_dir": tmp_path / "run"})
    assert best_of(tmp_path / "run") == {
        "step": 1,
        "pass@1": 0.5,
    }  # an equal one later is not better
    assert checkpoint_steps(tmp_path / "run") == [1, 4]


def test_a_best_evaluation_that_a_kill_undid_is_not_named(tmp_path, scored):
    """Step 2 was best and was not saved; resumed to fewer steps, the best is step 0 again."""
    scored(0.1, 0.5, 0.05)
    made = recipe(tmp_path, save_every=100, eval_every=2, steps=4)
    with pytest.raises(Killed):
        api.train(str(made), {"run_dir": tmp_path / "run"}, progress=Stopper("step", 2))
    assert best_of(tmp_path / "run")["step"] == 2
    api.resume(tmp_path / "run", ["steps=1"])
    assert best_of(tmp_path / "run") == {"step": 0, "pass@1": 0.1}
    assert [m["step"] for m in lines(tmp_path / "run")] == [0, 1]


def test_an_evaluation_off_schedule_is_no_sign_of_a_stall(tmp_path, scored):
    """Evaluations at 0, 2, 4 and, because it is the last, 5: two stale ones, not three."""
    scored(0.5, 0.4, 0.4, 0.4)
    made = recipe(tmp_path, kl_coef=0.01, ref={"reset_on": ["stall"], "stall_evals": 9})
    api.train(str(made), {"run_dir": tmp_path / "run"})
    state = open_checkpoint(checkpoint_path(tmp_path / "run", 5)).state
    assert (state["reset"]["best"], state["reset"]["stale_evals"]) == (0.5, 2)


def test_an_update_ends_a_row_of_empty_steps(tmp_path):
    """Limit 2: empty, update, empty, update is fine; two empty ones in a row are not."""
    limited = settings(dynamic_sampling={"max_empty_steps": 2})
    bench = SimpleNamespace(settings=limited, empty_steps=0)
    loop = Loop(tmp_path, bench, [], Stopper(), StopFlag(), "")
    counts = OutcomeCounts(5, 4, 0, 1, 0, 1, 3, 1)

    def after(updates):
        loop._count_empty(
            1, SimpleNamespace(report=SimpleNamespace(updates=updates),
                               collected=SimpleNamespace(counts=counts))
        )  # fmt: skip

    for updates in (0, 2, 0, 2, 0):
        after(updates)
    with pytest.raises(
        RunError, match=r"2 steps .* had 5 groups, 3 all wrong, 1 all right, 1 equal"
    ):
        after(0)
