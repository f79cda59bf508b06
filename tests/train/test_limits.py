"""Ends and evaluations by samples and seconds: hand-computed rules, and a run that obeys them."""

import pytest

from brorl.errors import ConfigError
from brorl.train import api
from brorl.train.limits import evaluation_due, limit_reached

from .runs import Stopper, lines, no_report, same_end
from .toys import recipe, settings

__all__ = ["no_report"]  # a fixture


def test_a_limit_is_reached_at_its_value_not_before():
    """Hand-computed: seconds of all phases add up, samples are the generated ones."""
    s = settings(max_samples=100, max_seconds=10.0)
    assert limit_reached(s, {}) is None
    assert limit_reached(s, {"generated": 99, "kept": 500, "seconds/eval": 9.9}) is None
    assert limit_reached(s, {"generated": 100}) == "max_samples"
    assert limit_reached(s, {"seconds/eval": 4.0, "seconds/update": 6.0}) == "max_seconds"
    assert limit_reached(settings(), {"generated": 1e9, "seconds/eval": 1e9}) is None


def test_an_evaluation_is_due_when_a_multiple_is_passed():
    """Hand-computed: 250 to 499 passes no multiple of 250, 499 to 500 does, 300 to 900 two."""
    s = settings(eval_every=None, eval_every_samples=250)
    passed = [(250, 499), (499, 500), (300, 900), (0, 249)]
    assert [evaluation_due(s, 1, *x) for x in passed] == [False, True, True, False]
    both = settings(eval_every=3, eval_every_samples=250)
    assert [evaluation_due(both, step, 0, 1) for step in (1, 2, 3)] == [False, False, True]
    assert not evaluation_due(settings(eval_every=None), 1, 0, 1e9)


@pytest.mark.usefixtures("no_report")
def test_a_run_stops_at_its_samples_and_a_raised_limit_goes_on_as_if_never_stopped(tmp_path):
    """Identity: 80 samples, then 160, is the run of 160; evaluated at the end as well."""
    made = str(recipe(tmp_path, steps=100, eval_every=None, eval_every_samples=150))
    limits = {"max_samples": 160}
    whole = api.train(made, {"run_dir": tmp_path / "whole", **limits})
    parts = tmp_path / "parts"
    first = api.train(made, {"run_dir": parts, "max_samples": 80})
    assert 80 <= first["samples_generated"] < 160 <= whole["samples_generated"]
    assert first["steps"] < whole["steps"] < 100
    last = lines(parts)[-1]
    assert "eval/pass@1" in last
    told = Stopper()
    again = api.resume(parts, progress=told)
    assert again["steps"] == first["steps"]
    assert any("is finished" in note for note in told.notes)
    api.resume(parts, limits)
    evaluated = {m["step"] for m in lines(parts) if "eval/pass@1" in m} - {last["step"]}
    assert evaluated == {m["step"] for m in lines(tmp_path / "whole") if "eval/pass@1" in m}
    bare = [[{k: v for k, v in m.items() if "eval/" not in k} for m in lines(r)]
            for r in (tmp_path / "whole", parts)]  # fmt: skip
    assert bare[0] == bare[1]


@pytest.mark.usefixtures("no_report")
def test_a_run_out_of_seconds_ends_evaluated_and_saved(tmp_path):
    made = str(recipe(tmp_path, steps=1000))
    result = api.train(made, {"run_dir": tmp_path / "run", "max_seconds": 1e-6})
    assert result["steps"] == 0
    assert result["eval_after"] == result["eval_before"]
    longer = api.resume(tmp_path / "run", {"max_seconds": 1e9, "steps": 2})
    assert longer["steps"] == 2
    whole = api.train(made, {"run_dir": tmp_path / "whole", "steps": 2})
    assert whole["steps"] == 2
    same_end(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("text", ["max_samples=0", "max_seconds=0", "eval_every_samples=0"])
def test_limits_below_one_are_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=text.split("=")[0]):
        api.train(str(recipe(tmp_path)), [text])
