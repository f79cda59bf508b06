"""W&B and TensorBoard get every number of metrics.jsonl under its own name: read back from what they wrote.

W&B offline, as on a cluster's nodes; nothing is sent.
"""

import json

import pytest

wandb = pytest.importorskip("wandb", reason="make test-peers has W&B in an environment of its own")

from train.runs import Killed, Stopper, no_report  # noqa: E402
from train.toys import recipe  # noqa: E402

from brorl.train import api  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
__all__ = ["no_report"]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))


BLOCK, HEADER = 32768, 7  # of W&B's log: ":W&B" and 3 bytes, then LevelDB's record format


def records(path):
    """The records of an offline W&B file, as bytes."""
    data, at, whole = path.read_bytes(), HEADER, b""
    assert data[:4] == b":W&B"
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # the rest of a block is too short for a record
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # all of it, or its last part
            yield whole
            whole = b""


def history(run):
    """Step to {name: value} of everything in a run's offline W&B files, oldest file first."""
    from wandb.proto import wandb_internal_pb2

    rows = {}
    for path in sorted(run.rglob("*.wandb"), key=lambda p: p.stat().st_mtime):
        for data in records(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") != "history":
                continue
            row = {}
            for item in record.history.item:
                name = item.key or ".".join(item.nested_key)
                row[name] = json.loads(item.value_json)
            rows[row["step"]] = {k: v for k, v in row.items() if not k.startswith("_")}
    return rows


def scalars(run):
    """Step to {name: value} of TensorBoard's events."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    rows = {}
    for name in read.Tags()["scalars"]:
        for event in read.Scalars(name):
            rows.setdefault(event.step, {})[name] = event.value
    return rows


def numbers(row):
    return {k: v for k, v in row.items() if isinstance(v, int | float) and k != "step"}


def test_both_have_the_names_and_values_of_the_record(tmp_path, no_report):
    """Golden: metrics.jsonl. A run that was killed and resumed has every step once."""
    made = str(recipe(tmp_path, steps=4, logger=["tensorboard", "wandb"], kl_coef=0.01))
    with pytest.raises(Killed):
        api.train(made, {"run_dir": tmp_path / "run"}, progress=Stopper("step", 3))
    wandb.finish()
    api.resume(tmp_path / "run")
    text = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    record = {row["step"]: numbers(row) for row in map(json.loads, text)}
    assert sorted(record) == [0, 1, 2, 3, 4]
    assert len({name for row in record.values() for name in row}) > 30
    seen = {step: numbers(row) for step, row in history(tmp_path / "run").items()}
    board = scalars(tmp_path / "run")
    assert seen.keys() == record.keys() == board.keys()
    for step, row in record.items():
        assert seen[step] == pytest.approx(row, nan_ok=True)
        assert board[step] == pytest.approx(row, rel=1e-6, nan_ok=True)
