"""The same code with one of its pieces taken out, or put in: what each of them is worth."""

import dataclasses

import torch


def take_out(name):
    """Change the modules of this process, before anything is built from them."""
    PIECES[name]()


def _fused_layer():
    from brorl.policy import fused_layer

    fused_layer._is_plain = lambda layer: False


def _joint_attention():
    from brorl.policy import shared_prefix

    pieces = shared_prefix.joint_attention

    def attention(q, k, v, prompt_k, prompt_v, blocks, rows, *, scale):
        if len(prompt_k) == 1 and len(q) == rows.rows * rows.columns:
            return _one_softmax(q, k, v, prompt_k, prompt_v, rows, scale)
        return pieces(q, k, v, prompt_k, prompt_v, blocks, rows, scale=scale)  # the loader's check

    shared_prefix.joint_attention = attention


def _one_softmax(q, k, v, prompt_k, prompt_v, rows, scale):
    """One softmax over prompt and own keys, its weights kept: one group, equally long rows."""
    kv_heads, width = k.shape[1], q.shape[2]
    # [R, T, K, S, D] to [R, K, S, T, D], and keys to [R, K, 1, T, D].
    q = q.view(rows.rows, rows.columns, kv_heads, -1, width).permute(0, 2, 3, 1, 4)
    k, v = (x.view(rows.rows, rows.columns, kv_heads, 1, -1).permute(0, 2, 3, 1, 4) for x in (k, v))
    on_prompt = q @ prompt_k[0][:, None].transpose(-1, -2) * scale
    on_own = q @ k.transpose(-1, -2) * scale
    future = torch.ones(rows.columns, rows.columns, dtype=torch.bool).triu(1)
    on_own = on_own.masked_fill(future, float("-inf"))
    weights = torch.cat([on_prompt, on_own], dim=-1).softmax(-1)
    to_prompt, to_own = weights.split([on_prompt.shape[-1], rows.columns], dim=-1)
    out = to_prompt @ prompt_v[0][:, None] + to_own @ v
    return out.permute(0, 3, 1, 2, 4).reshape(rows.rows * rows.columns, -1, v.shape[-1])


def _kept_memory():
    from brorl.policy import load

    load.keep_freed_memory = lambda: False


def _compaction():
    from brorl.rollout import embedded

    embedded._COMPACT_BELOW = 0.0


def _repeats():
    from brorl.rollout import stems
    from brorl.train import batch

    numbers = iter(range(1 << 60))
    stems.APART = 0.0
    batch._answer = lambda row: (row.group, next(numbers).to_bytes(8, "big"))


def _one_grading():
    from brorl.verify.pool_ledger import Ledger

    once, numbers = Ledger._grade_once, iter(range(1 << 60))

    def each(self, context, answer, ticket):
        other = dataclasses.replace(context, problem_id=str(next(numbers)))
        once(self, other, answer, ticket)

    Ledger._grade_once = each


def _compiled():
    """The other way round: passes of the fused layer between its products made by a compiler."""
    from brorl.policy import layer_halves

    for name in ("_inverse_rms", "_normed", "_norm_backward", "rotate"):
        compiled = torch.compile(getattr(layer_halves, name), dynamic=True)
        setattr(layer_halves, name, compiled)


PIECES = {
    "fused layer": _fused_layer,
    "joint attention": _joint_attention,
    "kept memory": _kept_memory,
    "compaction": _compaction,
    "repeats": _repeats,
    "one grading": _one_grading,
    "compiled": _compiled,
}
