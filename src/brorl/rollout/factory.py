"""The engine that settings name, for a policy in this process.

Each engine is imported only where it is asked for.
"""

from collections.abc import Callable

import brorl
from brorl.errors import ConfigError
from brorl.policy.model import Policy
from brorl.rollout.engine import Engine
from brorl.rollout.options import NOT_FOR_TRAINING, EngineName, VllmOptions


def check_engine(name: EngineName) -> None:
    """Refuse an engine that cannot be had here, before anything is loaded. Raises ConfigError."""
    if name == "openai":
        raise ConfigError(NOT_FOR_TRAINING)
    if name == "vllm":
        from brorl.rollout.vllm_process import check_installed

        check_installed()


def engine_record(name: EngineName) -> dict[str, str | None]:
    """Name and version for the records of a run."""
    if name != "vllm":
        return {"name": name, "version": brorl.__version__}
    from brorl.rollout.vllm_process import version

    return {"name": name, "version": version()}


def open_engine(
    name: EngineName,
    policy: Policy,
    *,
    memory_budget: int,
    max_tokens: Callable[[], int],
    vllm: VllmOptions,
    policy_version: int = 0,
) -> Engine:
    """An engine that samples from a policy's weights; the caller closes it.

    Args:
        name: which; a server (openai) has weights of its own and is refused.
        policy: shared with whoever trains it.
        memory_budget: bytes that sampling may add.
        max_tokens: tells the longest prompt with its answer; asked for vLLM alone, which lays
            its pool out for it.
        vllm: options of that engine.
        policy_version: of the weights as they are now.

    Raises:
        ConfigError, PolicyError: it is not installed, or does not fit the policy.
    """
    check_engine(name)
    if name == "vllm":
        from brorl.rollout.vllm_engine import VllmEngine

        return VllmEngine(
            policy,
            options=vllm,
            memory_budget=memory_budget,
            max_tokens=max_tokens(),
            policy_version=policy_version,
        )
    from brorl.rollout.embedded import EmbeddedEngine

    return EmbeddedEngine(policy, memory_budget=memory_budget, policy_version=policy_version)
