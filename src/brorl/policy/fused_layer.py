"""A decoder layer with less to keep and fewer passes over memory, where we know the layer.

In a narrow model as much time goes into norms, rotations and gates as into matrix products: each
reads and writes every activation, and autograd keeps most of them. A Llama, Qwen2 or Mistral
layer of stock modules is run here in two pieces around the attention, each with a backward of
its own that keeps

    x, and the rotated q, k, v; the attention's output; h; gate and up       4 H + 2 K·D + 2 F

numbers per token (H hidden, K·D of keys, F feed-forward) where the stock layer keeps about
14 H + 4 F, and makes norms and gates again. The matrix products are the same ones. Without
gradients everything happens in place.

Anything that is not exactly such a layer (an adapter in place of a projection, a hook on a module
inside it, gradient checkpointing, another activation) takes the stock forward, decided anew for
every reader; so does every call without one.

Axes:  M tokens · H hidden · J width of all heads · F feed-forward · D width of a head
"""

from collections.abc import Callable
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brorl.policy.joint_attention import wide

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
    project: Callable[..., Any] = _Project.apply if torch.is_grad_enabled() else _project
    finish: Callable[..., Tensor] = _Finish.apply if torch.is_grad_enabled() else _finish
    q, k, v = project(
        x_MH,
        norm.weight,
        norm.variance_epsilon,
        *(t for p in (attention.q_proj, attention.k_proj, attention.v_proj) for t in _linear(p)),
        cos,
        sin,
    )[:3]
    heads = (t.view(*shape[:-1], -1, attention.head_dim).transpose(1, 2) for t in (q, k, v))
    mixed = reader.attend(attention.layer_idx, *heads, attention.scaling).transpose(1, 2)
    norm, mlp = self.post_attention_layernorm, self.mlp
    out = finish(
        x_MH,
        mixed.reshape(len(x_MH), -1),
        *_linear(attention.o_proj),
        norm.weight,
        norm.variance_epsilon,
        *(t for p in (mlp.gate_proj, mlp.up_proj, mlp.down_proj) for t in _linear(p)),
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
        and not any(_hooked(m) for m in (attention, mlp, *norms, *linears))
    )


def _hooked(module: nn.Module) -> bool:
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
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


def _rotate(x_MJ: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (d, d + D / 2) of each head; with -sin the inverse.

    cos and sin: [M, 1, D], cos [c, c] and sin [-s, s] of the halves.
    """
    x = x_MJ.view(len(x_MJ), -1, cos.shape[-1])
    first, second = x.chunk(2, dim=-1)
    swapped = torch.cat([second, first], dim=-1)
    return torch.addcmul(x * cos, swapped, sin).view(x_MJ.shape)


def _inverse_rms(x_MH: Tensor, eps: float) -> Tensor:
    """[M, 1]: 1 / sqrt(mean of squares + eps), float32."""
    norm: Tensor = torch.linalg.vector_norm(x_MH, dim=-1, keepdim=True, dtype=wide(x_MH))
    return norm.square_().div_(x_MH.shape[-1]).add_(eps).rsqrt_()


def _normed(x_MH: Tensor, inverse_M1: Tensor, weight_H: Tensor) -> Tensor:
    return (x_MH * inverse_M1).to(x_MH.dtype).mul_(weight_H)


def _norm_backward(
    g_MH: Tensor, x_MH: Tensor, inverse_M1: Tensor, weight_H: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight: with u = x · inverse, dx = inverse (g w - u mean(g w u))."""
    u = x_MH * inverse_M1
    gw = g_MH.to(u.dtype) * weight_H
    d_weight = (g_MH * u).sum(0)
    mean = torch.linalg.vecdot(gw, u).div_(x_MH.shape[-1])[:, None]
    dx = gw.addcmul_(u, mean, value=-1).mul_(inverse_M1)
    return dx.to(x_MH.dtype), d_weight.to(weight_H.dtype)


def _project(
    x: Tensor,
    norm_w: Tensor,
    eps: float,
    q_w: Tensor,
    q_b: Tensor | None,
    k_w: Tensor,
    k_b: Tensor | None,
    v_w: Tensor,
    v_b: Tensor | None,
    cos: Tensor,
    sin: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rotated q, rotated k and v of norm(x); and 1 / rms of x."""
    inverse = _inverse_rms(x, eps)
    n = _normed(x, inverse, norm_w)
    q = _rotate(F.linear(n, q_w, q_b), cos, sin)
    k = _rotate(F.linear(n, k_w, k_b), cos, sin)
    return q, k, F.linear(n, v_w, v_b), inverse


class _Project(torch.autograd.Function):
    """`_project` with a backward that makes the norm again."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        x, norm_w, _, q_w, q_b, k_w, k_b, v_w, v_b, cos, sin = given
        q, k, v, inverse = _project(*given)
        ctx.save_for_backward(x, inverse, norm_w, q_w, q_b, k_w, k_b, v_w, v_b, cos, sin)
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, inverse, norm_w, q_w, q_b, k_w, k_b, v_w, v_b, cos, sin = ctx.saved_tensors
        gq, gk = (_rotate(g.contiguous(), cos, -sin) for g in grads[:2])
        gv = grads[2]
        n = _normed(x, inverse, norm_w)
        gn = (gq @ q_w).addmm_(gk, k_w).addmm_(gv, v_w)
        dx, d_norm = _norm_backward(gn, x, inverse, norm_w)
        needs = ctx.needs_input_grad
        return (
            dx,
            d_norm,
            None,
            *_linear_backward(gq, n, q_b, needs[3]),
            *_linear_backward(gk, n, k_b, needs[5]),
            *_linear_backward(gv, n, v_b, needs[7]),
            None,
            None,
        )


class _Middle(NamedTuple):
    """What `_finish` passes through on its way to the output."""

    h: Tensor
    inverse: Tensor
    gate: Tensor
    up: Tensor


def _before_gate(
    x: Tensor, mixed: Tensor, o_w: Tensor, o_b: Tensor | None, norm_w: Tensor, eps: float,
    gate_w: Tensor, gate_b: Tensor | None, up_w: Tensor, up_b: Tensor | None,
) -> _Middle:  # fmt: skip
    h = _add_linear(x, mixed, o_w, o_b)
    inverse = _inverse_rms(h, eps)
    n = _normed(h, inverse, norm_w)
    return _Middle(h, inverse, F.linear(n, gate_w, gate_b), F.linear(n, up_w, up_b))


def _finish(*given: Any) -> Tensor:
    """h + down(silu(gate(n)) up(n)) with h = x + o(attention) and n = norm(h), in place."""
    middle = _before_gate(*given[:-2])
    acted = F.silu(middle.gate, inplace=True).mul_(middle.up)
    return _add_linear(middle.h, acted, *given[-2:])


class _Finish(torch.autograd.Function):
    """`_finish` with a backward that makes norm and gate again."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        _, mixed, o_w, o_b, norm_w, _, gate_w, gate_b, up_w, up_b, down_w, down_b = given
        h, inverse, gate, up = _before_gate(*given[:-2])
        ctx.save_for_backward(
            mixed,
            o_w,
            o_b,
            h,
            inverse,
            norm_w,
            gate,
            gate_w,
            gate_b,
            up,
            up_w,
            up_b,
            down_w,
            down_b,
        )
        return _add_linear(h, F.silu(gate).mul_(up), down_w, down_b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (
            mixed,
            o_w,
            o_b,
            h,
            inverse,
            norm_w,
            gate,
            gate_w,
            gate_b,
            up,
            up_w,
            up_b,
            down_w,
            down_b,
        ) = ctx.saved_tensors
        g, needs = grads[0].contiguous(), ctx.needs_input_grad
        g_acted = g @ down_w
        acted = F.silu(gate)
        g_up = g_acted * acted
        d_down = _linear_backward(g, acted.mul_(up), down_b, needs[10])
        g_gate = torch.ops.aten.silu_backward(g_acted.mul_(up), gate)
        n = _normed(h, inverse, norm_w)
        d_gate = _linear_backward(g_gate, n, gate_b, needs[6])
        d_up = _linear_backward(g_up, n, up_b, needs[8])
        dh, d_norm = _norm_backward((g_gate @ gate_w).addmm_(g_up, up_w), h, inverse, norm_w)
        dh += g
        d_o = _linear_backward(dh, mixed, o_b, needs[2])
        return dh, dh @ o_w, *d_o, d_norm, None, *d_gate, *d_up, *d_down


def _add_linear(x: Tensor, a: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x + a W^T + b, the sum within the product."""
    out = torch.addmm(x, a, weight.t())
    return out if bias is None else out.add_(bias)


def _linear_backward(
    g: Tensor, x: Tensor, bias: Tensor | None, wanted: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a projection's weight and bias."""
    if not wanted:
        return None, None
    return g.t() @ x, None if bias is None else g.sum(0)
