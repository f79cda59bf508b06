"""vLLM in this process: imported, built around a policy's configuration, and taken down.

One process on purpose: live weights are handed over as tensors, which vLLM cannot take across
processes on a CPU. The engine begins with made-up weights (`load_format="dummy"`), so weights
that were never handed over show at the first comparison with the trainer, not never.

Not part of a public interface of vLLM, checked with 0.32: `quant_method` of embeddings,
`model_runner.reload_weights` and `model_runner.kv_caches`.
"""

import contextlib
import copy
import gc
import importlib.metadata
import importlib.util
import io
import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from brorl.errors import ConfigError, PolicyError
from brorl.policy.model import Policy
from brorl.rollout.options import INSTALL_VLLM, VllmOptions

_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",  # what goes wrong is raised, and said in one line
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for --json
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer's threads are these threads
}
"""Set unless the user has set them."""
_SMALL = 0.01
_TOKENS_AT_ONCE = 4096  # of prompts that are read in one step
_running: list[Any] = []  # at most one: closing an engine takes the process's groups from others


def check_installed() -> None:
    """Refuse, before anything is loaded, where there is no vLLM. Raises ConfigError."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"rollout.engine=vllm needs vLLM, which is not installed here: {INSTALL_VLLM}"
        )


def version() -> str | None:
    """Of the installed distribution, whichever it is; None where there is none."""
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def import_vllm() -> Any:
    """The module, imported for use in this process. Raises ConfigError where that fails."""
    check_installed()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with _quiet():
            import vllm
            import vllm.v1.engine.llm_engine
    except Exception as error:  # whatever a foreign import raises
        raise ConfigError(
            f"rollout.engine=vllm: vLLM is installed but cannot be imported ({first_line(error)}); "
            f"it is meant to be installed {INSTALL_VLLM}"
        ) from error
    return vllm


def start(policy: Policy, options: VllmOptions, *, memory_budget: int, max_tokens: int) -> Any:
    """An LLMEngine for a policy of this configuration, with made-up weights.

    Args:
        policy: its configuration and dtype; its weights are not read.
        options: of the engine.
        memory_budget: bytes of the block pool.
        max_tokens: of the longest prompt and its answer.

    Raises:
        ConfigError: no vLLM, or a block pool that does not hold one answer.
        PolicyError: a model that vLLM cannot run here.
    """
    vllm = import_vllm()
    if _running:
        raise ConfigError("one vLLM engine at a time in a process: close the other one first")
    _check_head_width(policy)
    with tempfile.TemporaryDirectory() as folder:
        config = copy.deepcopy(policy.model.config)
        config.architectures = [type(policy.model).__name__]
        config.save_pretrained(folder)
        arguments = vllm.EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            load_format="dummy",
            generation_config="vllm",  # no sampling settings out of the checkpoint
            dtype=str(policy.model.dtype).removeprefix("torch."),
            max_model_len=max_tokens,
            max_num_seqs=options.max_num_seqs,
            block_size=options.block_size,
            enforce_eager=options.enforce_eager,
            enable_prefix_caching=True,
            logprobs_mode="processed_logprobs",  # at the sampling temperature
            kv_cache_memory_bytes=memory_budget,
            gpu_memory_utilization=_SMALL,  # must be free at the start; the pool decides the rest
            distributed_executor_backend="uni",
            disable_log_stats=True,
            seed=0,  # of nothing: every answer is sampled with a seed of its own
            **_whole_prompts(max_tokens),
        )
        try:
            with _quiet():
                engine = vllm.LLMEngine.from_engine_args(arguments)
        except Exception as error:  # vLLM's own checks raise many kinds
            text = first_line(error)
            if "KV cache" in text or "kv cache" in text:
                raise ConfigError(
                    f"rollout.memory_budget={memory_budget}: vLLM's block pool must hold "
                    f"{max_tokens} tokens and be free memory: {text}"
                ) from error
            raise PolicyError(
                f"rollout.engine=vllm cannot run {policy.source} here: {text}; "
                "rollout.engine=embedded may"
            ) from error
    _running.append(engine)
    return engine


def _whole_prompts(max_tokens: int) -> dict[str, Any]:
    """On a CPU no prompt is read in parts: vLLM fails there at the first seeded one that is.

    After a part it winds the answer's generator back, and a CPU's cannot be (seen with 0.32).
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return {}
    at_once = max(_TOKENS_AT_ONCE, max_tokens)
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": at_once}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Libraries that vLLM brings print and warn of themselves while they are loaded."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def stop(engine: Any) -> None:
    """Give back the engine's memory, and what its worker shares in this process."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    _running.remove(engine)
    engine.engine_core.shutdown()
    gc.collect()
    cleanup_dist_env_and_memory()


def pool_bytes(engine: Any) -> int:
    """Of the block pool: the keys and values of all layers."""

    def count(worker: Any) -> int:
        return sum(cache.nbytes for cache in worker.model_runner.kv_caches)

    return int(engine.collective_rpc(count)[0])


def first_line(error: BaseException) -> str:
    """What a foreign error says, on one line and not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]} ..."


def _check_head_width(policy: Policy) -> None:
    """vLLM's CPU attention knows some head widths and fails at the first forward on others."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config = policy.model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    known = CPUAttentionBackend.get_supported_head_sizes()
    if width not in known:
        raise PolicyError(
            f"rollout.engine=vllm: {policy.source} has attention heads of width {width}; on a CPU "
            f"vLLM takes {', '.join(map(str, known))} (width = hidden / heads of model.shape)"
        )
