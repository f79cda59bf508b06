"""`brorl tasks` through its functions: what is printed, refused, and the exit statuses."""

import json

import pytest
from typer.testing import CliRunner

from brorl.cli.tasks import app
from brorl.errors import ConfigError, DataError
from brorl.verify.reasoning_gym import registered_names


def run(*arguments, status=0):
    """Standard output; an error of ours is raised, as `brorl.cli.main` expects."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


def rows(path, *golds):
    path.write_text("".join(json.dumps({"q": f"q{i}", "a": g}) + "\n" for i, g in enumerate(golds)))
    return path


def test_list_names_every_task_and_its_faults():
    found = json.loads(run("list", "--json"))
    ours = {"composition", "mixture", "programs"}
    assert {t["name"] for t in found["tasks"]} == {*registered_names(), *ours}
    refused = [t["name"] for t in found["tasks"] if not t["usable"]]
    assert refused == ["propositional_logic"]
    assert "evaluates the answer as Python" in run("list")
    assert {"math", "code", "choice"} <= set(found["verifiers"])


def test_show():
    found = json.loads(run("show", "countdown", "--json"))
    assert found["category"] == "games"
    assert "evaluates the answer as Python" in found["judged_by"]
    assert found["config"]["min_numbers"] == 4
    assert found["example"]["gold"] in run("show", "countdown")
    with pytest.raises(ConfigError, match="nearest: countdown"):
        run("show", "countdwn")


def test_sample_by_name_with_overrides():
    found = json.loads(
        run(
            "sample",
            "spell_backward",
            "prompt=rev {word}=",
            "config.max_word_len=4",
            "-n",
            4,
            "--json",
        )
    )
    problems = found["problems"]
    assert len(problems) == 4
    for p in problems:
        word = p["prompt"].removeprefix("rev ").removesuffix("=")
        assert p["gold"] == word[::-1]
        assert len(word) <= 4
    held = json.loads(run("sample", "spell_backward", "-n", 4, "--split", "eval", "--json"))
    assert held["split"] == "eval"


def test_sample_from_a_file_and_a_recipe(tmp_path):
    path = rows(tmp_path / "d.jsonl", 4, 5)
    text = run("sample", path, "verifier=math", "prompt=q", "data.answer=a", "-n", 1)
    assert text == "[data/train/1]\nq0\n--> 4\n\n"
    assert "--> " in run("sample", "quickstart", "task.train_size=2", "task.eval_size=2", "-n", 1)


def test_check_says_yes_and_no(tmp_path):
    path = rows(tmp_path / "d.jsonl", 4, "1/2")
    found = json.loads(run("check", path, "verifier=math", "prompt=q", "answer=a", "--json"))
    assert (found["valid"], found["checked"], found["accepted"]) == (True, 2, 2)
    own = tmp_path / "v.py"
    own.write_text("def yes(*, gold, answer, row):\n    return True\n")
    text = run("check", path, f"verifier={own}:yes", "prompt=q", "answer=a", status=1)
    assert "paid junk: data/train/1" in text
    assert text.endswith("nothing should be trained on this task\n")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("sample", "gcd", "max_num"), ConfigError, "need KEY=VALUE, got 'max_num'"),
        (("sample", "gcd", "train_size.x=3"), ConfigError, "train_size is no section"),
        (("sample", "gcd", "config={"), ConfigError, "the value is no YAML"),
        (("sample", "gcd", "--split", "test"), ConfigError, "must be train, eval or warmstart"),
        (("sample", "none.jsonl", "verifier=math"), DataError, "there is none at none.jsonl"),
        (("check", "propositional_logic"), ConfigError, "is refused"),
        (("sample", "no-such-recipe"), ConfigError, "no-such-recipe"),
    ],
)
def test_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        run(*arguments)
