"""Where a step's numbers go besides metrics.jsonl: TensorBoard and W&B, under the same names.

metrics.jsonl is the record; the others are copies, made again from it on resume.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from brorl.errors import ConfigError
from brorl.record.metrics import read_metrics
from brorl.train.settings import TrainSettings


class Logger(Protocol):
    """Takes one step's metrics."""

    def log(self, metrics: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLogger:
    """Events under RUN/tensorboard; on resume written anew from metrics.jsonl."""

    def __init__(self, run: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run / "tensorboard"
        if folder.exists():
            shutil.rmtree(folder)
        self._writer = SummaryWriter(str(folder))
        for metrics in read_metrics(run):
            self.log(metrics)

    def log(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if isinstance(value, int | float) and name != "step":
                self._writer.add_scalar(name, value, metrics["step"])

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """A W&B run of the same name; WANDB_MODE=offline works without a network."""

    def __init__(self, run: Path, settings: TrainSettings) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("logger wandb needs the extra: pip install 'brorl[wandb]'") from error
        self._run = wandb.init(
            project="brorl",
            name=run.name,
            id=run.name,
            resume="allow",
            dir=str(run),
            config=settings.model_dump(mode="json", by_alias=True),
        )

    def log(self, metrics: Mapping[str, Any]) -> None:
        self._run.log(dict(metrics), step=metrics["step"])

    def close(self) -> None:
        self._run.finish()


def open_loggers(run: Path, settings: TrainSettings) -> Sequence[Logger]:
    """The loggers that settings name; the console is the command line's."""
    loggers: list[Logger] = []
    if "tensorboard" in settings.logger:
        loggers.append(TensorBoardLogger(run))
    if "wandb" in settings.logger:
        loggers.append(WandbLogger(run, settings))
    return loggers
