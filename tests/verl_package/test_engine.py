"""The embedded trainer and verl's FSDP2 engine with our pieces: one loss, one gradient (oracle).

The same tokens, advantages and old log-probs go through `brorl.train.update` here and through
verl's own forward, ppo_loss and sharding in one process and in two.
"""

import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from brorl.policy.load import load_policy
from brorl.rollout.engine import Completion, Stop
from brorl.train.batch import Row
from brorl.train.groups import Sample
from brorl.train.recipe import load_recipe
from brorl.train.reference import Reference
from brorl.train.update import update
from brorl.verify.verdict import wrong
from brorl.verl.names import kl_loss_type, loss_name

pytest.importorskip("verl", reason="verl is not installed: make test-verl")
pytestmark = [pytest.mark.verl, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")
TEMPERATURE = 0.8
CASES = [
    *([f"loss_agg_mode={mode}"] for mode in MODES),
    ["clip_ratio_c=1.5", "clip_ratio_low=0.02", "clip_ratio_high=0.05"],
    ["tis.type=tis", "tis.cap=1.05", "loss_agg_mode=seq-mean-token-mean"],
    *(["kl_coef=0.3", f"kl_estimator={k}"] for k in ("k1", "k2", "k3")),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from verl_package import on_cpu

    return on_cpu.make_policy(tmp_path_factory.mktemp("verl") / "model")


def settings(overrides):
    return load_recipe(
        "quickstart",
        [
            "warmstart=null",
            f"rollout.temperature={TEMPERATURE}",
            "optimizer.grad_clip=1e9",
            *overrides,
        ],
    )


def made_rows(policy, s):
    """12 rows of 3 groups with ragged answers, old log-probs near the policy's, some far."""
    rng = np.random.default_rng(3)
    rows = []
    prompts = [tuple(int(t) for t in rng.integers(3, 90, size=3 + g)) for g in range(3)]
    for group, index in itertools.product(range(3), range(4)):
        prompt = prompts[group]
        length = int(rng.integers(1, 9))
        tokens = rng.integers(3, 90, size=length).astype(np.int32)
        logp = plain_logp(policy, prompt, tokens)
        old = (logp + rng.normal(0, 0.2, length)).astype(np.float32)
        completion = Completion(tokens, old, np.ones(length, bool), Stop.LENGTH, 0)
        sample = Sample(index, completion, "", wrong(None, ""), 0.0, advantage=float(rng.normal()))
        row = Row(group, f"g{group}", prompt, sample, old)
        if s.tis.type != "none":
            row.correction = rng.uniform(0.2, 1.05, length).astype(np.float32)
        rows.append(row)
    return rows


@torch.no_grad()
def plain_logp(policy, prompt, tokens):
    ids = torch.tensor([[*prompt, *tokens.tolist()]])
    logp = (policy.model(ids).logits[0].float() / TEMPERATURE).log_softmax(-1)
    return logp[len(prompt) - 1 : -1].gather(-1, ids[0, len(prompt) :, None])[:, 0].numpy()


def embedded_step(path, overrides):
    """Loss and gradient of one update, read off a plain SGD step at rate 1; and the rows."""
    s = settings(overrides)
    policy = load_policy(str(path), revision=None, dtype="float32", device="cpu", trained_length=1)
    reference = None
    if s.kl_coef:
        reference = Reference(policy, 0)
        with torch.no_grad():
            for p in reference.policy.model.parameters():
                p.add_(
                    0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
                )
    rows = made_rows(policy, s)
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    report = update(
        policy,
        torch.optim.SGD(policy.model.parameters(), lr=1.0),
        [rows],
        s,
        whole_lengths=[r.length for r in rows],
        reference=reference,
        lr=lambda updates: 1.0,
        updates_done=0,
        after_update=lambda updates: None,
    )
    gradient = {n: before[n] - p.detach() for n, p in policy.model.named_parameters()}
    return s, rows, report.loss, gradient, reference


def case_for(s, rows, reference):
    def columns(row):
        length = row.length
        found = {
            "prompts": torch.tensor(row.prompt),
            "responses": torch.tensor(row.sample.completion.tokens.tolist()),
            "response_mask": torch.ones(length, dtype=torch.int64),
            "old_log_probs": torch.from_numpy(row.old_logp),
            "advantages": torch.full((length,), row.sample.advantage),
        }
        if row.correction is not None:
            found["rollout_is_weights"] = torch.from_numpy(row.correction)
        if reference is not None:
            ref = plain_logp(reference.policy, row.prompt, row.sample.completion.tokens)
            found["ref_log_prob"] = torch.from_numpy(ref)
        return found

    actor = {
        "clip_ratio_low": s.clip_ratio_low,
        "clip_ratio_high": s.clip_ratio_high,
        "loss_agg_mode": s.loss_agg_mode,
        "use_kl_loss": s.kl_coef > 0,
        "kl_loss_coef": s.kl_coef,
        "kl_loss_type": kl_loss_type(s),
        "loss_mode": loss_name(s),
    }
    if s.clip_ratio_c is not None:
        actor["clip_ratio_c"] = s.clip_ratio_c
    return {
        "actor": actor,
        "rows": [columns(row) for row in rows],
        "global_batch_size": len(rows),
        "temperature": TEMPERATURE,
        "micro_batch_tokens": 40,  # about three rows: several micro-batches a rank
    }


def in_verl(model, cases, folder, world):
    """Run the ranks; their gradients."""
    torch.save(cases, folder / "cases.pt")
    out = folder / f"out{world}.pt"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    from verl_package import on_cpu

    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                str(HERE / "engine_rank.py"),
                str(model),
                str(folder / "cases.pt"),
                str(out),
            ],
            env=os.environ
            | on_cpu.environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(world),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        said = [p.communicate(timeout=900)[0] for p in ranks]
    finally:
        for p in ranks:
            if p.poll() is None:
                p.kill()
                p.wait()
    assert [p.returncode for p in ranks] == [0] * world, said[0][-3000:]
    return torch.load(out, weights_only=False)


@pytest.fixture(scope="module")
def both(model, tmp_path_factory):
    """(embedded, verl on one rank, verl on two ranks) of every case; each world starts once."""
    folder = tmp_path_factory.mktemp("cases")
    embedded = [embedded_step(model, overrides) for overrides in CASES]
    cases = [case_for(s, rows, ref) for s, rows, _, _, ref in embedded]
    return embedded, in_verl(model, cases, folder, 1), in_verl(model, cases, folder, 2)


def largest(a, b):
    """The largest difference of two gradients over the largest entry of the first."""
    top = max(float(v.abs().max()) for v in a.values())
    assert top > 0
    return max(float((a[n] - b[n]).abs().max()) for n in a) / top


@pytest.mark.parametrize("number", range(len(CASES)), ids=[" ".join(c) for c in CASES])
def test_one_gradient_and_loss(both, number):
    """float32: 1e-5 of the largest entry, some 80 times the rounding of one product."""
    embedded, one, _ = both
    _, _, loss, gradient, _ = embedded[number]
    assert largest(gradient, one[number]["gradient"]) < 1e-5
    assert one[number]["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[" ".join(c) for c in CASES])
def test_two_ranks_give_what_one_gives(both, number):
    _, one, two = both
    assert largest(one[number]["gradient"], two[number]["gradient"]) < 1e-5
    assert two[number]["loss"] == pytest.approx(one[number]["loss"], rel=1e-4, abs=1e-6)


def test_the_cases_differ(both):
    """Attack: a setting that reaches neither side would give two cases one gradient."""
    _, one, _ = both
    for i, j in itertools.combinations(range(len(CASES)), 2):
        if {i, j} <= {5, 6, 7}:  # the three KL estimators share a gradient by design
            continue
        assert largest(one[i]["gradient"], one[j]["gradient"]) > 1e-4, (CASES[i], CASES[j])
