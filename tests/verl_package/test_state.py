"""What verl's checkpoints carry for us: nothing is lost on the way (identity), other data is refused."""

import pickle

import pytest

from brorl.errors import DataError
from brorl.tasks.problem import Problem
from brorl.train.collect import PassRate
from brorl.train.prompts import PromptSource
from brorl.train.recipe import load_recipe
from brorl.train.reference import ResetRule
from brorl.verl.state import RunState

PROBLEMS = [Problem(f"p{i}", str(i), "x") for i in range(7)]


def state(fingerprint="data"):
    ref = load_recipe("quickstart", ["kl_coef=0.1", "ref.reset_every=3"]).ref
    return RunState(PromptSource(PROBLEMS, 5, 1.0), PassRate(), ResetRule(ref), fingerprint)


def test_a_restored_run_draws_and_decides_as_the_first_would():
    first = state()
    first.source.draw(10)
    first.source.saw("p1", 0.5)
    first.pass_rate.update(3, 8)
    first.reset_rule.saw_eval(0.4)
    first.reset_rule.did(6)
    first.updates, first.kl, first.reference_step, first.empty_steps = 12, 0.25, 6, 2
    again = state()
    again.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert again.restored
    assert again.state_dict() == first.state_dict()
    assert again.source.draw(9) == first.source.draw(9)
    assert again.pass_rate.value == first.pass_rate.value
    assert [again.reset_rule.reason(s, None) for s in (8, 9)] == [None, "schedule of 3 steps"]


def test_other_data_is_refused():
    with pytest.raises(DataError, match="other data"):
        state("other").load_state_dict(state().state_dict())
