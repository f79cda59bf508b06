"""A new phase from an older run: which settings still say something, and which cannot."""

from pathlib import Path

from brorl.errors import ConfigError
from brorl.train.plan import model_shape
from brorl.train.settings import TrainSettings


def check_shape(settings: TrainSettings, folder: Path) -> None:
    """Refuse a model.shape that is not that of the checkpoint which init.from names.

    Beside model.path the shape only says what `brorl plan` may count with where the model is not
    at hand; without it the shape is the policy's, and a checkpoint of another one contradicts it.

    Raises:
        ConfigError: naming the first width that differs.
    """
    shape = settings.model.shape
    if shape is None or settings.model.path is not None:
        return
    opened = settings.model.model_copy(update={"path": str(folder)})
    has = model_shape(settings.model_copy(update={"model": opened}))
    for name, value in shape.model_dump().items():
        if value != getattr(has, name):
            raise ConfigError(
                f"model.shape.{name} is {value}, the checkpoint {folder} of init.from has "
                f"{getattr(has, name)}; set the shape to what it is, or leave it out with "
                "model.shape=null"
            )


def unused_beside(settings: TrainSettings) -> list[str]:
    """Names of settings that give weights where init.from does not."""
    found = []
    if settings.init.from_ is not None:
        found += ["model.path"] if settings.model.path is not None else []
        found += ["warmstart"] if settings.warmstart is not None else []
    return found
