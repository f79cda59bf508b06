"""From settings to tasks: names, defaults, and refusals that name the nearest thing."""

import json

import pytest

from brorl.errors import ConfigError
from brorl.tasks.build import TAGGED, VERIFIERS, build_task, build_verifier, task_names
from brorl.tasks.composition import CompositionTask
from brorl.tasks.files import FileTask
from brorl.tasks.mixture import MixtureTask
from brorl.tasks.reasoning_gym import ReasoningGymTask
from brorl.verify.reasoning_gym import registered_names
from brorl.verify.user import UserVerifier

SMALL = {"train_size": 2, "eval_size": 2}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"q{i}", "answer": i}) + "\n" for i in range(9)))
    return str(path)


def test_each_kind(data):
    assert isinstance(build_task({"name": "gcd", **SMALL}, {}), ReasoningGymTask)
    assert isinstance(build_task({"name": "composition", **SMALL}, {}), CompositionTask)
    assert isinstance(build_task({}, {"train": data, "verifier": "math"}), FileTask)
    two = [{"name": "gcd", **SMALL}, {"data": {"train": data, "verifier": "math"}}]
    assert isinstance(build_task({"name": "mixture", "tasks": two}, {}), MixtureTask)


def test_what_the_trainer_keeps_in_the_data_section_is_not_ours(data):
    settings = {
        "train": data,
        "verifier": "math",
        "solved_weight": 0.5,
        "solved_share": 1.0,
        "solved_visits": 2,
        "eval": None,
    }
    assert len(build_task({}, settings).problems("train")) == 9


def test_tagged_tasks_say_so_in_the_prompt():
    for name in ("gcd", "composition"):
        tagged = build_task({"name": name, "tagged": True, **SMALL}, {})
        plain = build_task({"name": name, **SMALL}, {})
        pairs = zip(tagged.problems("train"), plain.problems("train"), strict=True)
        assert all(a.prompt == b.prompt + TAGGED for a, b in pairs)
        assert tagged.problems("train")[0].worked.startswith("<answer>")


def test_names():
    assert set(task_names()) == {*registered_names(), "composition", "mixture", "programs"}
    assert {"math", "math-strict", "choice", "exact", "instructions"} <= set(VERIFIERS)
    assert build_verifier("brorl.verify.exact:ExactMatch") == UserVerifier(
        "brorl.verify.exact:ExactMatch"
    )


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        ({}, {}, r"need task\.name or data\.train, got neither"),
        ({"name": "gcd"}, {"train": "x.jsonl"}, "got both"),
        ({"name": "gdc"}, {}, "nearest: .*gcd"),
        ({"name": 3}, {}, "need task.name, got 3"),
        ({"name": "gcd", "trian_size": 3}, {}, "setting of task 'trian_size'; nearest: train_size"),
        ({"name": "gcd", "train_size": "3"}, {}, "task.train_size must be an integer, got '3'"),
        ({"name": "gcd", "train_size": True}, {}, "must be an integer, got True"),
        ({"name": "gcd", "tagged": 1}, {}, "task.tagged must be true or false, got 1"),
        ({"name": "gcd", "prompt": 1}, {}, "task.prompt must be a template"),
        (
            {"name": "composition", "levels": [0]},
            {},
            r"task.levels must be in 1 \.\.\. 8, got \[0\]",
        ),
        ({"name": "composition", "levels": []}, {}, "task.levels must be in"),
        ({"name": "composition", "levels": ["a"]}, {}, "task.levels must be in"),
        ({"name": "composition", "eval_functions": "new"}, {}, "train or held_out"),
        ({"name": "composition", "eval_size": -1}, {}, "eval_size must be >= 0, got -1"),
        ({"name": "mixture"}, {}, "at least two tasks, got 0"),
        ({"name": "mixture", "tasks": [3, 4]}, {}, "must be mappings, got 3 as number 1"),
        ({"name": "mixture", "tasks": [{"name": "mixture"}] * 2}, {}, "part of a mixture"),
        ({"name": "mixture", "tasks": [{"name": "gcd"}] * 2}, {}, "different names"),
        (
            {"name": "mixture", "tasks": [{"name": "gcd", "weight": "x"}] * 2},
            {},
            r"\[1\].weight must",
        ),
        (
            {"name": "mixture", "tasks": [{"name": "gcd", "data": 3}] * 2},
            {},
            "data must be a mapping",
        ),
        ({}, {"train": "x.jsonl"}, "need data.verifier, got none"),
        ({}, {"train": "x.jsonl", "verifier": "maths"}, "unknown verifier 'maths'; nearest: math"),
        ({}, {"train": "x.jsonl", "verifer": "math"}, "nearest: verifier"),
        ({}, {"train": ["x"], "verifier": "math"}, "data.train must be a path"),
    ],
)
def test_refused(task, data, message):
    with pytest.raises(ConfigError, match=message):
        build_task(task, data)
