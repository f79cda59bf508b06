"""What somebody may do to a run's folder between two sessions: each is noticed, in one line.

Attacks. The unbroken run is made once; every test works on a copy that is asked for more steps.
"""

import json
import shutil

import pytest

from brorl.errors import BrorlError, ConfigError, DataError
from brorl.train import api
from brorl.train.checkpoint import checkpoint_path, checkpoint_steps, open_checkpoint
from brorl.train.environment import identity

from .runs import RICH, Killed, Stopper, lines, newest, no_report, same_end
from .toys import recipe, tiny

__all__ = ["no_report"]
pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(recipe, a run of four steps, one of two)"""
    folder = tmp_path_factory.mktemp("whole")
    made = recipe(folder, save_every=1, eval_every=2, steps=4, **RICH)
    api.train(str(made), {"run_dir": folder / "run"})
    api.train(str(made), {"run_dir": folder / "half", "steps": 2})
    return made, folder / "run", folder / "half"


@pytest.fixture
def half(whole, tmp_path):
    shutil.copytree(whole[2], tmp_path / "run")
    return tmp_path / "run"


def go_on(run):
    """Resume to four steps; the notes."""
    progress = Stopper()
    api.resume(run, ["steps=4"], progress=progress)
    return progress.notes


def refused(run):
    """The one line with which resuming is refused."""
    with pytest.raises(BrorlError) as found:
        go_on(run)
    assert "\n" not in str(found.value)
    assert isinstance(found.value, ConfigError | DataError)
    return str(found.value)


# metrics.jsonl


def edited(path):
    path.write_text(path.read_text().replace('"reward/mean": 0', '"reward/mean": 1', 1))


HARM = {
    "deleted": lambda p: p.unlink(),
    "emptied": lambda p: p.write_text(""),
    "cut in the middle": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "a line taken out": lambda p: p.write_text("".join(p.read_text().splitlines(True)[1:])),
    "a line twice": lambda p: p.write_text(p.read_text() + p.read_text().splitlines(True)[1]),
    "a figure changed": edited,
}


@pytest.mark.parametrize("name", HARM)
def test_changed_metrics_are_named_and_the_training_goes_on_unharmed(whole, half, name):
    path = half / "metrics.jsonl"
    before = path.read_bytes()
    HARM[name](path)
    assert not path.exists() or path.read_bytes() != before
    (note,) = [n for n in go_on(half) if "metrics.jsonl was changed by somebody" in n]
    assert "at step 2 it had 3 lines" in note
    assert lines(half)[-2:] == lines(whole[1])[-2:]
    files = [newest(r) / "model.safetensors" for r in (whole[1], half)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_metrics_that_are_as_they_were_are_not_spoken_of(whole, half):
    assert not [n for n in go_on(half) if "changed by somebody" in n]
    same_end(whole[1], half)


WRONG_VALUES = ['"many"', "[1]", "{}", "NaN", "-Infinity", "1e999", "1" * 400, "9" * 5000]


@pytest.mark.parametrize("value", WRONG_VALUES, ids=lambda v: v[:12])
def test_a_figure_that_is_none_is_refused_by_file_and_line(half, value):
    path = half / "metrics.jsonl"
    text = path.read_text().splitlines()
    row = json.loads(text[1])
    text[1] = text[1].replace(f'"samples/generated": {row["samples/generated"]}', f'"samples/generated": {value}')  # fmt: skip
    path.write_text("\n".join(text) + "\n")
    assert "metrics.jsonl:2: not a line of metrics" in refused(half)


def test_metrics_spoilt_while_the_run_goes_on_cost_no_checkpoint(whole, tmp_path):
    """Saving matters more than the log: the run is stopped by the next session, by its line."""

    class Vandal(Stopper):
        def step(self, metrics):
            if metrics["step"] == 1:
                path = tmp_path / "run" / "metrics.jsonl"
                path.write_text("{\n" + path.read_text())

    api_run = {"run_dir": tmp_path / "run", "steps": 2}
    with pytest.raises(DataError, match=r"metrics\.jsonl:1: not a line of metrics"):
        api.train(str(whole[0]), api_run, progress=Vandal())
    assert open_checkpoint(newest(tmp_path / "run")).step == 2
    assert "metrics.jsonl:1" in refused(tmp_path / "run")


# Checkpoints


def test_a_checkpoint_under_the_name_of_another_step_is_passed_over(whole, half):
    """Attack: it would count as the newest, and push out every one that is saved after it."""
    shutil.copytree(checkpoint_path(half, 1), checkpoint_path(half, 900))
    notes = go_on(half)
    assert any("holds step 1; give it that name again" in n for n in notes)
    assert any("unusable-step-000900" in n for n in notes)
    same_end(whole[1], half)


def test_a_foreign_checkpoint_is_passed_over_and_its_own_run_takes_it(whole, half, tmp_path):
    """Of a run with another seed, so of the right shape in every way."""
    api.train(str(whole[0]), {"run_dir": tmp_path / "other", "seed": 9, "steps": 3})
    foreign = checkpoint_path(tmp_path / "other", 3)
    shutil.copytree(foreign, checkpoint_path(half, 3))
    assert any("saved by a run of other settings or other data" in n for n in go_on(half))
    same_end(whole[1], half)
    shutil.rmtree(half)
    shutil.copytree(whole[2], half)
    shutil.copytree(checkpoint_path(whole[1], 3), checkpoint_path(half, 3))  # the same run's
    go_on(half)
    assert lines(half)[-1] == lines(whole[1])[-1]


def test_only_foreign_checkpoints_are_none(whole, half, tmp_path):
    api.train(str(whole[0]), {"run_dir": tmp_path / "other", "seed": 9, "steps": 0})
    for step in checkpoint_steps(half):
        shutil.rmtree(checkpoint_path(half, step))
    shutil.copytree(checkpoint_path(tmp_path / "other", 0), checkpoint_path(half, 0))
    assert "none of its checkpoints ([0]) can be used" in refused(half)


def forged(checkpoint, name, text):
    """Replace a file of a checkpoint and its hash in the manifest."""
    from brorl.record.files import file_hash

    (checkpoint / name).write_text(text)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["sha256"][name] = file_hash(checkpoint / name)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainer/state.json", "[]"),
        ("trainer/state.json", '{"step": "two"}'),
        ("trainer/state.json", "{}"),
        ("trainer/state.json", "[" * 100_000),
        ("trainer/optimizer.pt", "no pickle"),
        ("trainer/optimizer.pt", ""),
        ("trainer/carried.json", '[{"id": 1}]'),
        ("trainer/carried.json", "{"),
    ],
)
def test_a_checkpoint_whose_hashes_were_made_to_fit_is_one_line(half, name, text):
    for step in checkpoint_steps(half):
        forged(checkpoint_path(half, step), name, text)
    refused(half)


@pytest.mark.parametrize("key", ["updates", "source", "pass_rate", "reset", "totals", "best"])
def test_a_state_of_another_version_is_one_line(half, key):
    for step in checkpoint_steps(half):
        folder = checkpoint_path(half, step)
        state = json.loads((folder / "trainer/state.json").read_text())
        del state[key]
        forged(folder, "trainer/state.json", json.dumps(state))
    line = refused(half)
    assert "not the state of this version" in line or "can be used" in line


def test_who_a_checkpoint_belongs_to():
    """By hand: names, folders and what may change on resume say nothing, all else does."""
    record = {
        "settings": {"lr": 1, "steps": 2, "name": "a", "run_dir": "x"},
        "data": {"sha256": "d"},
    }

    def of(**changes):
        return identity(record | {"settings": record["settings"] | changes}, ["steps"])

    assert of() == of(steps=9) == of(name="b") == of(run_dir=None)
    assert len({of(), of(lr=2), of(seed=0), identity(record | {"data": {"sha256": "e"}}, [])}) == 4


# Model, verifier, environment


def test_another_model_before_the_first_checkpoint_is_refused(tmp_path):
    """Killed before anything was saved; meanwhile somebody saved other weights there."""
    from brorl.policy.load import save_policy

    save_policy(tiny(seed=0), tmp_path / "model")
    made = recipe(tmp_path, model={"path": str(tmp_path / "model"), "shape": None}, steps=1)
    for name in ("same", "other"):
        with pytest.raises(Killed):
            api.train(str(made), {"run_dir": tmp_path / name}, progress=Stopper("evaluated", 0))
        assert checkpoint_steps(tmp_path / name) == []
    api.resume(tmp_path / "same")
    save_policy(tiny(seed=1), tmp_path / "model")
    with pytest.raises(DataError, match="is not the one that the run began with"):
        api.resume(tmp_path / "other")
    api.resume(tmp_path / "same", ["steps=2"])  # its weights are in its own checkpoint


def test_a_verifier_that_was_edited_is_named(whole, half):
    """Not refused: a run that stopped over a broken verifier goes on with a mended one."""
    judge = whole[0].parent / "judge.py"
    before = judge.read_text()
    try:
        judge.write_text(before + "\n# mended\n")
        (note,) = [n for n in go_on(half) if "other ground" in n]
    finally:
        judge.write_text(before)
    assert note.endswith(f"code of {judge}:grade")


@pytest.mark.parametrize("threads", [0, -3, 10**12, 1e400, "two", None, [1]])
def test_impossible_threads_in_the_record_are_one_line(half, threads):
    path = half / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"threads": threads}))
    assert "environment.json: not what a run records" in refused(half)


# labels.json


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda d: d["labels"].update({next(iter(d["labels"])): "zzz"}),
            "was changed since the run",
        ),
        (lambda d: d["labels"].popitem(), "was changed since the run"),
        (lambda d: d.pop("sha256"), "not readable as labels"),
        (lambda d: d.update(labels=[1]), "needs one label, a text"),
        (lambda d: d["labels"].update(q=1), "needs one label, a text"),
    ],
)
def test_labels_that_were_edited_are_refused(tmp_path, harm, message):
    """The run is paid by them: other labels are another reward."""
    made = recipe(tmp_path, reward={"source": "majority", "options": {"samples": 4}},
                  data={"verifier": "exact"}, steps=1, dynamic_sampling={"max_gen_batches": 1})  # fmt: skip
    run = tmp_path / "run"
    api.train(str(made), {"run_dir": run})
    found = json.loads((run / "labels.json").read_text())
    harm(found)
    (run / "labels.json").write_text(json.dumps(found))
    assert message in refused(run)
    (run / "labels.json").unlink()
    assert "labels.json is gone" in refused(run)


# A new phase


def test_a_shape_that_is_not_the_checkpoint_s_is_refused(whole, tmp_path):
    """model.shape would be ignored: the weights are those of init.from."""
    made, run, _ = whole
    with pytest.raises(ConfigError, match=r"model\.shape\.hidden is 32, the checkpoint .* has 16"):
        api.train(
            str(made), {"run_dir": tmp_path / "a", "init.from": run, "model.shape.hidden": 32}
        )
    assert not (tmp_path / "a").exists()
    progress = Stopper()
    changes = {"run_dir": tmp_path / "b", "init.from": run, "model.shape": None, "steps": 0}
    api.train(str(made), changes, progress=progress)
    assert not [n for n in progress.notes if "is not used" in n]


def test_a_model_path_beside_init_from_is_named_as_not_used(whole, tmp_path):
    made, run, _ = whole
    progress = Stopper()
    changes = {"run_dir": tmp_path / "a", "init.from": run, "model.path": newest(run), "steps": 0}
    api.train(str(made), changes, progress=progress)
    assert f"model.path is not used: the weights are those of {run}" in progress.notes
