"""Gradient checkpointing: a layer's activations are made again in the backward pass, not kept.

The answers' forward is what grows with the width of a group; prompts are read once a group and
keep their activations, since their keys and values are handed to the answers from inside their
layers. Layers run as they do without it, so nothing but memory and time changes.
"""

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from brorl.errors import PolicyError
from brorl.policy.shared_prefix import PromptReader, shared_attention


class _Checkpointed:
    """Put before a layer's own class; a copy of a model stays checkpointed, layer by layer."""

    brorl_config: Any  # the model's: says which attention its layers call

    def __call__(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        run: Any = super().__call__  # type: ignore[misc]  # of the layer's own class, mixed in later
        reader = kwargs.get("reader")
        if not torch.is_grad_enabled() or reader is None or isinstance(reader, PromptReader):
            return run(hidden, *args, **kwargs)
        # No dropout acts, so no state of a random generator need be kept.
        knobs: Any = {
            "use_reentrant": False,
            "preserve_rng_state": False,
            "context_fn": self._contexts,
        }
        return checkpoint(run, hidden, *args, **knobs, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For the forward, which runs within ours, and for the run that backward makes later."""
        return nullcontext(), shared_attention(SimpleNamespace(config=self.brorl_config))


def checkpoint_layers(model: Any) -> None:
    """Make every decoder layer of a model forget what its answers' forward made.

    Transformers' own switch acts on models in training mode, which would turn dropout on.

    Raises:
        PolicyError: no layer of the model is of the kind that can be run again.
    """
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        name = type(model).__name__
        raise PolicyError(f"model.gradient_checkpointing: {name} has no layer to be run again")
    for layer in layers:
        kind = type(layer)
        if not issubclass(kind, _Checkpointed):
            layer.__class__ = type(kind.__name__, (_Checkpointed, kind), {})
            layer.brorl_config = model.config
