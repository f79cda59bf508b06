"""Checkpoints: complete or absent, opened by plain transformers, and refused where they are not ours."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import DataError, RunError
from brorl.rollout.engine import Stop
from brorl.train.checkpoint import (
    checkpoint_path,
    checkpoint_steps,
    find_checkpoint,
    load_carried,
    load_optimizer,
    open_checkpoint,
    save_checkpoint,
    sweep,
    sweep_leftovers,
)
from brorl.train.reference import Reference

from .test_update import random_rows, run, weights
from .toys import completion, group, problem, sample, settings, tiny

STATE = {"updates": 4, "reference_step": None, "best": [2, 0.25], "totals": {"kept": 0.1}}


def optimizer_of(policy, steps=0):
    made = torch.optim.AdamW(policy.model.parameters(), lr=1e-3)
    for i in range(steps):
        torch.manual_seed(i)
        for p in policy.model.parameters():
            p.grad = torch.randn_like(p)
        made.step()
    return made


def save(folder, step=3, policy=None, optimizer=None, reference=None, carried=(), state=STATE):
    policy = policy or tiny()
    return save_checkpoint(
        folder, step, policy, optimizer or optimizer_of(policy), reference, carried, state
    )


def test_weights_and_tokenizer_open_with_plain_transformers(tmp_path):
    policy = tiny(seed=5)
    folder = save(tmp_path, policy=policy)
    model = AutoModelForCausalLM.from_pretrained(folder)
    same = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(same, weights(policy))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("rev ab=").input_ids == list(policy.encode("rev ab="))
    assert model.generation_config.eos_token_id == policy.tokenizer.eos_token_id
    ids = torch.tensor([policy.encode("rev ab=")])
    ours = policy.model(input_ids=ids).logits
    assert torch.equal(model.eval()(input_ids=ids).logits, ours)


def test_state_and_optimizer_come_back_bit_for_bit(tmp_path):
    policy = tiny()
    optimizer = optimizer_of(policy, steps=3)
    checkpoint = open_checkpoint(save(tmp_path, policy=policy, optimizer=optimizer))
    assert (checkpoint.step, {k: checkpoint.state[k] for k in STATE}) == (3, STATE)
    fresh = optimizer_of(policy)
    load_optimizer(checkpoint, fresh)
    for a, b in zip(optimizer.state.values(), fresh.state.values(), strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[k], b[k]) for k in a)


def test_an_optimizer_of_another_model_is_refused(tmp_path):
    checkpoint = open_checkpoint(save(tmp_path, optimizer=optimizer_of(tiny(), steps=1)))
    other = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3))])
    with pytest.raises(DataError, match="optimizer of another model"):
        load_optimizer(checkpoint, other)


def test_trainer_files_hold_no_code(tmp_path):
    """Policy: JSON, safetensors, and a torch file that the safe loader reads."""
    folder = save(tmp_path, optimizer=optimizer_of(tiny(), steps=1))
    torch.load(folder / "trainer" / "optimizer.pt", weights_only=True)
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} <= {".json", ".safetensors", ".pt"}


def test_the_reference_is_a_model_of_its_own(tmp_path):
    policy, other = tiny(seed=0), tiny(seed=1)
    checkpoint = open_checkpoint(
        save(tmp_path, policy=policy, reference=Reference(other, 2).policy)
    )
    model = AutoModelForCausalLM.from_pretrained(checkpoint.reference)
    same = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(same, weights(other))
    assert open_checkpoint(save(tmp_path, step=4)).reference is None


def test_carried_groups_come_back_with_versions_and_logprobs(tmp_path):
    """Float32 survives JSON bit for bit; so do lone surrogates, failures and truncation."""
    answers = [sample(i, [5 + i, 6], s) for i, s in enumerate([1.0, 0.0, 0.5, None])]
    answers[0].completion = completion([7, 8, 9], [-0.1, -1e-30, -88.7], 12, Stop.LENGTH)
    answers[1].text = "\ud800 \u2028"
    answers[2].rewarded = False
    before = group("p1", answers, prompt=(3, 4))
    checkpoint = open_checkpoint(save(tmp_path, carried=[before]))
    (after,) = load_carried(checkpoint, {"p1": problem("p1")})
    assert (after.id, after.prompt, after.seed, after.born) == ("p1#0", (3, 4), 11, 1)
    assert after.problem == before.problem
    for a, b in zip(before.samples, after.samples, strict=True):
        for name in ("tokens", "logprobs", "mask"):
            x, y = getattr(a.completion, name), getattr(b.completion, name)
            assert x.dtype == y.dtype
            assert np.array_equal(x, y)
        assert (a.completion.stop, a.completion.policy_version) == (
            b.completion.stop, b.completion.policy_version,
        )  # fmt: skip
        assert (a.index, a.text, a.verdict, a.raw, a.counts) == (
            b.index, b.text, b.verdict, b.raw, b.counts,
        )  # fmt: skip
    with pytest.raises(DataError, match="carried group p1#0: its problem is not in the training"):
        load_carried(checkpoint, {})


def test_carried_groups_train_alike_before_and_after(tmp_path):
    policy = tiny()
    rows = random_rows(policy, sizes=(4,), off_policy=0.0)
    for row in rows:
        row.sample.completion = completion(row.sample.completion.tokens, row.old_logp)
    before = group("p1", [r.sample for r in rows], prompt=rows[0].prompt)
    checkpoint = open_checkpoint(save(tmp_path, policy=policy, carried=[before]))
    (after,) = load_carried(checkpoint, {"p1": problem("p1")})
    for row, again in zip(rows, after.samples, strict=True):
        again.advantage = row.sample.advantage
        row.old_logp = row.sample.completion.logprobs
    from brorl.train.batch import rows_of

    s = settings(micro_batch_tokens=10**6)
    _, (a,), _ = run(policy, [rows], s)
    _, (b,), _ = run(policy, [rows_of([after])], s)
    assert torch.equal(a, b)


# Damage

DAMAGE = {
    "weights cut short": ("model.safetensors", lambda p: p.write_bytes(p.read_bytes()[:-1]), "differs"),
    "one bit of the weights": (
        "model.safetensors",
        lambda p: p.write_bytes(p.read_bytes()[:-1] + bytes([p.read_bytes()[-1] ^ 1])),
        "differs",
    ),
    "optimizer emptied": ("trainer/optimizer.pt", lambda p: p.write_bytes(b""), "differs"),
    "state edited": ("trainer/state.json", lambda p: p.write_text("{}"), "differs"),
    "tokenizer gone": ("tokenizer.json", lambda p: p.unlink(), "tokenizer.json is missing"),
    "state gone": ("trainer/state.json", lambda p: p.unlink(), "state.json is missing"),
    "manifest gone": ("manifest.json", lambda p: p.unlink(), "is not a brorl checkpoint"),
    "manifest torn": ("manifest.json", lambda p: p.write_text("{"), "is not a brorl checkpoint"),
    "manifest of a list": ("manifest.json", lambda p: p.write_text("[]"), "is not a brorl"),
    "manifest without files": (
        "manifest.json", lambda p: p.write_text('{"format": 1, "sha256": {}}'), "differs",
    ),
    "another format": (
        "manifest.json", lambda p: p.write_text(p.read_text().replace('"format": 1', '"format": 2')),
        "checkpoint format 2, this version reads 1",
    ),
    "weights added": ("pytorch_model.bin", lambda p: p.write_bytes(b"x"), "was not saved with it"),
    "template added": ("chat_template.jinja", lambda p: p.write_text("{{ x }}"), "was not saved"),
    "reference added": ("reference/config.json", lambda p: p.write_text("{}"), "was not saved"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_refused_with_the_reason(tmp_path, name):
    file, harm, message = DAMAGE[name]
    folder = save(tmp_path)
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    harm(path)
    with pytest.raises(DataError, match=message) as found:
        open_checkpoint(folder)
    assert str(folder) in str(found.value)


@pytest.mark.parametrize("name", ["README.md", ".DS_Store", "notes", "plot.png"])
def test_files_that_no_loader_reads_may_lie_beside(tmp_path, name):
    folder = save(tmp_path)
    (folder / name).write_text("x")
    assert open_checkpoint(folder).step == 3


def test_a_foreign_folder_is_no_checkpoint_of_the_run(tmp_path):
    save(tmp_path, step=5)
    for name in (
        "notes",
        "step-12",
        "step-000007.old",
        ".step-000009.3.tmp",
        ".trash-step-000001-2",
    ):
        (tmp_path / "checkpoints" / name).mkdir()
    (tmp_path / "checkpoints" / "step-1234567").mkdir()
    assert checkpoint_steps(tmp_path) == [5, 1234567]
    sweep_leftovers(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "notes", "step-000005", "step-000007.old", "step-12", "step-1234567",
    ]  # fmt: skip


def test_a_run_or_a_folder_of_it_names_a_checkpoint(tmp_path):
    save(tmp_path, step=2)
    newest = save(tmp_path, step=10)
    assert find_checkpoint(tmp_path) == find_checkpoint(newest) == newest
    for path in (tmp_path / "checkpoints", tmp_path / "nothing"):
        with pytest.raises(DataError, match="is neither a checkpoint nor a run with one"):
            find_checkpoint(path)


# Sweeping


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [(2, None, [8, 10]), (2, 4, [4, 8, 10]), (1, 10, [10]), (9, 0, [0, 2, 4, 8, 10]), (1, 7, [10])],
)
def test_sweep_keeps_the_newest_and_the_best(tmp_path, keep, best, left):
    whole = save(tmp_path, step=0)
    for step in (2, 4, 8, 10):
        shutil.copytree(whole, checkpoint_path(tmp_path, step))
    sweep(tmp_path, 10, keep, best)
    assert checkpoint_steps(tmp_path) == left
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(left)


# Writes that fail


def everything(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


def torn(*args, **kwargs):
    raise RuntimeError("PytorchStreamWriter failed writing file data/0\nmore lines")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("brorl.train.checkpoint.save_policy", full),
        ("torch.save", torn),
        ("brorl.train.checkpoint.write_json", full),
        ("brorl.train.checkpoint.sync_tree", full),
        ("pathlib.Path.rename", full),
        ("pathlib.Path.write_text", full),
    ],
)
def test_a_full_disk_is_one_line_and_the_older_checkpoints_stay(tmp_path, monkeypatch, where, what):
    save(tmp_path, step=1)
    before = everything(tmp_path)
    monkeypatch.setattr(where, what)
    with pytest.raises(RunError, match="checkpoint of step 3 could not be written") as found:
        save(tmp_path, step=3)
    assert "earlier checkpoints are intact" in str(found.value)
    assert "\n" not in str(found.value)
    assert everything(tmp_path) == before


def test_a_damaged_folder_of_the_same_step_is_replaced_whole(tmp_path):
    folder = save(tmp_path)
    want = everything(tmp_path)
    (folder / "model.safetensors").write_bytes(b"half")
    (folder / "junk.json").write_text("x")
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    aside.mkdir()
    (aside / "junk.json").write_text("x")
    save(tmp_path)
    assert everything(tmp_path) == want


def test_the_manifest_is_the_last_file_and_names_all_others(tmp_path):
    folder = save(tmp_path, reference=tiny(seed=1))
    hashes = json.loads((folder / "manifest.json").read_text())["sha256"]
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert set(hashes) == files - {"manifest.json"}
