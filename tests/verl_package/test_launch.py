"""`brorl launch`: a dry run needs no verl, GPU, network or model; bad input is one line each."""

import importlib.metadata
import importlib.util
import json
import socket
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from brorl.cli.main import app
from brorl.errors import ConfigError, DataError, EngineError
from brorl.tasks.problem import Problem
from brorl.train.recipe import load_recipe
from brorl.verl import start
from brorl.verl.compile import Cluster, compile_recipe
from brorl.verl.data_files import read_problems, write_problems
from brorl.verl.prepare import prepare
from brorl.verl.table import TABLE

SMALL = [
    "quickstart",
    "warmstart=null",
    "model.path=/nowhere/model",
    "task.train_size=8",
    "task.eval_size=3",
    "grading.check_golds=0",
]


def launch(*words, out):
    return CliRunner().invoke(app, ["launch", *words, "--out", str(out)])


def test_a_dry_run_writes_everything_and_starts_nothing(tmp_path):
    """Blocks verl, ray, torch.cuda and sockets: what is written comes from the recipe alone."""
    script = (
        "import sys, socket\n"
        "for name in ('verl', 'ray', 'hydra', 'omegaconf'): sys.modules[name] = None\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.create_connection = socket.socket.connect = refuse\n"
        f"sys.argv = ['brorl', 'launch', *{SMALL!r}, '--dry-run', '--json', '--out', {str(tmp_path / 'r')!r}]\n"
        "from brorl.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    run = tmp_path / "r"
    assert found["unmapped"] == []
    assert found["verl"] == json.loads((run / "verl.json").read_text())
    assert found["command"][1:3] == ["-m", "verl.trainer.main_ppo"]
    assert set(found["brorl"]).isdisjoint(found["not_used"])
    words = (run / "command.sh").read_text()
    assert all(name in words for name in found["verl"])
    lines = (run / "settings.md").read_text().splitlines()
    assert len(lines) == 2 + len(TABLE)
    assert pq.read_table(run / "data" / "train.parquet").num_rows == 8
    assert pq.read_table(run / "data" / "heldout.parquet").num_rows == 3


def test_verl_s_own_columns_and_the_whole_problem(tmp_path):
    row = {"id": 1, "nested": {"a": [1.5, None, True]}}
    problems = [
        Problem("p1", "What is 1 + 1?", "2", row=row, task="sums"),
        Problem("p2", "Und 2 · 2? ü", None, row={}, task=""),
    ]
    write_problems(tmp_path, problems, problems[:1])
    first = pq.read_table(tmp_path / "data" / "train.parquet").to_pylist()[0]
    assert first["prompt"] == [{"role": "user", "content": "What is 1 + 1?"}]
    assert first["reward_model"] == {"style": "rule", "ground_truth": "2"}
    assert first["data_source"] == "sums"
    assert read_problems(tmp_path / "data" / "train.parquet") == problems
    with pytest.raises(DataError, match="not a data file"):
        read_problems(tmp_path / "data" / "none.parquet")
    with pytest.raises(DataError, match="p3: its row does not fit JSON"):
        write_problems(tmp_path, [Problem("p3", "x", "y", row={"v": float("nan")})], [])


def test_refusals_leave_no_folder(tmp_path):
    for words in (
        ["quickstart"],
        [*SMALL, "dynamic_sampling.surplus=carry"],
        [*SMALL, "rollout.m=3"],
        [*SMALL, "--verl", "trainer.nnodes=4"],
        [*SMALL, "task.eval_size=0"],
    ):
        found = launch(*words, "--dry-run", out=tmp_path / "r")
        assert found.exit_code != 0
        assert not (tmp_path / "r").exists(), words


def test_the_same_recipe_goes_on_and_another_is_refused(tmp_path):
    assert launch(*SMALL, "--dry-run", out=tmp_path / "r").exit_code == 0
    (tmp_path / "r" / "checkpoints" / "global_step_1").mkdir()
    again = launch(*SMALL, "steps=200", "--dry-run", out=tmp_path / "r")
    assert again.exit_code == 0
    assert (
        json.loads((tmp_path / "r" / "verl.json").read_text())["trainer.total_training_steps"]
        == 200
    )
    assert (tmp_path / "r" / "checkpoints" / "global_step_1").is_dir()
    other = launch(*SMALL, "lr=1e-5", "--dry-run", out=tmp_path / "r")
    assert isinstance(other.exception, ConfigError)
    assert "holds a run with lr=0.0003, got 1e-05" in str(other.exception)


def test_without_verl_or_with_another_one(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="verl is not installed: pip install"):
        start.check_versions()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name != "ray" or None)
    with pytest.raises(ConfigError, match="ray is not installed"):
        start.check_versions()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.8.0")
    with pytest.raises(ConfigError, match=r"need verl 0\.9\.1, got 0\.8\.0"):
        start.check_versions()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.1")
    start.check_versions()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name != "vllm" else None)
    with pytest.raises(ConfigError, match="vLLM, which is not installed"):
        start.check_versions()


def compiled(tmp_path, *overrides):
    settings = load_recipe("quickstart", [*SMALL[1:], *overrides])
    return compile_recipe(settings, tmp_path, Cluster())


def test_what_the_machine_lacks(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 nodes need --ray-address"):
        start.check_cluster(compiled(tmp_path), Cluster(2, 1))
    with pytest.raises(ConfigError, match="need 8 GPUs, this machine has 1"):
        start.check_cluster(compiled(tmp_path), Cluster(1, 8))
    with pytest.raises(ConfigError, match="/nowhere/model: no checkpoint there"):
        start.check_cluster(compiled(tmp_path), Cluster())


def test_a_cluster_that_does_not_answer():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(
        ConfigError, match=rf"no Ray cluster answers at 127.0.0.1:{port} \(Connection"
    ):
        start.check_address(f"127.0.0.1:{port}")
    with pytest.raises(ConfigError, match="reads HOST:PORT or auto"):
        start.check_address("somewhere")
    start.check_address("auto")


def test_nodes_that_do_not_see_the_model_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "check_address", lambda address: None)
    monkeypatch.setattr(
        start, "unseen_by", lambda address, paths: [f"10.0.0.2 does not see {paths[0]}"]
    )
    with pytest.raises(
        ConfigError, match=r"every node must see .*10\.0\.0\.2 does not see /nowhere"
    ):
        start.check_cluster(compiled(tmp_path), Cluster(2, 1, "10.0.0.1:6379"))


def test_a_pinned_revision_is_fetched_once(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: asked.append((a, k)))
    settings = load_recipe("prorl", ["data.train=x.jsonl"])
    start.fetch_model(compile_recipe(settings, tmp_path, Cluster()), tmp_path)
    name = "nvidia/Nemotron-Research-Reasoning-Qwen-1.5B"
    assert asked == [((name,), {"revision": "v2", "local_dir": str(tmp_path / "model")})]
    start.fetch_model(compiled(tmp_path), tmp_path)
    assert len(asked) == 1

    def gone(*a, **k):
        raise OSError("no such revision\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", gone)
    with pytest.raises(ConfigError, match=r"revision v2: no such revision$"):
        start.fetch_model(compile_recipe(settings, tmp_path, Cluster()), tmp_path)


def test_a_failed_run_says_why_in_one_line(tmp_path):
    words = "print('x'); print('ray.TaskError(EngineError): brorl.errors.EngineError: worker lost'); raise SystemExit(1)"
    with pytest.raises(EngineError, match=r"status 1: EngineError: worker lost; see .*verl\.log"):
        start.run_verl([sys.executable, "-c", words], tmp_path, echo=None)
    assert "worker lost" in (tmp_path / start.LOG).read_text()
    start.run_verl([sys.executable, "-c", "print('fine')"], tmp_path, echo=None)


def test_which_line_of_a_log_is_the_reason():
    """Ours before verl's, the last of each; a log that names nothing says so."""
    log = [
        "ValueError: first",
        "brorl.errors.RunError: ours",
        "ray.exceptions.RayTaskError: after it",
    ]
    assert start.reason(log) == "RunError: ours"
    assert start.reason(log[:1]) == "ValueError: first"
    assert start.reason(["OSError: [Errno 98] Address already in use"]) == (
        "OSError: [Errno 98] Address already in use"
    )
    assert start.reason([]) == "no error was named"


def test_a_task_s_golds_are_checked_before_anything_is_written(tmp_path, monkeypatch):
    from brorl.train import api

    def refuse(settings, data):
        raise DataError("junk")

    monkeypatch.setattr(api, "check_golds", refuse)
    with pytest.raises(DataError, match="junk"):
        prepare(compiled(tmp_path / "r"), tmp_path / "r")
    assert not (tmp_path / "r").exists()
