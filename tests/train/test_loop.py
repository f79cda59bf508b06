"""What the loop decides between steps: which checkpoints stay, what counts as stale or empty."""

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from brorl.algo.filtering import OutcomeCounts
from brorl.errors import DataError, RunError
from brorl.evaluate.heldout import evaluate_heldout
from brorl.train import api
from brorl.train.checkpoint import checkpoint_path, checkpoint_steps, open_checkpoint, sweep
from brorl.train.loop import Loop, StopFlag

from .runs import Killed, Stopper, lines, no_report, same_end
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


@pytest.mark.parametrize("step_s", [-1e9, 1e9])
def test_a_clock_that_steps_changes_nothing(tmp_path, monkeypatch, step_s):
    """Attack: NTP, a sleeping laptop, daylight saving. Durations come from a clock that only runs
    forward; the wall clock decides nothing, so a run under a jumping one ends the same."""
    made = str(recipe(tmp_path, steps=3, save_every=1))
    api.train(made, {"run_dir": tmp_path / "plain"})
    real, calls = time.time, []

    def jumping():
        calls.append(0)
        return real() + step_s * (len(calls) % 2)

    monkeypatch.setattr(time, "time", jumping)
    with pytest.raises(Killed):
        api.train(made, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 2))
    api.resume(tmp_path / "run")
    same_end(tmp_path / "plain", tmp_path / "run")
    rows = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= v < 3600 for r in rows for k, v in r.items() if k.startswith("time/"))


def test_no_part_asks_the_wall_clock_how_long_something_took():
    """Policy: time.time is for nothing but comparing with the clock of another machine."""
    import brorl

    root = Path(brorl.__file__).parent
    found = [
        f"{path.relative_to(root)}:{number}"
        for path in sorted(root.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"\btime\.time\(|datetime\.(now|today|utcnow)\(", line)
    ]
    assert found == []


class Vandal(Stopper):
    """Puts a folder with a later name beside the checkpoints; notes which of these are whole."""

    def __init__(self, run):
        super().__init__()
        self.run, self.good = run, []

    def step(self, metrics):
        steps = checkpoint_steps(self.run)
        self.good += [s for s in steps if _opens(self.run, s)][-1:]
        checkpoint_path(self.run, 10_000).mkdir(exist_ok=True)
        if metrics["step"] == 4:
            raise Killed


def _opens(run, step):
    try:
        return open_checkpoint(checkpoint_path(run, step)).step == step
    except DataError:
        return False


def test_the_last_good_checkpoint_is_never_swept(tmp_path):
    """Attack: one checkpoint is kept, and a folder with a later name lies there from the start: it
    must not count as the one to keep."""
    made = str(recipe(tmp_path, steps=9, save_every=1, keep_checkpoints=1, data={"held_out": 0}))
    run = tmp_path / "run"
    vandal = Vandal(run)
    with pytest.raises(Killed):
        api.train(made, {"run_dir": run}, progress=vandal)
    assert vandal.good == [0, 1, 2, 3]  # before each save the one before it is whole
    progress = Stopper()
    api.resume(run, ["steps=5"], progress=progress)
    assert any("unusable-step-010000" in n for n in progress.notes)
    assert open_checkpoint(checkpoint_path(run, 5)).step == 5
    api.train(made, {"run_dir": tmp_path / "whole", "steps": 5})
    same_end(tmp_path / "whole", run)


@pytest.mark.parametrize("saved", range(6))
@pytest.mark.parametrize("keep", [1, 2, 9])
@pytest.mark.parametrize("best", [None, 0, 3])
def test_what_a_sweep_leaves(tmp_path, saved, keep, best):
    """Oracle, in words: the saved one, the newest before it up to `keep`, the best, all later."""
    for step in range(6):
        checkpoint_path(tmp_path, step).mkdir(parents=True)
    sweep(tmp_path, saved, keep, best)
    left = set(checkpoint_steps(tmp_path))
    newest = sorted(range(saved + 1))[-keep:]
    assert left == {*newest, *range(saved + 1, 6)} | ({best} if best is not None else set())
