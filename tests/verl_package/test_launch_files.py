"""The launch files: their commands pass a dry run as written (policy), and say the paper's set-up."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from brorl.cli.main import app

FOLDER = Path(__file__).parents[2] / "docs" / "launch"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "math.jsonl"
    rows = [{"prompt": f"What is {a} + {a + 1}?", "answer": str(2 * a + 1)} for a in range(60)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def check(verl, nodes):
    """128 prompts x 512, context 16,384, 8 updates, rate 1e-6 · sqrt(65,536 / 8,192)."""
    assert (verl["trainer.nnodes"], verl["trainer.n_gpus_per_node"]) == (nodes, 8)
    assert verl["data.train_batch_size"] == 128
    assert verl["actor_rollout_ref.rollout.n"] == 512
    assert verl["data.max_prompt_length"] + verl["data.max_response_length"] == 16384
    assert verl["actor_rollout_ref.actor.ppo_mini_batch_size"] == 16
    assert verl["actor_rollout_ref.actor.optim.lr"] == pytest.approx(2.828e-6, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nodes"), [("slurm-1x8.sh", 1), ("slurm-8x8.sh", 8)])
def test_a_slurm_script_makes_its_dry_run(tmp_path, data, name, nodes):
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("")
    (venv / "brorl").write_text(f'#!/bin/sh\nexec {sys.executable} -m brorl.cli.main "$@"\n')
    script = "import sys; sys.argv[0] = 'brorl'; from brorl.cli.main import main; main()"
    (venv / "brorl").write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(script)} "$@"\n')
    (venv / "brorl").chmod(0o755)
    env = os.environ | {
        "BRORL_VENV": str(venv.parent),
        "DRY_RUN": "1",
        "PATH": f"{venv}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", str(FOLDER / name), str(data), str(tmp_path / "run")],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    check(json.loads((tmp_path / "run" / "verl.json").read_text()), nodes)


@pytest.mark.parametrize(("name", "nodes"), [("kuberay-1x8.yaml", 1), ("kuberay-8x8.yaml", 8)])
def test_a_kuberay_job_has_its_machines_and_a_command_that_compiles(tmp_path, data, name, nodes):
    job = yaml.safe_load((FOLDER / name).read_text())
    cluster = job["spec"]["rayClusterSpec"]
    groups = [{"replicas": 1} | cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]
    assert sum(g["replicas"] for g in groups) == nodes
    assert all(g["rayStartParams"]["num-gpus"] == "8" for g in groups)
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[0] == "brorl"
    words = [w.replace("/shared/math.jsonl", str(data)) for w in words[1:]]
    words = [str(tmp_path / "run") if w == "/shared/runs/brorl" else w for w in words]
    found = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert found.exit_code == 0, found.exception
    check(json.loads(found.stdout)["verl"], nodes)
