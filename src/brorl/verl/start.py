"""Start verl's own trainer and wait for it: what must be there first, and one line if it fails."""

import importlib.metadata
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from brorl.errors import ConfigError, EngineError, Interrupted
from brorl.verl import names
from brorl.verl.compile import Cluster, Compiled
from brorl.verl.refusals import is_hub_name

LOG = "verl.log"
_ERROR = re.compile(r"(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit)): (.+)")


def check_versions() -> None:
    """Refuse to start without verl, Ray or vLLM, or with another verl than the tests ran on.

    Raises:
        ConfigError: with what to type.
    """
    install = "pip install -c constraints-verl.txt 'brorl[verl]', in an environment of its own"
    for package in ("verl", "ray"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"{package} is not installed: {install} (--dry-run needs neither)")
    found = importlib.metadata.version("verl")
    if found != names.VERL:
        raise ConfigError(f"need verl {names.VERL}, got {found}: {install}")
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("verl samples with vLLM, which is not installed: see docs/scale-out.md")


def check_cluster(compiled: Compiled, cluster: Cluster) -> None:
    """Refuse what would only fail minutes later: no GPUs, no cluster, a model nobody sees.

    Raises:
        ConfigError: what was required, what came.
    """
    path = str(compiled.verl["actor_rollout_ref.model.path"])
    if cluster.ray_address is None:
        if cluster.nodes > 1:
            raise ConfigError(f"{cluster.nodes} nodes need --ray-address of a running Ray cluster")
        import torch

        here = torch.cuda.device_count()
        if here < cluster.gpus_per_node:
            raise ConfigError(f"need {cluster.gpus_per_node} GPUs, this machine has {here}")
        if not is_hub_name(path) and not (Path(path) / "config.json").is_file():
            raise ConfigError(f"model.path {path}: no checkpoint there (it has no config.json)")
        return
    check_address(cluster.ray_address)
    if not is_hub_name(path):
        missing = unseen_by(cluster.ray_address, [path, str(compiled.verl["brorl.run"])])
        if missing:
            raise ConfigError(
                "every node must see the model and the run's folder: " + "; ".join(missing)
            )


def check_address(address: str) -> None:
    """Refuse a Ray address where nothing listens. Raises ConfigError."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"--ray-address reads HOST:PORT or auto, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); "
            "start one with: ray start --head"
        ) from error


def unseen_by(address: str, paths: Sequence[str]) -> list[str]:
    """ "NODE does not see PATH" for each path that a node of the cluster cannot read."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    @ray.remote(num_cpus=0)
    def missing(paths: list[str]) -> list[str]:
        return [p for p in paths if not os.path.exists(p)]

    ray.init(address=address, log_to_driver=False)
    try:
        nodes = [n for n in ray.nodes() if n["Alive"]]
        asked = {
            n["NodeManagerAddress"]: missing.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)
            ).remote(list(paths))
            for n in nodes
        }
        return [
            f"{host} does not see {path}"
            for host, found in asked.items()
            for path in ray.get(found, timeout=60)
        ]
    finally:
        ray.shutdown()


def fetch_model(compiled: Compiled, run: Path) -> None:
    """Download a pinned revision into the run: verl has no setting for one.

    Raises:
        ConfigError: the hub does not answer, or has no such model or revision.
    """
    m = compiled.settings.model
    if compiled.verl["actor_rollout_ref.model.path"] != str(run / "model"):
        return
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(m.path or "", revision=m.revision, local_dir=str(run / "model"))
    except Exception as error:  # the hub's client raises many kinds; each is the user's to see
        line = str(error).splitlines()[0]
        raise ConfigError(f"model.path {m.path} revision {m.revision}: {line}") from error


def run_verl(command: Sequence[str], run: Path, echo: IO[str] | None = sys.stderr) -> None:
    """Run verl to its end; its output goes to verl.log and on to `echo`.

    Raises:
        EngineError: it ended with a failure; the line of its log that says why.
        Interrupted: Ctrl-C; verl was told, and had a minute.
    """
    last: deque[str] = deque(maxlen=2000)
    with (run / LOG).open("a", encoding="utf-8") as log:
        child = subprocess.Popen(
            list(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            assert child.stdout is not None
            with child.stdout as said:
                for line in said:
                    last.append(line)
                    log.write(line)
                    log.flush()
                    if echo is not None:
                        echo.write(line)
            status = child.wait()
        except KeyboardInterrupt:
            _stop(child)
            raise Interrupted(f"stopped; go on with the same command and --out {run}") from None
    if status != 0:
        raise EngineError(f"verl ended with status {status}: {reason(last)}; see {run / LOG}")


def reason(lines: Sequence[str]) -> str:
    """The last line of a log that names an error; ours before anybody else's."""
    found = [m for line in lines if (m := _ERROR.search(line))]
    own = [m for m in found if "brorl.errors" in m.string]
    chosen = (own or found)[-1:]
    return f"{chosen[0][1]}: {chosen[0][2].strip()}"[:500] if chosen else "no error was named"


def _stop(child: "subprocess.Popen[str]") -> None:
    for number, seconds in ((signal.SIGINT, 60), (signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        try:
            os.killpg(child.pid, number)
            child.wait(timeout=seconds)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
