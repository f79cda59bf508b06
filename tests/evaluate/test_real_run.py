"""A warm-started tiny policy, evaluated and compared through the commands a user types."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from brorl.cli.compare import compare
from brorl.cli.eval import evaluate
from brorl.policy.load import save_policy, tiny_policy
from brorl.policy.tiny import TinyShape
from brorl.tasks.build import build_task
from brorl.train.api import warm_start_only
from brorl.train.recipe import load_recipe

pytestmark = pytest.mark.slow
app = typer.Typer()
app.command()(evaluate)
app.command()(compare)
SAMPLES = ("--samples", 16, "--temperature", 1, "--top-p", 1, "--max-new-tokens", 12)


def call(*args):
    result = CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_evaluated_twice_and_compared(tmp_path, monkeypatch):
    """Statistical and by construction: two evaluations of one policy under two seeds differ by no
    more than sampling allows (p > 1e-4, both intervals meet); the same against its untrained
    beginning is told apart beyond doubt."""
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("quickstart")
    problems = build_task(recipe.task, {}).problems("eval")[:64]
    rows = [json.dumps({"prompt": p.prompt, "answer": p.gold}) + "\n" for p in problems]
    Path("reversed.jsonl").write_text("".join(rows))
    warm, _ = warm_start_only("quickstart")
    shape = TinyShape(**recipe.model.shape.model_dump(exclude={"vocabulary"}))
    save_policy(tiny_policy(shape, seed=0, device="cpu", trained_length=16), Path("untrained"))

    suite = ("--suite", "reversed.jsonl", "--verifier", "exact", *SAMPLES, "--json")
    one = call("evaluate", warm, *suite, "--out", "one")
    two = call("evaluate", warm, *suite, "--out", "two", "--seed", 1)
    call("evaluate", "untrained", *suite, "--out", "none")
    a, b = (x["suites"]["reversed"] for x in (one, two))
    assert (a["problems"], a["samples"]) == (64, 1024)
    assert 0.05 < a["pass@k"]["1"]["value"] < 0.95
    assert a["pass@k"]["1"]["low"] < b["pass@k"]["1"]["high"]
    assert b["pass@k"]["1"]["low"] < a["pass@k"]["1"]["high"]

    same = call("compare", "one", "two", "--json", "--html", "same.html")
    assert min(same["p_value"].values()) > 1e-4
    assert same["problems"] == 64
    assert Path("same.html").read_text().count("<svg") == 0  # one task: no changes to sort
    gain = call("compare", "none", "one", "--json")
    assert gain["low"] > 0
    assert max(gain["p_value"].values()) < 1e-4
    assert gain["claim"].startswith("one scores higher than none")
