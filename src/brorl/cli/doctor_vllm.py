"""The row of vLLM: whether it can be imported, which its metadata alone do not tell."""

import importlib.util
import subprocess
import sys

from brorl.rollout.options import INSTALL_VLLM

_TIMEOUT_S = 300.0  # an import takes 10 s and more; on a busy machine several times that


def vllm_version(hints: list[str]) -> str | None:
    """Version of a vLLM that can be imported here; else None, and what to type as a hint."""
    if importlib.util.find_spec("vllm") is None:
        hints.append(f"vLLM as engine of training or evaluation: {INSTALL_VLLM}")
        return None
    words = [sys.executable, "-c", "import vllm; print('vllm', vllm.__version__)"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        hints.append(f"vLLM is installed but its import took more than {_TIMEOUT_S:.0f} s")
        return None
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("vllm ")]
    if done.returncode == 0 and found:
        return found[-1]
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
    hints.append(
        f"vLLM is installed but cannot be imported ({reason}); it is meant to be installed "
        f"{INSTALL_VLLM}"
    )
    return None
