"""A decoder layer with less to keep and fewer passes over memory, where we know the layer.

In a narrow model as much time goes into norms, rotations and gates as into matrix products: each
reads and writes every activation, and autograd keeps most of them. A Llama, Qwen2 or Mistral
layer of stock modules is run here in two halves around the attention (`layer_halves`), each with a
backward of its own that keeps

    x, and the rotated q, k, v; the attention's output; h; gate and up       4 H + 2 K·D + 2 F

numbers per token (H hidden, K·D of keys, F feed-forward) where the stock layer keeps about
14 H + 4 F, and makes norms and gates again. The matrix products are the same ones.

Anything that is not exactly such a layer (an adapter in place of a projection, a hook on a module
inside it, gradient checkpointing, another activation) takes the stock forward, decided anew for
every reader; so does every call without one.

Axes:  M tokens · H hidden · D width of a head
"""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from brorl.policy.layer_halves import finish, project

_LAYERS = {"LlamaDecoderLayer", "Qwen2DecoderLayer", "MistralDecoderLayer"}
_NORMS = {"LlamaRMSNorm", "Qwen2RMSNorm", "MistralRMSNorm"}
_SILUS = {"SiLU", "SiLUActivation"}
_OPTIONAL = {"attention_mask", "cache", "past_key_values", "position_ids", "use_cache"}


def fuse_layers(model: Any) -> None:
    """Give every layer of a known kind the forward below; others stay as they are."""
    for layer in getattr(model.base_model, "layers", None) or ():
        if type(layer).__name__ in _LAYERS:
            layer.forward = MethodType(_forward, layer)


def _forward(self: Any, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What the model calls: the fused layer where it applies, the stock one elsewhere."""
    reader, rotation = kwargs.get("reader"), kwargs.get("position_embeddings")
    asked = {k for k, v in kwargs.items() if v is not None and v is not False}
    extra = asked - {"reader", "position_embeddings", "position_ids"}
    if args or reader is None or rotation is None or extra or not _is_known(self, reader):
        stock: Tensor = type(self).forward(self, hidden_states, *args, **kwargs)
        return stock
    shape = hidden_states.shape
    x_MH = hidden_states.reshape(-1, shape[-1])
    cos, sin = _tables(reader, rotation, shape)
    attention, norm = self.self_attn, self.input_layernorm
    q, k, v = project(
        x_MH,
        norm.weight,
        norm.variance_epsilon,
        *_linear(attention.q_proj),
        *_linear(attention.k_proj),
        *_linear(attention.v_proj),
        cos,
        sin,
    )
    heads = (t.view(*shape[:-1], -1, attention.head_dim).transpose(1, 2) for t in (q, k, v))
    mixed = reader.attend(attention.layer_idx, *heads, attention.scaling).transpose(1, 2)
    norm, mlp = self.post_attention_layernorm, self.mlp
    out = finish(
        x_MH,
        mixed.reshape(len(x_MH), -1),
        *_linear(attention.o_proj),
        norm.weight,
        norm.variance_epsilon,
        *_linear(mlp.gate_proj),
        *_linear(mlp.up_proj),
        *_linear(mlp.down_proj),
    )
    return out.view(shape)


def _is_known(layer: Any, reader: Any) -> bool:
    """`_is_plain`, asked once a layer and reader: a reader lives for one wave or one scoring."""
    plain: dict[int, bool] = reader.__dict__.setdefault("plain", {})
    number = layer.self_attn.layer_idx
    if number not in plain:
        plain[number] = _is_plain(layer)
    return plain[number]


def _is_plain(layer: Any) -> bool:
    """Whether the layer is made of the stock modules that the two pieces below replace."""
    attention, mlp = layer.self_attn, layer.mlp
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    linears = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return (
        not layer.gradient_checkpointing
        and type(mlp.act_fn).__name__ in _SILUS
        and all(type(n).__name__ in _NORMS for n in norms)
        and all(type(p) is nn.Linear for p in linears)
        and not any(_hooked(m) for m in (attention, mlp, mlp.act_fn, *norms, *linears))
    )


def _hooked(module: nn.Module) -> bool:
    forward = module._forward_hooks or module._forward_pre_hooks
    hooks = forward or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or "forward" in module.__dict__


def _linear(p: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return p.weight, p.bias


def _tables(
    reader: Any, rotation: tuple[Tensor, Tensor], shape: torch.Size
) -> tuple[Tensor, Tensor]:
    """cos and sin [M, 1, D] as `_rotate` takes them, from a model's [1 or B, T, D].

    All layers of a forward get the same tables; the reader keeps them from the first.
    """
    held = getattr(reader, "rotation", None)
    if held is None or held[0] is not rotation[0]:
        cos, sin = (t.expand(*shape[:-1], -1).reshape(-1, 1, t.shape[-1]) for t in rotation)
        half = sin.shape[-1] // 2
        signed = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)
        held = reader.rotation = (rotation[0], cos, signed)
    return held[1], held[2]
