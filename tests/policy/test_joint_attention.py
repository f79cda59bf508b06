"""Attention in pieces against one softmax and autograd: values, gradients, any size of piece."""

import pytest
import torch

from brorl.policy.blocks import Blocks
from brorl.policy.joint_attention import Rows, joint_attention

from .small_models import Sizes

K, S, D = 2, 3, 4
SCALE = 0.6


def given(counts, prompts, lengths, seed=0):
    """Leaves q, k, v of ragged answers, prompt keys and values with poison as padding, layout."""
    g = torch.Generator().manual_seed(seed)
    m = sum(lengths)
    shapes = [(m, K * S, D), (m, K, D), (m, K, D)] + [(len(prompts), K, max(prompts), D)] * 2
    leaves = [torch.randn(*s, generator=g, dtype=torch.float64) for s in shapes]
    for i, c in enumerate(prompts):
        for x in leaves[3:]:
            x[i, :, c:] = 1e3
    group_R = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    lengths_R = torch.tensor(lengths)
    group_M = torch.repeat_interleave(group_R, lengths_R)
    layout = Blocks(torch.tensor(prompts), group_M), Rows(lengths_R)
    return [x.requires_grad_() for x in leaves], layout, group_R.tolist()


def one_softmax(leaves, groups, prompts, lengths):
    """Oracle: a row at a time, one softmax over prompt and own keys, differentiated by autograd."""
    q, k, v, pk, pv = leaves
    out, start = [], 0
    for g, n in zip(groups, lengths, strict=True):
        rows = slice(start, start + n)
        keys = torch.cat([pk[g, :, : prompts[g]], k[rows].transpose(0, 1)], dim=1)
        values = torch.cat([pv[g, :, : prompts[g]], v[rows].transpose(0, 1)], dim=1)
        keys, values = (x.repeat_interleave(S, dim=0) for x in (keys, values))
        scores = q[rows].transpose(0, 1) @ keys.transpose(1, 2) * SCALE
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        scores[:, :, prompts[g] :] = scores[:, :, prompts[g] :].masked_fill(future, -torch.inf)
        out.append((scores.softmax(-1) @ values).transpose(0, 1))
        start += n
    return torch.cat(out)


CASES = {
    "ragged": ([3, 1, 2], [4, 7, 1], [5, 1, 3, 6, 2, 2]),
    "equal": ([2, 2], [3, 3], [4, 4, 4, 4]),
    "a wide group beside narrow ones": ([20, 1, 1], [5, 2, 3], [1, 2] * 11),
    "a group without a row": ([2, 0, 1], [2, 5, 3], [3, 1, 4]),
}


@pytest.mark.parametrize("elements", [1, 13, 64, 1 << 20])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_one_softmax(case, elements):
    """Oracle in float64, from one score at a time to all at once; padding of prompts is poison."""
    counts, prompts, lengths = CASES[case]
    leaves, (blocks, rows), groups = given(counts, prompts, lengths)
    got = joint_attention(*leaves, blocks, rows, scale=SCALE, elements=elements)
    want = one_softmax(leaves, groups, prompts, lengths)
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)
    weight = torch.randn(want.shape, generator=torch.Generator().manual_seed(1)).double()
    mine = torch.autograd.grad((got * weight).sum(), leaves)
    theirs = torch.autograd.grad((want * weight).sum(), leaves)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_large_scores_do_not_overflow():
    """Oracle: scores of thousands, where exp alone is infinite."""
    counts, prompts, lengths = CASES["ragged"]
    leaves, (blocks, rows), groups = given(counts, prompts, lengths)
    with torch.no_grad():
        leaves[0] *= 2000
    got = joint_attention(*leaves, blocks, rows, scale=SCALE)
    torch.testing.assert_close(got, one_softmax(leaves, groups, prompts, lengths))


def test_weights_are_never_held():
    """Bound: 3 answers of 300 tokens after a prompt of 200. Weights of all tokens and heads would
    be 900 x 6 x 200 and more; the largest tensor made, forward and back, is q itself or a piece."""
    leaves, (blocks, rows), _ = given([3], [200], [300] * 3)
    with Sizes() as sizes:
        out = joint_attention(*leaves, blocks, rows, scale=SCALE, elements=20_000)
        out.sum().backward()
    assert sizes.largest <= max(20_000 + 6 * 300, 900 * K * S * D) < 900 * K * S * 200
