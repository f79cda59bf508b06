"""verl's actor worker with what its trainer cannot ask for: a rate for each update, and a
reference policy that is renewed and kept in checkpoints.

A subclass of verl's ActorRolloutRefWorker; sharding, weight transfer and optimizer stay verl's.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from verl.single_controller.base.decorator import (
    Dispatch,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker

from brorl.errors import DataError

RATE = "brorl_lr"
"""Key of a batch that holds the learning rate of its update."""


class BrorlWorker(ActorRolloutRefWorker):
    """One rank of actor, rollout and reference."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: Any) -> Any:
        """verl's update at the rate that the batch brings; its own schedule is constant."""
        rate = float(tu.pop(data, key=RATE))
        for group in self.actor.engine.optimizer.param_groups:
            group["lr"] = rate
        return super().update_actor(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    @torch.no_grad()
    def reset_reference(self, reset_optimizer: bool) -> None:
        """The reference becomes the current policy; each rank copies the shards it holds."""
        actor = dict(self.actor.engine.module.named_parameters())
        for name, reference in self.ref.engine.module.named_parameters():
            _local(reference).copy_(_local(actor[name]))
        if reset_optimizer:
            self.actor.engine.optimizer.state.clear()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_reference(self, folder: str) -> None:
        """This rank's shards of the reference."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        shards = {n: _local(p).cpu() for n, p in self.ref.engine.module.named_parameters()}
        torch.save(shards, self._shard_file(folder))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    @torch.no_grad()
    def load_reference(self, folder: str) -> None:
        """Raises DataError where the checkpoint was written by another number of ranks."""
        path = self._shard_file(folder)
        if not path.is_file():
            raise DataError(
                f"{path} is missing: the reference was saved by another number of ranks"
            )
        shards: dict[str, Tensor] = torch.load(path, weights_only=True)
        for name, reference in self.ref.engine.module.named_parameters():
            _local(reference).copy_(shards[name])

    def _shard_file(self, folder: str) -> Path:
        return Path(folder) / f"world_{self.world_size}_rank_{self.rank}.pt"


def _local(parameter: Any) -> Tensor:
    """The part of a sharded parameter that this rank holds."""
    local: Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return local.detach()
