"""`brorl doctor`: what this machine can run, and what to type for what is missing."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

import typer

from brorl.cli.doctor_vllm import vllm_version
from brorl.cli.run import Json


def doctor(as_json: Json = False) -> None:
    """Check Python, torch, devices, the sandbox, verl and vLLM.

    Exit status 1 where something that training on this machine needs is missing.

    Example: brorl doctor
    """
    found = examine()
    if as_json:
        typer.echo(json.dumps(found))
    else:
        for name, value in found.items():
            if name not in ("problems", "hints"):
                typer.echo(f"{name:<14} {value if value is not None else 'not found'}")
        for hint in found["hints"]:
            typer.echo(f"hint: {hint}")
        for problem in found["problems"]:
            typer.echo(f"problem: {problem}")
    if found["problems"]:
        raise typer.Exit(1)


def examine() -> dict[str, Any]:
    """The object that `--json` prints."""
    problems: list[str] = []
    hints: list[str] = []
    torch_version, device = _torch(problems)
    bubblewrap = _bubblewrap(hints)
    verl = _version("verl")
    vllm = vllm_version(hints)
    ray = _version("ray")
    _cluster(verl, ray, device, hints)
    cores = os.cpu_count() or 1
    if os.environ.get("OMP_NUM_THREADS") is None and cores > 1:
        hints.append("several runs at once on one machine: set OMP_NUM_THREADS=1 and threads=1")
    return {
        "python": platform.python_version(),
        "torch": torch_version,
        "transformers": _version("transformers"),
        "device": device,
        "cores": cores,
        "memory_gib": _memory_gib(),
        "bubblewrap": bubblewrap,
        "verl": verl,
        "ray": ray,
        "vllm": vllm,
        "problems": problems,
        "hints": hints,
    }


def _cluster(verl: str | None, ray: str | None, device: str | None, hints: list[str]) -> None:
    """What `brorl launch` would refuse here, before it is asked."""
    from brorl.errors import ConfigError
    from brorl.verl.names import VERL
    from brorl.verl.start import check_address

    install = "pip install -c constraints-verl.txt 'brorl[verl]', in an environment of its own"
    if verl is None:
        hints.append(f"a cluster through verl: {install}")
        return
    if verl != VERL:
        hints.append(f"brorl launch starts verl {VERL}, here is {verl}: {install}")
    if ray is None:
        hints.append(f"verl needs Ray, which is missing: {install}")
    if device == "cpu" and not os.environ.get("RAY_ADDRESS"):
        hints.append("brorl launch needs CUDA devices here, or --ray-address of a cluster")
    try:
        check_address(os.environ.get("RAY_ADDRESS") or "auto")
    except ConfigError as error:
        hints.append(f"RAY_ADDRESS: {error}")


def _torch(problems: list[str]) -> tuple[str | None, str | None]:
    try:
        import torch
    except ImportError as error:
        problems.append(f"torch cannot be imported ({error}): pip install -c constraints.txt .")
        return None, None
    if torch.cuda.is_available():
        return torch.__version__, f"cuda: {torch.cuda.get_device_name()}"
    return torch.__version__, "cpu"


def _bubblewrap(hints: list[str]) -> str | None:
    """Version, where a box can really be made: some containers forbid it."""
    path = shutil.which("bwrap")
    if path is None:
        hints.append("grading code needs bubblewrap: apt-get install bubblewrap")
        return None
    box = [path, "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        subprocess.run(box, check=True, capture_output=True, timeout=10, env={})
        named = subprocess.run([path, "--version"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        hints.append(f"bubblewrap is installed but makes no box here: {error}")
        return None
    return named.stdout.decode().split()[-1]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float | None:
    if sys.platform != "linux":
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
