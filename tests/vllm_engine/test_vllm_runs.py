"""Runs of a few steps with vLLM: trained, stopped, resumed, evaluated; and what it has to say."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml
from train.runs import no_report
from train.test_bad_input import told
from train.toys import recipe

from brorl.policy.load import load_policy
from brorl.record.metrics import read_metrics
from brorl.record.rollouts import rollout_path
from brorl.rollout.vllm_process import version as vllm_version

from .parts import WIDTH, vllm

pytestmark = pytest.mark.vllm
__all__ = ["no_report"]
VERSION = vllm_version()

SHAPE = dict(zip(("hidden", "heads", "kv_heads"), WIDTH.values(), strict=True))
SMOLLM2 = Path("~/.cache/brorl/models/SmolLM2-135M-Instruct").expanduser()


@pytest.fixture
def brorl(capfd, monkeypatch, no_report):
    """The command line, in this process: vLLM is imported once."""

    def call(*words):
        return told(capfd, monkeypatch, *words)

    return call


def toy(folder, **changes):
    folder.mkdir(exist_ok=True)
    base = {"engine": "vllm", "memory_budget": 1 << 24}
    changes["rollout"] = base | changes.get("rollout", {})
    return recipe(folder, model={"shape": SHAPE}, **changes)


def answers(run, step):
    """(group, sample, tokens) of every answer of a step, in order."""
    rows = pyarrow.parquet.read_table(rollout_path(run, step)).to_pylist()
    return [(r["group_id"], r["sample_index"], tuple(r["response_ids"])) for r in rows]


def test_a_run_trains_on_what_vllm_samples(brorl, tmp_path):
    """By the contract: finished, with the engine's figures; the trainer scored old log-probs.

    In float32 the two agree to 1e-5 nats a token, at the start and after every update; a cap of 2
    removes nothing.
    """
    path = toy(tmp_path / "in", tis={"type": "icepop", "min": 0.5}, rollout={"temperature": 1.2})
    status, _, out = brorl("train", path, f"run_dir={tmp_path}/run", "--json")
    assert status == 0
    assert json.loads(out)["steps"] == 5
    rows = read_metrics(tmp_path / "run")
    for row in rows[1:]:
        assert row["policy/updates"] in (0, 2)
        if row["policy/updates"]:
            assert abs(row["mismatch/kl"]) < 1e-5
            assert row["mismatch/ratio_max"] == pytest.approx(1, abs=1e-4)
            assert row["mismatch/masked_frac"] == 0
    assert all(row["memory/kv_cache"] == 1 << 24 for row in rows)
    seen = {r["step"]: r["mismatch/fingerprint"] for r in rows if "mismatch/fingerprint" in r}
    assert list(seen) == [0, 2, 4, 5]  # evaluated after 2, so the answers of 3 need no transfer
    assert max(seen.values()) < 1e-5
    assert rows[-1]["updates"] > 0
    recorded = json.loads((tmp_path / "run/environment.json").read_text())
    assert recorded["engine"] == {"name": "vllm", "version": VERSION}


def test_groups_grow_in_waves(brorl, tmp_path):
    """Identity: answers of groups that stopped are the first ones of a fixed width's groups."""
    waves = toy(tmp_path / "a", rollout={"n": None, "waves": [4, 8], "stop_right": 2}, steps=1)
    values = yaml.safe_load(waves.read_text())
    del values["rollout"]["n"]
    waves.write_text(yaml.safe_dump(values))
    assert brorl("train", waves, f"run_dir={tmp_path}/waves")[0] == 0
    assert brorl("train", toy(tmp_path / "b", steps=1), f"run_dir={tmp_path}/fixed")[0] == 0
    fixed = {(g, i): tokens for g, i, tokens in answers(tmp_path / "fixed", 1)}
    grown = answers(tmp_path / "waves", 1)
    sizes = {g: sum(x[0] == g for x in grown) for g, _, _ in grown}
    assert set(sizes.values()) == {4, 8}
    both = [fixed[g, i] == tokens for g, i, tokens in grown if (g, i) in fixed]
    assert len(both) >= 8
    assert all(both)


def test_an_engine_lost_in_a_step_is_status_3_and_the_run_goes_on(brorl, tmp_path, monkeypatch):
    """What holds after a resume: the same prompts under the same streams, from the checkpoint's
    weights, which the probe compares. On one thread and in float32 the answers were equal too.
    """
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    path = toy(tmp_path / "in", save_every=1)
    assert brorl("train", path, f"run_dir={whole}")[0] == 0
    step, calls = vllm.LLMEngine.step, []

    def failing(self):
        calls.append(1)
        if read_metrics(cut) and read_metrics(cut)[-1]["step"] == 2:
            raise RuntimeError("device lost")
        return step(self)

    with monkeypatch.context() as broken:
        broken.setattr(vllm.LLMEngine, "step", failing)
        status, lines, _ = brorl("train", path, f"run_dir={cut}")
    assert status == 3
    assert [x for x in lines if x.startswith("brorl: ")] == [
        "brorl: vLLM failed while sampling: RuntimeError: device lost; the last checkpoint is intact"
    ]
    assert not [x for x in lines if "Traceback" in x]
    assert brorl("resume", cut)[0] == 0
    ours, theirs = read_metrics(cut), read_metrics(whole)
    assert [r["step"] for r in ours] == [0, 1, 2, 3, 4, 5]
    for step in range(1, 6):
        assert [x[:2] for x in answers(cut, step)] == [x[:2] for x in answers(whole, step)]
    assert answers(cut, 3) == answers(whole, 3)
    assert [r["updates"] for r in ours] == [r["updates"] for r in theirs]
    assert max(r.get("mismatch/fingerprint", 0) for r in ours) < 1e-5


def test_weights_that_do_not_follow_stop_the_run(brorl, tmp_path, monkeypatch):
    """Attack: the trap of tied embeddings, in a run: found before the first answer after it."""
    from brorl.rollout import vllm_weights

    pack, calls = vllm_weights.repack_embeddings, []

    def at_the_start_only(model):
        calls.append(1)
        if len(calls) == 1:
            pack(model)

    monkeypatch.setattr(vllm_weights, "repack_embeddings", at_the_start_only)
    status, lines, _ = brorl("train", toy(tmp_path / "in"), f"run_dir={tmp_path}/run")
    assert status == 3
    assert "brorl: vLLM does not sample from the trained weights of update 2" in lines[-1]
    assert [r["step"] for r in read_metrics(tmp_path / "run")] == [0, 1]


def test_a_policy_that_vllm_cannot_run_leaves_no_run(brorl, tmp_path):
    path = toy(tmp_path / "in")
    status, lines, _ = brorl("train", path, f"run_dir={tmp_path}/run", "model.shape.heads=4")
    assert (status, (tmp_path / "run").exists()) == (2, False)
    assert "attention heads of width 16" in lines[-1]
    status, lines, _ = brorl("train", path, f"run_dir={tmp_path}/run", "rollout.vllm.block_size=17")
    assert (status, len(lines)) == (2, 1)


def test_an_evaluation_through_vllm(brorl, tmp_path, monkeypatch):
    """Identity: greedy answers of vLLM and of the embedded engine are the same words."""
    path = toy(tmp_path / "in", steps=1)
    assert brorl("train", path, f"run_dir={tmp_path}/run")[0] == 0
    monkeypatch.chdir(tmp_path)
    Path("own.jsonl").write_text(
        '{"prompt": "q1=", "answer": "x"}\n{"prompt": "q=", "answer": "a"}\n'
    )
    words = ("eval", "run", "--suite", "own.jsonl", "--verifier", "exact", "--workers", 0)
    words += ("--max-new-tokens", 6, "--memory", 0.02)
    greedy = ("--samples", 1, "--temperature", 0)
    assert brorl(*words, *greedy, "--out", "v", "--engine", "vllm")[0] == 0
    assert brorl(*words, *greedy, "--out", "e")[0] == 0
    texts = [Path(x, "samples.jsonl").read_text().splitlines()[1:] for x in ("v", "e")]
    assert sorted(texts[0]) == sorted(texts[1])
    options = ("--engine", "vllm", "--engine-option", "max_num_seqs=4", "--samples", 8)
    assert brorl(*words, *options, "--out", "w")[0] == 0
    found = json.loads(Path("w/evaluation.json").read_text())
    assert found["protocol"]["engine"] == "vllm"
    assert found["versions"]["vllm"] == VERSION


@pytest.mark.slow
@pytest.mark.skipif(
    not (SMOLLM2 / "config.json").is_file(), reason=f"no checkpoint at {SMOLLM2}: make smollm2"
)
def test_smollm2_trains_a_step_on_what_vllm_samples(brorl, tmp_path):
    """A real model with tied embeddings: float32 log-probs within 1e-3 nats a token on average."""
    status, _, _ = brorl(
        "train", "smollm2", f"run_dir={tmp_path}/run", "rollout.engine=vllm", "rollout.n=8",
        "rollout.memory_budget=268435456", "prompts_per_step=2", "steps=2", "eval.problems=2",
        "eval.samples=2", "grading.workers=0", "threads=1", "logger=[]",
        "dynamic_sampling.max_gen_batches=1", "dynamic_sampling.enable=false",
    )  # fmt: skip
    assert status == 0
    rows = read_metrics(tmp_path / "run")
    assert [r["step"] for r in rows] == [0, 1, 2]
    assert max(r.get("mismatch/fingerprint", 0) for r in rows) < 1e-4
    assert all(abs(r["mismatch/kl"]) < 1e-3 for r in rows[1:] if "mismatch/kl" in r)
    policy = load_policy(
        str(max((tmp_path / "run/checkpoints").glob("step-*"))),
        revision=None, dtype="float32", device="cpu", trained_length=8,
    )  # fmt: skip
    assert policy.vocabulary == 49152
