"""AdamW on float32 copies of weights that are kept, and computed with, in fewer bits.

bfloat16 has 8 bits: a weight moves only by steps of 1/256 of itself, and at the learning rates of
reinforcement learning every update rounds to nothing. So the optimizer's weights, gradients and
moments are float32; after each step the model's weights are those, rounded.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from brorl.errors import DataError


class MasterAdamW(torch.optim.AdamW):
    """AdamW over float32 copies ("masters") of a model's parameters.

    Gradients of a micro-batch are added to the masters' in float32 as soon as backward has them,
    and the model's own are dropped: sums over micro-batches do not round to the model's dtype,
    and `param_groups` holds what a clip of the gradient's norm must look at.

    Args:
        parameters: of the model, of any float dtype; all of them must require gradients.
        knobs: of torch.optim.AdamW.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], **knobs: Any) -> None:
        self._weights = list(parameters)
        self._masters = [nn.Parameter(p.detach().float().clone()) for p in self._weights]
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.register_post_accumulate_grad_hook(_adding_to(master))
        super().__init__(self._masters, **knobs)

    def step(self, closure: Any = None) -> Any:
        """One step of the masters, then the model's weights anew from them."""
        done = super().step(closure)
        self._round()
        return done

    def state_dict(self) -> dict[str, Any]:
        """AdamW's state and the masters: the model's weights do not say what was rounded off."""
        return super().state_dict() | {"masters": [m.detach() for m in self._masters]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore moments and masters, and the model's weights from them.

        Raises:
            DataError: a state without masters, or with others.
        """
        saved: list[Tensor] | None = state_dict.get("masters")
        shapes = [m.shape for m in self._masters]
        if saved is None or [m.shape for m in saved] != shapes:
            raise DataError(
                "the optimizer's state holds no float32 masters of this model: it was saved with "
                "another model.dtype or model.master_dtype"
            )
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "masters"})
        with torch.no_grad():
            for master, value in zip(self._masters, saved, strict=True):
                master.copy_(value)
        self._round()

    @torch.no_grad()
    def _round(self) -> None:
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.copy_(master)


def _adding_to(master: nn.Parameter) -> Callable[[Tensor], None]:
    """A hook that moves a weight's fresh gradient to its master."""

    def add(weight: Tensor) -> None:
        fresh = weight.grad
        assert fresh is not None
        weight.grad = None
        if master.grad is None:
            master.grad = fresh.float()
        else:
            master.grad += fresh

    return add
