"""verl 0.9.1 on a machine without a GPU, for tests alone: what it would need patches for.

verl has platforms for NVIDIA, AMD and Huawei only. Here: a platform `cpu` on gloo (its public
registry), its FSDP engine under that name (public registry), a rollout engine that samples with
Hugging Face (public registry), and three patches of private behaviour, each named below.
Loaded by VERL_USE_EXTERNAL_MODULES, with VERL_PLATFORM=cpu.
"""

import contextlib
import types

import torch
import torch.distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry

VERL = "0.9.1"


class _Device(types.ModuleType):
    """What verl asks torch.cuda for, answered for the CPU: no memory of its own, nothing to wait for."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(("max_memory", "memory_")):
            return lambda *a, **k: 0
        answers = {
            "mem_get_info": lambda *a, **k: (1 << 34, 1 << 34),
            "get_rng_state": lambda *a, **k: torch.get_rng_state(),
            "set_rng_state": lambda state, *a, **k: torch.set_rng_state(state),
            "is_available": lambda: True,
            "get_device_name": lambda *a, **k: "CPU",
            "current_device": lambda: "cpu",
        }
        return answers.get(name, lambda *a, **k: None)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One CPU device a process; verl's resource check knows the name GPU only, so Ray is told one."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "generic")
    device_module = property(lambda self: _DEVICE)

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, index):
        pass

    def synchronize(self, index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CPU_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, message):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


_DEVICE = _Device("cpu_device")


def _register():
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(
        transformer_impl.FSDPEngineWithLMHead
    )

    def replica():
        from cpu_rollout import HFReplica

        return HFReplica

    RolloutReplicaRegistry.register("hf", replica)
    base._ROLLOUT_REGISTRY[("hf", "async")] = "cpu_rollout.HFAdapter"


def _patch():
    """Private behaviour of verl 0.9.1 that knows no CPU device."""
    start = torch.distributed.init_process_group

    def init(backend=None, *args, **kwargs):
        # verl names "cpu:gloo,DEVICE:BACKEND"; on the CPU that is a duplicate, which torch refuses.
        return start("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init

    # A reference policy is offloaded to pinned host memory; without a GPU nothing can be pinned.
    from torch.distributed.fsdp import CPUOffloadPolicy
    from verl.workers.engine.fsdp import transformer_impl

    transformer_impl.CPUOffloadPolicy = lambda pin_memory=True: CPUOffloadPolicy(pin_memory=False)


_register()
_patch()
