"""The folder of a run: made whole, held by one process, found again.

runs/NAME/  config.yaml · environment.json · metrics.jsonl · rollouts/ · checkpoints/ · eval/ ·
            tensorboard/ · report.html · lock
"""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from brorl.errors import ConfigError, DataError, RunError
from brorl.record.files import sync_folder, sync_tree

CONFIG, ENVIRONMENT, LOCK = "config.yaml", "environment.json", "lock"


def create_run(path: Path, files: dict[str, str]) -> None:
    """Make a run folder with its first files, all of it or nothing.

    Raises:
        ConfigError: the folder holds something already, or cannot be written.
    """
    if path.name in ("", ".."):
        raise ConfigError(f"run_dir must name a folder of its own, got {str(path)!r}")
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(
                f"run_dir {path} is not empty; go on with `brorl resume {path}` or choose another "
                "with run_dir=PATH"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)  # of a killed process that had this number
        aside.mkdir()
        for name, text in files.items():
            (aside / name).write_text(text, encoding="utf-8")
        for folder in ("rollouts", "checkpoints", "eval"):
            (aside / folder).mkdir()
        sync_tree(aside)
        if path.exists():
            path.rmdir()
        aside.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(aside, ignore_errors=True)
        shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."
        raise ConfigError(f"run_dir {shown} cannot be written: {error.strerror}") from error


def require_run(path: Path) -> None:
    """Refuse a path that is not a run folder. Raises DataError."""
    if not (path / CONFIG).is_file():
        raise DataError(f"{path} is not a run: it has no {CONFIG}")


def free_name(folder: Path, name: str) -> Path:
    """folder/name, or folder/name-2, name-3 ... : the first that does not exist."""
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}"
    return path


class RunLock:
    """Holds a run folder for this process; the kernel lets go when the process ends, however."""

    def __init__(self, run: Path) -> None:
        self._path = run / LOCK
        self._handle: int | None = None

    def __enter__(self) -> Self:
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(f"{self._path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 100).decode(errors="replace").strip()
            os.close(handle)
            raise ConfigError(
                f"{self._path.parent} is in use by process {holder or 'unknown'}; wait for it or "
                "stop it first"
            ) from error
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
