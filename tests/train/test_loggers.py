"""Copies of metrics.jsonl: TensorBoard has the same numbers, made again on resume."""

import pytest

from brorl.record.metrics import append_metrics, cut_metrics, read_metrics
from brorl.train.loggers import TensorBoardLogger, open_loggers

from .toys import settings

ROWS = [
    {"step": i, "reward/mean": i / 4, "policy/lr": 0.1 * i, "note": "x", "gone": None}
    for i in range(5)
]


def scalars(run):
    """name to [(step, value)] of all event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    return {
        name: [(e.step, pytest.approx(e.value, rel=1e-6)) for e in read.Scalars(name)]
        for name in read.Tags()["scalars"]
    }


def test_tensorboard_has_every_number_under_its_name_and_step(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    for row in ROWS:
        logger.log(row)
    logger.close()
    want = {name: [(r["step"], r[name]) for r in ROWS] for name in ("reward/mean", "policy/lr")}
    assert scalars(tmp_path) == want


def test_on_resume_events_after_the_checkpoint_are_gone(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    for row in ROWS:
        append_metrics(tmp_path, row)
        logger.log(row)
    logger.close()
    cut_metrics(tmp_path, 2)
    again = TensorBoardLogger(tmp_path)
    again.log(ROWS[3] | {"reward/mean": 9.0})
    again.close()
    assert [step for step, _ in scalars(tmp_path)["reward/mean"]] == [0, 1, 2, 3]
    assert scalars(tmp_path)["reward/mean"][-1] == (3, 9.0)
    assert read_metrics(tmp_path) == ROWS[:3]


def test_only_the_loggers_that_are_named_are_opened(tmp_path):
    assert open_loggers(tmp_path, settings(logger=["console"])) == []
    (logger,) = open_loggers(tmp_path, settings(logger=["console", "tensorboard"]))
    logger.close()
    assert (tmp_path / "tensorboard").is_dir()
