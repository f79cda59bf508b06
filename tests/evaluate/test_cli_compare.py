"""`brorl compare` as a user calls it: files in, JSON, tables and pages out, one line for a fault."""

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from brorl.cli.compare import compare
from brorl.errors import ConfigError, DataError
from brorl.evaluate.results import write_evaluation

from .evaluations import evaluation, problem, suite

app = typer.Typer()
app.command()(compare)


def write(path, shift, seed=0, tasks=3):
    rows = [
        problem(
            f"p{i}", min(16, (i * 7 + seed) % 12 + shift), 16, task=f"t{i % tasks}", category="c"
        )
        for i in range(30)
    ]
    write_evaluation(evaluation({"own": suite(rows)}, seed=seed, samples=16), path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, shift, seed in (
        ("base", 0, 0),
        ("a1", 1, 1),
        ("a2", 1, 2),
        ("b1", 3, 3),
        ("b2", 3, 4),
    ):
        write(tmp_path / f"{name}.json", shift, seed)
    return tmp_path


def call(*args):
    result = CliRunner().invoke(app, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_json_contract_and_sign(files):
    """By hand: each problem of b1 gets 3 of 16 more than base, less where it wraps at 12."""
    got = json.loads(call("base.json", "b1.json", "--json"))
    assert {"difference", "low", "high", "p_value", "problems", "smallest_detectable"} <= got.keys()
    assert set(got["p_value"]) == {"t", "permutation", "wilcoxon"}
    assert got["problems"] == 30
    base = [(i * 7) % 12 for i in range(30)]
    b1 = [(i * 7 + 3) % 12 + 3 for i in range(30)]
    assert got["difference"] == pytest.approx((sum(b1) - sum(base)) / 30 / 16)
    assert got["low"] < got["difference"] < got["high"]
    back = json.loads(call("b1.json", "base.json", "--json"))
    assert back["difference"] == pytest.approx(-got["difference"])


def not_json(name):
    raise AssertionError(f"{name} is not JSON")


def test_what_changed_beside_the_mean_is_in_the_json(files):
    got = json.loads(call("base.json", "b1.json", "--json"), parse_constant=not_json)
    shifts = {s["name"]: s for s in got["distribution"]["shifts"]}
    assert shifts["pass@1"]["difference"]["value"] == pytest.approx(got["difference"])
    assert set(got["distribution"]["pass@k"]) == {"1", "2", "4", "8", "16"}
    assert got["distribution"]["crossing"]["k"] is None
    assert got["distribution"]["moves"]["newly_by_chance"] > 0


def test_an_evaluation_against_itself_is_still_json(files):
    got = json.loads(call("base.json", "base.json", "--json"), parse_constant=not_json)
    assert (got["difference"], got["effect_size"], got["p_value"]["t"]) == (0, 0, 1)


def test_same_seed_same_bytes(files):
    assert call("base.json", "b1.json", "--json") == call("base.json", "b1.json", "--json")


def test_runs_arms_and_start(files):
    got = json.loads(call("base.json", "a1.json,a2.json", "b1.json,b2.json", "--json"))
    assert [c["b"] for c in got["comparisons"]] == ["a1+a2", "b1+b2"]
    assert got["comparisons"][1]["p_holm_over_arms"] >= got["comparisons"][1]["p_value"]["t"]
    got = json.loads(call("a1.json,a2.json", "b1.json,b2.json", "--start", "base.json", "--json"))
    assert got["runs"] == [2, 2]
    assert [r["task"] for r in got["regimes"]] == ["t0", "t1", "t2"]


def test_table_begins_with_the_claim(files):
    out = call("base.json", "b1.json")
    assert out.startswith("b1 scores higher than base on these 30 problems: +")
    assert "\nTests\n" in out
    assert "sign-flip p" in out
    assert "\nBeside the mean: b1 against base\n" in out
    assert "\nReach: pass@k of b1 minus base\n" in out
    assert "The two curves do not cross" in out


def test_pages(files):
    call("base.json", "b1.json", "--html", "deep/c.html", "--markdown", "c.md")
    assert "<svg" in (files / "deep/c.html").read_text()
    assert (files / "c.md").read_text().startswith("# b1 against base, score\n")


def test_equal_file_names_are_told_apart(files):
    (files / "other").mkdir()
    write(files / "other/base.json", 3, 3)
    got = json.loads(call("base.json", "other/base.json", "--json"))
    assert (got["a"], got["b"]) == ("base.json", "other/base.json")


def test_folders_and_runs_are_evaluations_too(files):
    """An --out folder means its evaluation.json, a run its newest eval; names stay short."""
    for path, shift in (
        ("evals/m/evaluation.json", 0),
        ("runs/r/eval/step-000002.json", 1),
        ("runs/r/eval/step-000010.json", 3),
    ):
        (files / path).parent.mkdir(parents=True, exist_ok=True)
        write(files / path, shift)
    got = json.loads(call("evals/m", "runs/r", "--json"))
    direct = json.loads(call("evals/m/evaluation.json", "runs/r/eval/step-000010.json", "--json"))
    assert (got["a"], got["b"]) == ("m", "r")
    assert (direct["a"], direct["b"]) == ("m", "step-000010")
    assert got["difference"] == direct["difference"] > 0
    (files / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty/evaluation\.json: no such"):
        call("evals/m", "empty")


def test_metric_is_used(files):
    score, reach = (
        json.loads(call("base.json", "b1.json", "--metric", m, "--json"))
        for m in ("score", "pass@16")
    )
    assert reach["metric"] == "pass@16"
    assert reach["difference"] != score["difference"]


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (["base.json"], ConfigError, "at least two evaluations, got 1"),
        (["base.json", "gone.json"], DataError, r"gone\.json: no such evaluation file"),
        (["base.json", ","], ConfigError, "FILE,FILE, got ','"),
        (["base.json", "b1.json", "--level", "95"], ConfigError, "need 0 < --level < 1"),
        (["base.json", "b1.json", "--power", "0.01"], ConfigError, "< --power < 1"),
        (["base.json", "b1.json", "--draws", "0"], ConfigError, "--draws >= 1, got 0"),
        (["base.json", "b1.json", "--metric", "pass@32"], DataError, "pass@32 needs 32 samples"),
        (["base.json", "b1.json", "--metric", "f1"], DataError, "got 'f1'"),
        (["base.json", "b1.json,b1.json"], DataError, "the same evaluation"),
        (
            ["base.json", "b1.json", "a1.json", "--start", "base.json"],
            ConfigError,
            "exactly two arms",
        ),
        (
            ["base.json", "b1.json", "--html", "base.json/x"],
            ConfigError,
            r"cannot write base\.json/x",
        ),
    ],
)
def test_refuses(files, args, error, message):
    with pytest.raises(error, match=message) as caught:
        call(*args)
    assert "\n" not in str(caught.value)


def test_help_has_an_example():
    """Policy."""
    assert "brorl compare evals/base evals/wide-1" in " ".join(call("--help").split())


def test_comparing_needs_no_torch(files):
    """Policy: two files on a laptop are compared in a second, figures included."""
    code = (
        "import sys, typer; from brorl.cli.compare import compare; app = typer.Typer();"
        "app.command()(compare); app(standalone_mode=False);"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    args = ["base.json", "b1.json", "--html", "c.html"]
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "b1 scores higher than base" in done.stdout
