"""Writing that a kill cannot tear: aside, flushed to disk, then renamed."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`, or leave what was there: never a part of it."""
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented JSON; NaN and infinities are refused, they are not JSON."""
    write_atomic(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries: after a rename the name itself must reach the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder`."""
    for path in sorted(folder.rglob("*")):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    sync_folder(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder; a kill in the middle leaves a name that begins with a dot, never half."""
    trash = folder.with_name(f".trash-{folder.name.lstrip('.')}-{os.getpid()}")
    folder.rename(trash)
    shutil.rmtree(trash)


_ASIDE = re.compile(r"\..+\.\d+\.(tmp|partial)|\.trash-.+-\d+")


def sweep_asides(folder: Path) -> None:
    """Remove what interrupted writes left aside in a folder; every other name stays."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _ASIDE.fullmatch(path.name) is None:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def step_files(folder: Path, ending: str) -> list[int]:
    """Steps of the files step-000123.ENDING in a folder, ascending; other names are not ours."""
    name = re.compile(rf"step-(\d{{6,}})\.{re.escape(ending)}")
    found = (name.fullmatch(p.name) for p in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(m.group(1)) for m in found if m)


def file_hash(path: Path) -> str:
    """sha256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
