"""The two halves of a decoder layer around its attention, each with a backward of its own.

    project:  n = norm(x);  q, k = rotated W_q n, W_k n;  v = W_v n
    finish:   h = x + W_o mixed;  n = norm(h);  out = h + W_down (silu(W_gate n) · W_up n)

What is kept for the backward pass is told in `fused_layer`. The second half goes through its tokens
a piece at a time, forward and backward: what it needs beside the kept is as large as a piece.

Axes:  M tokens · H hidden · J width of all heads · F feed-forward · D width of a head
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from brorl.policy.joint_attention import CPU_ELEMENTS, GPU_ELEMENTS, wide

AT_ONCE = 4
"""Pieces of the second half, in CPU_ELEMENTS: as fast as larger ones, and 2 MiB of gates."""
LEAST_TOKENS = 512
"""Of a piece, whatever the width: every piece reads all weights again."""
Pair = tuple[Tensor | None, Tensor | None]
"""Gradients of a projection's weight and bias."""


def project(
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated q, rotated k, and v, [M, J] each, of norm(x).

    Args:
        x: [M, H].
        norm_w: [H]; with eps, of an RMS norm.
        eps: added to the mean square.
        q_w, k_w, v_w: [J, H].
        q_b, k_b, v_b: [J] or None.
        cos, sin: see `rotate`.
    """
    given = (x, norm_w, eps, q_w, q_b, k_w, k_b, v_w, v_b, cos, sin)
    if not torch.is_grad_enabled():
        return _project(*given)[:3]
    found: tuple[Tensor, Tensor, Tensor] = _Project.apply(*given)  # type: ignore[no-untyped-call]  # torch's
    return found


def finish(
    x: Tensor,
    mixed: Tensor,
    o_w: Tensor,
    o_b: Tensor | None,
    norm_w: Tensor,
    eps: float,
    gate_w: Tensor,
    gate_b: Tensor | None,
    up_w: Tensor,
    up_b: Tensor | None,
    down_w: Tensor,
    down_b: Tensor | None,
) -> Tensor:
    """The layer's output [M, H] from its input and its attention's [M, J]: see the module.

    Args:
        x: [M, H].
        mixed: [M, J].
        o_w: [H, J].
        norm_w: [H]; with eps, of an RMS norm.
        eps: added to the mean square.
        gate_w, up_w: [F, H].
        down_w: [H, F].
        o_b, gate_b, up_b, down_b: of the projection before, or None.
    """
    given = (x, mixed, o_w, o_b, norm_w, eps, gate_w, gate_b, up_w, up_b, down_w, down_b)
    if not torch.is_grad_enabled():
        return _finish(None, *given)
    out: Tensor = _Finish.apply(*given)  # type: ignore[no-untyped-call]  # torch's
    return out


def rotate(x_MJ: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (d, d + D / 2) of each head; with -sin the inverse.

    cos and sin: [M, 1, D], cos [c, c] and sin [-s, s] of the halves.
    """
    x = x_MJ.view(len(x_MJ), x_MJ.shape[1] // cos.shape[-1], cos.shape[-1])
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
    """Gradients of x and weight (float32): u = x · inverse, dx = inverse (g w - u mean(g w u))."""
    u = x_MH * inverse_M1
    gw = g_MH.to(u.dtype) * weight_H
    d_weight = (g_MH * u).sum(0)
    mean = torch.linalg.vecdot(gw, u).div_(x_MH.shape[-1])[:, None]
    dx = gw.addcmul_(u, mean, value=-1).mul_(inverse_M1)
    return dx.to(x_MH.dtype), d_weight


def _project(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`project`, and 1 / rms of x."""
    x, norm_w, eps, q_w, q_b, k_w, k_b, v_w, v_b, cos, sin = given
    inverse = _inverse_rms(x, eps)
    n = _normed(x, inverse, norm_w)
    q = rotate(F.linear(n, q_w, q_b), cos, sin)
    k = rotate(F.linear(n, k_w, k_b), cos, sin)
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
        gq, gk = (rotate(g.contiguous(), cos, -sin) for g in grads[:2])
        gv = grads[2]
        n = _normed(x, inverse, norm_w)
        gn = (gq @ q_w).addmm_(gk, k_w).addmm_(gv, v_w)
        dx, d_norm = _norm_backward(gn, x, inverse, norm_w)
        needs = ctx.needs_input_grad
        return (
            dx,
            d_norm.to(norm_w.dtype),
            None,
            *_linear_backward(gq, n, needs[3], q_b is not None and needs[4]),
            *_linear_backward(gk, n, needs[5], k_b is not None and needs[6]),
            *_linear_backward(gv, n, needs[7], v_b is not None and needs[8]),
            None,
            None,
        )


class _Kept(NamedTuple):
    """What the backward pass of the second half reads beside its inputs."""

    h: Tensor  # [M, H]
    inverse: Tensor  # [M, 1], 1 / rms of h
    gate: Tensor  # [M, F]
    up: Tensor  # [M, F]


def _finish(kept: _Kept | None, *given: Any) -> Tensor:
    """`finish`; what passes through is written to `kept`, or overwritten where that is None."""
    x, mixed, o_w, o_b, norm_w, eps, gate_w, gate_b, up_w, up_b, down_w, down_b = given
    out = torch.empty_like(x)
    for part in _pieces(x, len(gate_w)):
        to = _Kept(*(t[part] for t in kept)) if kept else None
        h = _linear(mixed[part], o_w, o_b, plus=x[part], out=to and to.h)
        inverse = _inverse_rms(h, eps)
        n = _normed(h, inverse, norm_w)
        gate = _linear(n, gate_w, gate_b, out=to and to.gate)
        up = _linear(n, up_w, up_b, out=to and to.up)
        if to:
            to.inverse.copy_(inverse)
        acted = F.silu(gate, inplace=to is None).mul_(up)
        _linear(acted, down_w, down_b, plus=h, out=out[part])
    return out


class _Finish(torch.autograd.Function):
    """`finish` with a backward that makes norm and gate again."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, mixed, o_w, o_b, norm_w, _, gate_w, gate_b, up_w, up_b, down_w, down_b = given
        gate, up = (x.new_empty(len(x), len(gate_w)) for _ in range(2))
        inverse = x.new_empty(len(x), 1, dtype=wide(x))
        kept = _Kept(torch.empty_like(x), inverse, gate, up)
        out = _finish(kept, *given)
        ctx.save_for_backward(mixed, o_w, norm_w, gate_w, up_w, down_w, *kept)
        ctx.biased = [b is not None for b in (o_b, gate_b, up_b, down_b)]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        mixed, o_w, norm_w, gate_w, up_w, down_w, *kept = ctx.saved_tensors
        needs = ctx.needs_input_grad
        d_o, d_gate, d_up, d_down = (
            _Sum(needs[i], biased and needs[i + 1])
            for i, biased in zip((2, 6, 8, 10), ctx.biased, strict=True)
        )
        d_norm = torch.zeros_like(norm_w, dtype=wide(norm_w))
        dx, d_mixed = torch.empty_like(kept[0]), torch.empty_like(mixed)
        for part in _pieces(dx, len(gate_w)):
            g = grads[0][part].contiguous()
            h, inverse, gate, up = (t[part] for t in kept)
            g_acted = g @ down_w
            acted = F.silu(gate)
            g_up = g_acted * acted
            d_down.add(g, acted.mul_(up))
            g_gate = torch.ops.aten.silu_backward(g_acted.mul_(up), gate)
            n = _normed(h, inverse, norm_w)
            d_gate.add(g_gate, n)
            d_up.add(g_up, n)
            gn = (g_gate @ gate_w).addmm_(g_up, up_w)
            dh, more = _norm_backward(gn, h, inverse, norm_w)
            d_norm += more
            dx[part] = dh.add_(g)
            d_o.add(dh, mixed[part])
            torch.mm(dh, o_w, out=d_mixed[part])
        pairs = (d_o.pair(), (d_norm.to(norm_w.dtype), None), d_gate.pair(), d_up.pair())
        return dx, d_mixed, *pairs[0], *pairs[1], *pairs[2], *pairs[3], *d_down.pair()


class _Sum:
    """Gradients of a projection, summed over pieces of the tokens.

    Sums over pieces are float32 or wider: in bfloat16 each addition would round to 8 bits.
    """

    def __init__(self, weight: bool, bias: bool) -> None:
        self._wanted, self._biased = weight, bias
        self._weight: Tensor | None = None
        self._bias: Tensor | None = None
        self._dtype = torch.float32

    def add(self, g_MO: Tensor, x_MI: Tensor) -> None:
        """A piece: gradient of the projection's output, and its input."""
        self._dtype = g_MO.dtype
        if not self._wanted:
            pass
        elif self._weight is None:
            self._weight = g_MO.t() @ x_MI
        elif g_MO.dtype == wide(g_MO):
            self._weight.addmm_(g_MO.t(), x_MI)
        else:
            self._weight = self._weight.to(wide(g_MO)).add_(g_MO.t() @ x_MI)
        if self._biased:
            more = g_MO.sum(0, dtype=wide(g_MO))
            self._bias = more if self._bias is None else self._bias.add_(more)

    def pair(self) -> Pair:
        """Of weight and bias; None for what is not wanted or not there."""
        weight = None if self._weight is None else self._weight.to(self._dtype)
        return weight, None if self._bias is None else self._bias.to(self._dtype)


def _pieces(like_MH: Tensor, width: int) -> Iterator[slice]:
    """Parts of the tokens such that tokens times width fits a cache, if they are not too short."""
    elements = AT_ONCE * CPU_ELEMENTS if like_MH.device.type == "cpu" else GPU_ELEMENTS
    tokens = max(LEAST_TOKENS, elements // width)
    for start in range(0, len(like_MH), tokens):
        yield slice(start, start + tokens)


def _linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    plus: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """x W^T + b + plus, the last within the product; written to `out` where given."""
    if plus is not None:
        made = torch.addmm(plus, x, weight.t(), out=out)
        return made if bias is None else made.add_(bias)
    if bias is None:
        return torch.mm(x, weight.t(), out=out)
    return torch.addmm(bias, x, weight.t(), out=out)


def _linear_backward(g: Tensor, x: Tensor, weight: bool, bias: bool) -> Pair:
    """Gradients of a projection's weight and bias, where wanted."""
    return g.t() @ x if weight else None, g.sum(0) if bias else None
