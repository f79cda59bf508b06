"""Attention of answers to their group's prompt and to themselves, without holding the weights.

A token t of an answer attends to the C tokens of its prompt and to tokens 0 ... t of its own:

    out_t = softmax([q_t K_prompt^T, q_t K_own^T] * scale) [V_prompt; V_own]

The two parts are computed apart and joined by the logarithms of their sums of exponentials:

    L = logaddexp(L_prompt, L_own),  out = e^(L_prompt - L) out_prompt + e^(L_own - L) out_own

Only q, k, v, out and L are kept for the backward pass, a number per token and head beside what
the projections hold anyway: the weights are made again, some rows at a time, from

    P = exp(q K^T * scale - L),  dS = P * (dout V^T - sum(dout * out))

which holds for each part with the joint L and out (Dao 2023, arXiv:2307.08691, sec. 3.1; for
several parts Liu et al. 2023, arXiv:2310.01889). Memory grows with the tokens, never with tokens
times reach.

Axes:  G groups · B blocks (brorl.policy.blocks) · R rows (answers) · T own tokens, padded
       M real tokens, row after row · H heads · K key-value heads · S query heads of a key-value
       head · D width of a head · C prompt tokens
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brorl.policy.blocks import Blocks

CPU_ELEMENTS = 1 << 17
"""Scores made at once on the CPU, in numbers: 512 KiB of float32, so that they stay in cache."""
GPU_ELEMENTS = 1 << 26
"""The same elsewhere: 256 MiB of float32, so that kernels are large."""


LOG2_E = math.log2(math.e)
"""Powers of 2 take a third of the time of powers of e on a CPU: exponents come multiplied by it."""


class Rows:
    """Tokens of ragged rows, one after another, and the same rows padded on the right.

    Args:
        lengths_R: int64 [R], tokens per row, each >= 1.

    Attributes:
        columns: T, of the longest row.
    """

    def __init__(self, lengths_R: Tensor) -> None:
        self.rows, self.columns = len(lengths_R), int(lengths_R.max())
        self._index_RT = self._place_M = None
        if int(lengths_R.min()) != self.columns:
            steps = torch.arange(self.columns, device=lengths_R.device)
            start_R1 = (lengths_R.cumsum(0) - lengths_R)[:, None]
            # Padding repeats the row's last token; under the causal mask no real token sees it.
            self._index_RT = start_R1 + steps.minimum(lengths_R[:, None] - 1)
            self._place_M = (steps < lengths_R[:, None]).flatten().nonzero()[:, 0]

    def pad(self, x_MKSD: Tensor) -> Tensor:
        """[M, K, S, D] to [R, K, S, T, D]; padding holds any numbers."""
        x = x_MKSD if self._index_RT is None else x_MKSD[self._index_RT]
        return x.reshape(self.rows, self.columns, *x_MKSD.shape[1:]).permute(0, 2, 3, 1, 4)

    def pad_zero(self, x_MKSD: Tensor) -> Tensor:
        """`pad` with zeros for padding: gradients of what nobody reads."""
        if self._place_M is None:
            return self.pad(x_MKSD)
        spread = x_MKSD.new_zeros(self.rows * self.columns, *x_MKSD.shape[1:])
        spread.index_copy_(0, self._place_M, x_MKSD)
        return spread.view(self.rows, self.columns, *x_MKSD.shape[1:]).permute(0, 2, 3, 1, 4)

    def flat(self, x_RKSTD: Tensor) -> Tensor:
        """The inverse of `pad`."""
        x = x_RKSTD.permute(0, 3, 1, 2, 4).reshape(-1, *x_RKSTD.shape[1:3], x_RKSTD.shape[4])
        return x if self._place_M is None else x.index_select(0, self._place_M)


class Part(NamedTuple):
    """Attention over some of the keys, and the logarithm of its sum of powers."""

    out: Tensor
    log_sum: Tensor  # to base 2, float32 or wider, as `out` with a width of 1


def joint_attention(
    q_MHD: Tensor,
    k_MKD: Tensor,
    v_MKD: Tensor,
    prompt_k_GKCD: Tensor,
    prompt_v_GKCD: Tensor,
    blocks: Blocks,
    rows: Rows,
    *,
    scale: float,
    elements: int | None = None,
) -> Tensor:
    """[M, H, D]: see the module. Differentiable in all five tensors.

    Args:
        q_MHD: of the answers' tokens, row after row, rows in order of their groups.
        k_MKD: keys of the same tokens; H is a multiple of K.
        v_MKD: values.
        prompt_k_GKCD: keys of each group's prompt, padded on the right.
        prompt_v_GKCD: values.
        blocks: of the M tokens by group.
        rows: of the M tokens by answer.
        scale: of the scores.
        elements: scores made at once; default: by the device.
    """
    if elements is None:
        elements = CPU_ELEMENTS if q_MHD.device.type == "cpu" else GPU_ELEMENTS
    out: Tensor = _Joint.apply(  # type: ignore[no-untyped-call]  # torch's
        q_MHD, k_MKD, v_MKD, prompt_k_GKCD, prompt_v_GKCD, blocks, rows, scale, elements
    )
    return out


class _Joint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_MHD: Tensor,
        k_MKD: Tensor,
        v_MKD: Tensor,
        prompt_k: Tensor,
        prompt_v: Tensor,
        blocks: Blocks,
        rows: Rows,
        scale: float,
        elements: int,
    ) -> Tensor:
        kv_heads = k_MKD.shape[1]
        q = (q_MHD * (scale * LOG2_E)).view(len(q_MHD), kv_heads, -1, q_MHD.shape[2])
        prompt = _to_prompt(blocks, q, prompt_k, prompt_v, elements)
        own = _to_own(rows, q, k_MKD[:, :, None], v_MKD[:, :, None], elements)
        out, log_sum = join(prompt, own)
        ctx.save_for_backward(q_MHD, k_MKD, v_MKD, prompt_k, prompt_v, out, log_sum)
        ctx.blocks, ctx.rows, ctx.scale, ctx.elements = blocks, rows, scale, elements
        return out.reshape(*q_MHD.shape[:2], v_MKD.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        q_MHD, k_MKD, v_MKD, prompt_k, prompt_v, out, log_sum = ctx.saved_tensors
        q = (q_MHD * (ctx.scale * LOG2_E)).view(*out.shape[:3], -1)
        g = grads[0].reshape(out.shape)
        delta = (g.to(wide(g)) * out).sum(-1, keepdim=True)
        dq, d_prompt_k, d_prompt_v = _from_prompt(
            ctx.blocks, q, prompt_k, prompt_v, g, log_sum, delta, ctx.elements
        )
        own = _from_own(
            ctx.rows, q, k_MKD[:, :, None], v_MKD[:, :, None], g, log_sum, delta, ctx.elements
        )
        dq = dq.add_(own[0]).mul_(ctx.scale).reshape(q_MHD.shape)
        return dq, own[1][:, :, 0], own[2][:, :, 0], d_prompt_k, d_prompt_v, None, None, None, None


def _to_prompt(
    blocks: Blocks, q_MKSD: Tensor, k_GKCD: Tensor, v_GKCD: Tensor, elements: int
) -> Part:
    q, k, v = blocks.into(q_MKSD), blocks.of_blocks(k_GKCD), blocks.of_blocks(v_GKCD)
    out = q.new_empty(*q.shape[:3], v.shape[3])
    log_sum = torch.empty(*q.shape[:3], 1, dtype=wide(q), device=q.device)
    for b, s in _pieces(q.shape, k.shape[2], elements):
        scores = _scores(q[b, :, s], k[b])
        if blocks.padding_B11C is not None:
            scores.masked_fill_(blocks.padding_B11C[b], float("-inf"))
        out[b, :, s], log_sum[b, :, s] = softmax(scores, v[b])
    return Part(blocks.out_of(out), blocks.out_of(log_sum))


def _from_prompt(
    blocks: Blocks,
    q_MKSD: Tensor,
    k_GKCD: Tensor,
    v_GKCD: Tensor,
    g_MKSD: Tensor,
    log_sum: Tensor,
    delta: Tensor,
    elements: int,
) -> tuple[Tensor, Tensor, Tensor]:
    q, g, log_sum, delta = (blocks.into(x) for x in (q_MKSD, g_MKSD, log_sum, delta))
    k, v = blocks.of_blocks(k_GKCD), blocks.of_blocks(v_GKCD)
    dq = torch.empty_like(q)
    dk, dv = (torch.zeros(x.shape, dtype=wide(x), device=x.device) for x in (k, v))
    for b, s in _pieces(q.shape, k.shape[2], elements):
        part = q[b, :, s], k[b], v[b], g[b, :, s], log_sum[b, :, s], delta[b, :, s]
        padding = None if blocks.padding_B11C is None else blocks.padding_B11C[b]
        dq[b, :, s], more_k, more_v = _gradients(*part, padding=padding)
        dk[b] += more_k
        dv[b] += more_v
    groups = len(k_GKCD)
    return (
        blocks.out_of(dq),
        blocks.to_groups(dk, groups).to(k.dtype),
        blocks.to_groups(dv, groups).to(v.dtype),
    )


def _to_own(rows: Rows, q_MKSD: Tensor, k_MK1D: Tensor, v_MK1D: Tensor, elements: int) -> Part:
    q, k, v = rows.pad(q_MKSD), rows.pad(k_MK1D)[:, :, 0], rows.pad(v_MK1D)[:, :, 0]
    out = q.new_empty(*q.shape[:4], v.shape[3])
    log_sum = torch.empty(*q.shape[:4], 1, dtype=wide(q), device=q.device)
    for r, t in _own_pieces(q.shape, elements):
        scores = _scores(_seats(q[r, :, :, t]), k[r, :, : t.stop])
        shape = q[r, :, :, t].shape[:4]
        scores.view(*shape, -1).add_(_future(t, scores))
        part, sums = softmax(scores, v[r, :, : t.stop])
        out[r, :, :, t], log_sum[r, :, :, t] = part.view(*shape, -1), sums.view(*shape, 1)
    return Part(rows.flat(out), rows.flat(log_sum))


def _from_own(
    rows: Rows,
    q_MKSD: Tensor,
    k_MK1D: Tensor,
    v_MK1D: Tensor,
    g_MKSD: Tensor,
    log_sum: Tensor,
    delta: Tensor,
    elements: int,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = rows.pad(q_MKSD), rows.pad(k_MK1D)[:, :, 0], rows.pad(v_MK1D)[:, :, 0]
    g, log_sum, delta = rows.pad_zero(g_MKSD), rows.pad(log_sum), rows.pad_zero(delta)
    dq = q.new_empty(q.shape)
    dk, dv = (torch.zeros(x.shape, dtype=wide(x), device=x.device) for x in (k, v))
    for r, t in _own_pieces(q.shape, elements):
        shape = q[r, :, :, t].shape
        piece = [_seats(x[r, :, :, t]) for x in (q, g, log_sum, delta)]
        part, more_k, more_v = _gradients(
            piece[0],
            k[r, :, : t.stop],
            v[r, :, : t.stop],
            *piece[1:],
            future=_future(t, q),
            seats=shape[:4],
        )
        dq[r, :, :, t] = part.view(shape)
        dk[r, :, : t.stop] += more_k
        dv[r, :, : t.stop] += more_v
    k_grad, v_grad = (rows.flat(x[:, :, None]).to(q.dtype) for x in (dk, dv))
    return rows.flat(dq), k_grad, v_grad


def _pieces(shape: torch.Size, keys: int, elements: int) -> Iterator[tuple[slice, slice]]:
    """(blocks, seats) such that blocks * K * seats * keys stays within `elements`."""
    blocks, kv_heads, seats, _ = shape
    seats_at_once = min(seats, max(1, elements // (kv_heads * keys)))
    blocks_at_once = max(1, elements // (kv_heads * keys * seats))
    for b in range(0, blocks, blocks_at_once):
        for s in range(0, seats, seats_at_once):
            yield slice(b, b + blocks_at_once), slice(s, s + seats_at_once)


def _own_pieces(shape: torch.Size, elements: int) -> Iterator[tuple[slice, slice]]:
    """(rows, own tokens): whole rows while they fit, else parts of one row's tokens."""
    rows, kv_heads, seats, columns, _ = shape
    rows_at_once = max(1, elements // (kv_heads * seats * columns**2))
    tokens_at_once = min(columns, max(1, elements // (kv_heads * seats * columns)))
    if rows_at_once > 1 or tokens_at_once == columns:
        tokens_at_once = columns
    for r in range(0, rows, rows_at_once):
        for t in range(0, columns, tokens_at_once):
            yield (
                slice(r, r + rows_at_once),
                slice(t, min(t + tokens_at_once, columns)),
            )


def wide(x: Tensor) -> torch.dtype:
    """The dtype that sums over many numbers like these are made in: float32 or wider."""
    return torch.promote_types(x.dtype, torch.float32)


def _seats(x_RKSTD: Tensor) -> Tensor:
    """[R, K, S, T, D] to [R, K, S * T, D]."""
    return x_RKSTD.reshape(*x_RKSTD.shape[:2], -1, x_RKSTD.shape[4])


def _future(t: slice, like: Tensor) -> Tensor:
    """[tokens of t, keys up to its end]: -inf where a key comes after the token, else 0.

    It is added: filling by a mask takes ten times as long on a CPU.
    """
    hidden = like.new_full((t.stop - t.start, t.stop), float("-inf"), dtype=wide(like))
    return hidden.triu_(t.start + 1)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """q k^T, at least float32; q is scaled, by log2 e too where a power of 2 is taken of it."""
    return (q @ k.transpose(-1, -2)).to(wide(q))


def softmax(scores: Tensor, v: Tensor) -> Part:
    """2^scores v over the sum of 2^scores, and the sum's log to base 2; overwrites `scores`."""
    scores = scores.to(wide(scores))
    most = scores.amax(-1, keepdim=True)
    scores.sub_(most).exp2_()
    total = scores.sum(-1, keepdim=True)
    out = (scores.to(v.dtype) @ v).div_(total)
    return Part(out, total.log2_().add_(most))


def join(first: Part, second: Part) -> Part:
    """Attention over the keys of two parts; `first.out` is overwritten."""
    log_sum = torch.logaddexp2(first.log_sum, second.log_sum)
    out = first.out.mul_((first.log_sum - log_sum).exp2_())
    share = (second.log_sum - log_sum).exp2_().to(out.dtype)
    return Part(out.addcmul_(second.out, share), log_sum)


def _gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    log_sum: Tensor,
    delta: Tensor,
    *,
    padding: Tensor | None = None,
    future: Tensor | None = None,
    seats: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q · scale, k and v over one part of the keys; q comes scaled by log2 e too."""
    p = _scores(q, k)
    if padding is not None:
        p.masked_fill_(padding, float("-inf"))
    if future is not None:
        p.view(*seats, -1).add_(future)
    p.sub_(log_sum).exp2_()
    ds = _scores(g, v).sub_(delta).mul_(p).to(q.dtype)
    dv = p.to(v.dtype).transpose(-1, -2) @ g
    return ds @ k, (ds.transpose(-1, -2) @ q).div_(LOG2_E), dv
