"""verl's trainer with our step, on a real local Ray with FSDP2 on gloo: whole runs (oracle, attack).

Each run is a fresh Ray; a rewarded coin toss gives every group spread, since the tiny policy is
never right.
"""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from brorl.policy.load import load_policy
from brorl.record.metrics import read_metrics
from brorl.record.rollouts import read_rollouts, rollout_steps
from brorl.train.rate import update_lr
from brorl.train.recipe import load_settings
from brorl.verl.start import reason

pytest.importorskip("verl", reason="verl is not installed: make test-verl")
pytestmark = [pytest.mark.verl, pytest.mark.timeout(1800)]

STEPS = 3
LIMIT_S = 1500  # a run takes a minute or two on idle cores
OVERRIDES = [
    "eval_every=3",
    "kl_coef=0.05",
    "ref.reset_every=2",
    "tis.type=tis",
    "lr=1e-3",
    "lr_warmup_updates=1",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from verl_package import on_cpu

    found = tmp_path_factory.mktemp("cluster")
    on_cpu.make_policy(found / "model")
    return found


@pytest.fixture(scope="module")
def three_steps(folder):
    """A run of three steps that has ended by itself."""
    from verl_package import on_cpu

    run = folder / "run"
    words = on_cpu.command(run, folder / "model", f"steps={STEPS}", *OVERRIDES)
    status = on_cpu.run(words, folder / "three.log", timeout=LIMIT_S)
    assert status == 0, reason((folder / "three.log").read_text().splitlines())
    return run


def weights(run, step):
    """The Hugging Face copy of a checkpoint; step 0 is the policy that training began with."""
    path = (
        run.parent / "model"
        if step == 0
        else run / f"checkpoints/global_step_{step}/actor/huggingface"
    )
    return load_policy(str(path), revision=None, dtype="float32", device="cpu", trained_length=1)


@torch.no_grad()
def logp_error(policy, rows):
    """The largest difference of recorded log-probs from a plain Hugging Face forward."""
    worst = 0.0
    for row in rows:
        ids = torch.tensor([[*row["prompt_ids"], *row["response_ids"]]])
        logp = policy.model(ids).logits[0].float().log_softmax(-1)
        first = len(row["prompt_ids"])
        own = logp[first - 1 : -1].gather(-1, ids[0, first:, None])[:, 0].numpy()
        worst = max(worst, float(np.abs(own - np.array(row["engine_logprobs"])).max()))
    return worst


def test_steps_are_recorded_by_our_names(three_steps):
    rows = read_metrics(three_steps)
    assert [r["step"] for r in rows] == [0, 1, 2, 3]
    assert [r["updates"] for r in rows] == [0, 2, 4, 6]
    for row in rows[1:]:
        assert row["samples/kept"] == 128  # 2 prompts of 64 answers
        assert row["groups/sampled"] * 64 == row["samples/generated"]
        assert row["policy/grad_norm"] > 0
        assert row["verdict/grader_error"] == 0
        assert row["mismatch/k3"] < 1e-6  # the same weights in float32 on both sides
        assert {"pass@k/64", "reward/mean", "throughput/tokens_per_s", "time/update"} <= row.keys()
    assert {"eval/pass@1", "eval/pass@1_low"} <= rows[0].keys() & rows[3].keys()


def test_the_rate_of_each_step_is_ours(three_steps):
    """Warm-up over one update: (u + 1) / 2, then 1; the last update of step 1 is number 1."""
    s = load_settings(three_steps / "config.yaml", {}, may_change=())
    rates = [r["policy/lr"] for r in read_metrics(three_steps)[1:]]
    assert rates == pytest.approx([update_lr(s, u) for u in (1, 3, 5)])
    assert update_lr(s, 0) == pytest.approx(5e-4)


def test_weights_move_and_rollouts_use_the_new_ones(three_steps):
    """Step k samples from checkpoint k - 1: log-probs agree with Hugging Face there alone."""
    for step in (1, 2, 3):
        rows = read_rollouts(three_steps, step).to_pylist()
        assert len({r["group_id"] for r in rows}) * 64 == len(rows)
        some = rows[:: max(1, len(rows) // 12)]
        assert logp_error(weights(three_steps, step - 1), some) < 1e-4
        assert logp_error(weights(three_steps, step), some) > 1e-3


def test_advantages_are_ours_and_no_group_is_short(three_steps):
    """Kept answers: centred per group, one sigma over all, as `trajectory` normalises."""
    rows = read_rollouts(three_steps, 1).to_pylist()
    kept = [r for r in rows if r["kept"]]
    rewards = {r["group_id"]: [] for r in kept}
    for r in kept:
        rewards[r["group_id"]].append(r["raw_score"])
    assert sorted(map(len, rewards.values())) == [64, 64]
    centred = np.array([r["raw_score"] - np.mean(rewards[r["group_id"]]) for r in kept])
    wanted = centred / np.sqrt(np.mean(centred**2))
    assert [r["advantage"] for r in kept] == pytest.approx(wanted.tolist(), rel=1e-6)
    assert all(r["advantage"] is None for r in rows if not r["kept"])


def test_the_reference_is_reset_on_schedule_and_saved(three_steps):
    rows = read_metrics(three_steps)
    assert [r["ref/reset"] for r in rows[1:]] == [0, 1, 0]
    assert rows[2]["policy/kl_ref"] > rows[3]["policy/kl_ref"] > 0
    base = three_steps / "checkpoints"
    assert not (base / "global_step_1/reference").exists()
    assert (base / "global_step_2/reference/world_1_rank_0.pt").is_file()
    saved = torch.load(base / "global_step_3/reference/world_1_rank_0.pt", weights_only=True)
    model = dict(weights(three_steps, 2).model.named_parameters())
    assert all(torch.equal(saved[n], p.detach()) for n, p in model.items())


def test_a_run_goes_on_from_its_checkpoint(three_steps, folder):
    """One more step: counters, data position, reference and weights come from step 3."""
    from verl_package import on_cpu

    before = [json.dumps(r) for r in read_metrics(three_steps)]
    words = on_cpu.command(three_steps, folder / "model", f"steps={STEPS + 1}", *OVERRIDES)
    status = on_cpu.run(words, folder / "resumed.log", timeout=LIMIT_S)
    assert status == 0, reason((folder / "resumed.log").read_text().splitlines())
    rows = read_metrics(three_steps)
    assert [json.dumps(r) for r in rows[:4]] == before
    assert [(r["step"], r["updates"]) for r in rows[4:]] == [(4, 8)]
    assert rows[4]["ref/reset"] == 1  # two steps after the one at step 2
    fresh = read_rollouts(three_steps, 4).to_pylist()
    assert logp_error(weights(three_steps, 3), fresh[::16]) < 1e-4
    seen = {r["group_id"] for s in (1, 2, 3) for r in read_rollouts(three_steps, s).to_pylist()}
    assert not seen & {r["group_id"] for r in fresh}


@pytest.mark.parametrize(("victim", "gpus"), [("HFServer", 2), ("AgentLoopWorkerTQ", 1)])
def test_a_rollout_worker_killed_in_mid_step_ends_the_run_with_its_name(folder, victim, gpus):
    """Attack: kill -9 while step 2 samples. One line says so, and no short group is trained on.

    The inference server is killed under two data-parallel ranks, which have done step 1 together.
    """
    from verl_package import on_cpu

    run, log = folder / victim, folder / f"{victim}.log"
    env = on_cpu.environment(BRORL_TEST_SLOW_S="60")
    words = on_cpu.command(run, folder / "model", "steps=3", gpus=gpus, env=env)
    with on_cpu.started(words, log, env) as (child, look):
        wait_for(log, "step:1 - ", child)
        time.sleep(10)  # step 2 has handed out its prompts
        named = [p for p in look() if p.is_running() and victim in " ".join(p.cmdline())]
        assert named, f"no process of {victim}"
        named[0].kill()
        status = child.wait(timeout=600)
    assert status != 0
    why = reason(log.read_text(errors="replace").splitlines())
    assert why.startswith("EngineError: step 2: "), why
    assert "lost" in why
    assert rollout_steps(run) == [1]
    assert [r["updates"] for r in read_metrics(run)] == [0, 2]
    assert (run / "checkpoints/latest_checkpointed_iteration.txt").read_text() == "1"
    rows = read_rollouts(run, 1).to_pylist()
    assert {sum(r["group_id"] == g for r in rows) for g in {r["group_id"] for r in rows}} == {64}


def wait_for(log: Path, text: str, child) -> None:
    end = time.monotonic() + LIMIT_S
    while text not in log.read_text(errors="replace"):
        assert child.poll() is None, reason(log.read_text(errors="replace").splitlines())
        assert time.monotonic() < end
        time.sleep(1)
