"""A task is valid if its verifier takes its own golds and pays no junk."""

import json

from brorl.tasks.build import build_task
from brorl.tasks.check import check_task


def check(task):
    return check_task(task, sample=50, seed=0, deadline_s=20.0)


def rows(tmp_path, golds):
    path = tmp_path / "d.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"q{i}", "answer": g}) + "\n" for i, g in enumerate(golds))
    )
    return str(path)


def test_a_sound_task(tmp_path):
    result = check(build_task({}, {"train": rows(tmp_path, ["1/2", "x+1"]), "verifier": "math"}))
    assert (result.checked, result.accepted, result.valid) == (2, 2, True)


def test_golds_that_the_verifier_does_not_take(tmp_path):
    """A choice verifier over golds that are no options: the wrong verifier was chosen."""
    verifier = tmp_path / "v.py"
    verifier.write_text("def even(*, gold, answer, row):\n    return int(answer) % 2 == 0\n")
    data = rows(tmp_path, [2, 3, 4])
    result = check(build_task({}, {"train": data, "verifier": f"{verifier}:even"}))
    assert (result.checked, result.accepted, result.valid) == (3, 2, False)
    assert [r.text for r in result.refused] == ["3"]


def test_a_verifier_that_pays_anything(tmp_path):
    """Attack: takes all golds, and all else."""
    verifier = tmp_path / "v.py"
    verifier.write_text("def yes(*, gold, answer, row):\n    return True\n")
    result = check(build_task({}, {"train": rows(tmp_path, [1, 2]), "verifier": f"{verifier}:yes"}))
    assert result.refused == ()
    assert {r.text for r in result.paid_junk} >= {"zzz", "I do not know."}
    assert not result.valid


def test_scorer_only_items_are_counted_apart():
    task = build_task({"name": "graph_color", "train_size": 3, "eval_size": 2}, {})
    result = check(task)
    assert (result.checked, result.without_gold, result.valid) == (0, 5, True)


def test_reasoning_gym_and_composition_are_valid():
    for name in ("gcd", "composition"):
        result = check(build_task({"name": name, "train_size": 6, "eval_size": 4}, {}))
        assert (result.accepted, result.valid) == (10, True)
