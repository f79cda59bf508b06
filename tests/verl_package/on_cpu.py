"""Runs of verl's trainer on this machine's CPU: a tiny policy, a local Ray, FSDP2 on gloo."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from brorl.policy.load import TinyShape, save_policy, tiny_policy
from brorl.train.recipe import load_recipe
from brorl.verl.compile import ADDED, Cluster, compile_recipe
from brorl.verl.overrides import override
from brorl.verl.prepare import prepare

HERE = Path(__file__).parent
SHAPE = TinyShape(
    architecture="llama",
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=4,
    mlp=256,
    max_positions=256,
    tied=True,
)
ON_CPU = {
    "trainer.device": "cpu",
    "trainer.logger": ["console"],
    "actor_rollout_ref.rollout.name": "hf",
    "actor_rollout_ref.rollout.agent.num_workers": 1,
    "actor_rollout_ref.model.use_remove_padding": False,
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
    "actor_rollout_ref.model.override_config": {"attn_implementation": "sdpa"},
    "actor_rollout_ref.actor.use_torch_compile": False,
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.ref.use_torch_compile": False,
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "ray_kwargs.ray_init.num_cpus": 16,
    "ray_kwargs.ray_init.num_gpus": 2,
    "ray_kwargs.ray_init.include_dashboard": False,
    "ray_kwargs.ray_init._node_ip_address": "127.0.0.1",
}
MORE = (
    "actor_rollout_ref.model.override_config",
    *(k for k in ON_CPU if k.startswith("ray_kwargs.") and not k.endswith("num_cpus")),
)
RECIPE = [
    "warmstart=null",
    "rollout.n=64",
    "prompts_per_step=2",
    "num_minibatches=2",
    "task.train_size=32",
    "task.eval_size=4",
    "eval.samples=2",
    "grading.workers=0",
    "reward.source=random",  # an untrained policy is never right: without spread no group is kept
    "save_every=1",
    "keep_checkpoints=9",
]


def make_policy(folder: Path) -> Path:
    save_policy(tiny_policy(SHAPE, seed=1, device="cpu", trained_length=1), folder)
    return folder


def environment(**more: str) -> dict[str, str]:
    return {
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "cpu_platform,brorl.verl.plugin",
        "PYTHONPATH": str(HERE),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
        **more,
    }


def command(run: Path, model: Path, *overrides: str, gpus: int = 1, env=None) -> list[str]:
    """Prepare a run's folder, and the words that start verl on it."""
    settings = load_recipe("quickstart", [*RECIPE, f"model.path={model}", *overrides])
    compiled = compile_recipe(settings, run, Cluster(1, gpus, None, 32))
    prepare(compiled, run)
    values = compiled.verl | ON_CPU
    values["ray_kwargs.ray_init.runtime_env.env_vars"] = env or environment()
    added = (*ADDED, *MORE)
    words = [override(k, v, added=k in added) for k, v in values.items()]
    return [sys.executable, "-m", "verl.trainer.main_ppo", f"hydra.run.dir={run}/hydra", *words]


@contextlib.contextmanager
def started(words: list[str], log: Path, env=None):
    """verl as a child; what is left of it when the block ends is killed, Ray's processes too."""
    with log.open("a") as out:
        child = subprocess.Popen(
            words,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | (env or environment()),
            start_new_session=True,
        )
        family = psutil.Process(child.pid)
        seen: set[psutil.Process] = set()
        try:
            yield child, lambda: seen.update(members(family)) or seen
        finally:
            seen |= members(family)
            for process in [*seen, family]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            child.wait()


def members(family: psutil.Process) -> set[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return set(family.children(recursive=True))
    return set()


def run(words: list[str], log: Path, *, timeout: float, env=None) -> int:
    """verl's exit status; a run beyond its time is killed with all that it started."""
    end = time.monotonic() + timeout
    with started(words, log, env) as (child, look):
        while child.poll() is None and time.monotonic() < end:
            look()
            time.sleep(2)
        assert child.poll() is not None, f"no end after {timeout} s: {log.read_text()[-2000:]}"
        return child.returncode
