"""`brorl eval` on a tiny untrained policy: files, JSON, refusals, and a process that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from brorl.cli.eval import evaluate
from brorl.errors import ConfigError, DataError, PolicyError
from brorl.evaluate.results import read_evaluation
from brorl.evaluate.suites import BENCHMARKS
from brorl.policy.load import save_policy, tiny_policy
from brorl.policy.tiny import TinyShape

app = typer.Typer()
app.command()(evaluate)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained policy that writes a few characters: enough to be counted."""
    path = tmp_path_factory.mktemp("model") / "tiny"
    save_policy(
        tiny_policy(
            TinyShape("llama", 1, 16, 2, 2, 32, 64, True), seed=0, device="cpu", trained_length=1
        ),
        path,
    )
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"say {i}", "answer": str(i % 10)} for i in range(12)]
    Path("own.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def call(*args):
    result = CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


OWN = ("--suite", "own.jsonl", "--verifier", "exact", "--samples", "4", "--max-new-tokens", "3")


def test_json_contract_and_files(model, place):
    """The fields that design promises; what is printed is what the file says."""
    got = json.loads(call(model, *OWN, "--workers", 0, "--json"))
    assert got["protocol"] | {"engine": 0} == {
        "samples": 4,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 0,
        "max_new_tokens": 3,
        "chat_template": None,
        "engine": 0,
        "seed": 0,
    }
    own = got["suites"]["own"]
    assert (own["problems"], own["samples"]) == (12, 48)
    assert set(own["pass@k"]) == {"1", "2", "4"}
    out = place / "evals/tiny"
    assert got["out"] == "evals/tiny"
    evaluation = read_evaluation(out / "evaluation.json")
    right = [p.c for p in evaluation.suites["own"].problems]
    assert own["pass@k"]["1"]["value"] == pytest.approx(sum(right) / 48)
    assert len(evaluation.model.weights_sha256) == 64
    assert evaluation.model.dtype == "float32"
    assert evaluation.versions["transformers"]
    assert "<svg" in (out / "report.html").read_text()
    assert "Benchmarks" in (out / "report.md").read_text()
    assert len((out / "verdicts.jsonl").read_text().splitlines()) == 48


def test_same_seed_same_file_and_another_seed_another(model, place):
    """Identity: bytes."""
    texts = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        call(model, *OWN, "--workers", 0, "--out", name, "--seed", seed, "--json")
        texts.append((place / name / "verdicts.jsonl").read_text())
    assert texts[0] == texts[1] != texts[2]


def test_first_problems_and_greedy(model, place):
    args = ("--problems", 5, "--temperature", 0, "--samples", 1, "--workers", 0, "--json")
    got = json.loads(call(model, *OWN[:4], "--max-new-tokens", 2, *args))
    assert got["suites"]["own"]["problems"] == 5
    assert set(got["suites"]["own"]["pass@k"]) == {"1"}
    evaluation = read_evaluation(place / "evals/tiny/evaluation.json")
    assert evaluation.suites["own"].source == "own.jsonl, first 5"


def test_answers_fill_what_the_positions_leave(model, place):
    """By hand: 64 positions less the longest prompt, "say 11" = 6 characters."""
    got = json.loads(
        call(model, *OWN[:4], "--problems", 12, "--samples", 1, "--workers", 0, "--json")
    )
    assert got["protocol"]["max_new_tokens"] == 58


def test_generated_tasks(model, place):
    """Prompts of 64 positions are too short for any: refused with the numbers."""
    args = ("--suite", "reasoning_gym", "--task", "chain_sum", "--per-task", 3, "--workers", 0)
    with pytest.raises(DataError, match=r"a prompt of \d+ tokens and 2 new ones: "):
        call(model, *args, "--max-new-tokens", 2)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (["--temperature", "0"], ConfigError, "is greedy: 4 samples would be equal"),
        (["--samples", "0"], ConfigError, "--samples >= 1, got 0"),
        (["--problems", "0"], ConfigError, "--problems >= 1, got 0"),
        (["--level", "95"], ConfigError, "0 < --level < 1"),
        (["--memory", "0"], ConfigError, "--memory > 0"),
        (["--top-p", "0"], ConfigError, "--top-p: Input should be greater than 0, got 0.0"),
        (["--top-k", "-1"], ConfigError, "--top-k"),
        (["--temperature", "-1"], ConfigError, "--temperature"),
        (["--max-new-tokens", "61"], DataError, "61 new ones"),
        (["--max-new-tokens", "0"], ConfigError, "--max-new-tokens"),
        (["--score", "x"], ConfigError, "threshold or continuous, got 'x'"),
        (["--verifier", "exakt"], ConfigError, "nearest: exact"),
        (["--prompt", "q"], DataError, "no field 'q'"),
        (["--device", "cuda:99"], ConfigError, "--device cuda:99 cannot be used here"),
        (["--dtype", "float8"], PolicyError, "float32"),
        (["--out", "own.jsonl/x"], ConfigError, r"--out own\.jsonl/x cannot be made"),
        (["--suite", "aime2024"], ConfigError, "nearest: aime24"),
        (["--suite", "own.jsonl"], ConfigError, "named twice"),
        (["--suite", "math500"], DataError, r"needs data/math500/test\.jsonl, from hkust-nlp"),
        (["--suite", "gone.jsonl"], DataError, "gone.jsonl"),
    ],
)
def test_refuses_in_one_line(model, place, args, error, message):
    with pytest.raises(error, match=message) as caught:
        call(model, *OWN, "--workers", 0, *args)
    assert "\n" not in str(caught.value)
    assert not list(place.glob("evals/*/evaluation.json"))


def test_no_model(place):
    with pytest.raises(PolicyError, match=r"no folder '\./gone'"):
        call("./gone", *OWN)


def test_a_suite_that_asks_in_words_needs_a_chat_template(model, place):
    """By hand: one AMC row; --plain sends it as it is."""
    path = place / "data" / BENCHMARKS["amc"].file
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([{"problem": "p", "answer": 1.0}]))
    long = ("--samples", 1, "--max-new-tokens", 1, "--workers", 0)
    with pytest.raises(ConfigError, match="suite amc asks in words and needs a chat template"):
        call(model, "--suite", "amc", *long)
    got = json.loads(call(model, "--suite", "amc", *long, "--plain", "--json"))
    assert (got["protocol"]["chat_template"], got["suites"]["amc"]["problems"]) == (None, 1)


def test_help_has_an_example():
    """Policy."""
    assert "brorl eval runs/quickstart --suite math500" in " ".join(call("--help").split())


RUN = "import typer; from brorl.cli.eval import evaluate; a = typer.Typer(); a.command()(evaluate); a()"


@pytest.mark.slow
def test_killed_at_any_time_it_goes_on_without_sampling_twice(model, place):
    """Attack: SIGKILL after 1, 2 and 3 lines more than the last time; what was on disk stays
    there byte for byte, and the end is what an unstopped evaluation gives."""
    rows = [{"prompt": f"say {i}", "answer": str(i % 10)} for i in range(150)]
    Path("own.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    args = [sys.executable, "-c", RUN, str(model), "--suite", "own.jsonl", "--verifier", "exact"]
    args += ["--samples", "16", "--max-new-tokens", "50", "--memory", "0.001", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    samples, kills, kept = place / "killed/samples.jsonl", 0, b""
    while True:
        process = subprocess.Popen(
            [*args, "--out", "killed"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if kills < 3:
            before = samples.stat().st_size if samples.exists() else 0
            while process.poll() is None and not (
                samples.exists() and samples.stat().st_size > before + 20_000
            ):
                time.sleep(0.01)
            assert process.poll() is None, "it was done before it could be killed"
            process.send_signal(signal.SIGKILL)
            process.wait()
            now = samples.read_bytes()
            whole = now[: now.rfind(b"\n") + 1]
            assert whole.startswith(kept)
            kept, kills = whole, kills + 1
        else:
            assert process.wait() == 0
            break
    assert samples.read_bytes().startswith(kept)
    subprocess.run([*args, "--out", "whole"], env=environment, check=True, capture_output=True)
    lines = [
        sorted((place / d / "samples.jsonl").read_text().splitlines()) for d in ("killed", "whole")
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 150 * 16 + 1
    one, two = (read_evaluation(place / d / "evaluation.json") for d in ("killed", "whole"))
    assert one == two
