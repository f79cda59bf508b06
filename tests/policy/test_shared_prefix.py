"""The attention of a group alone: against a loop over rows, and what it may not copy."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.errors import PolicyError
from brorl.policy import shared_prefix
from brorl.policy.blocks import Blocks, block_size
from brorl.policy.shared_prefix import (
    AnswerReader,
    NextReader,
    OwnCache,
    PromptReader,
    shared_attention,
)

from .small_models import policy_of

HEADS, KV, WIDTH = 4, 2, 3
SCALE = 0.7


def tensors(seed, *shapes):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(*s, generator=g, dtype=torch.float64) for s in shapes]


def reader_of(prompt_lengths, seed=0):
    """A PromptReader that holds one layer of random keys and values, padding filled with 1e6."""
    reader = PromptReader()
    longest = max(prompt_lengths)
    k, v = tensors(seed, *[(len(prompt_lengths), KV, longest, WIDTH)] * 2)
    for g, c in enumerate(prompt_lengths):
        k[g, :, c:], v[g, :, c:] = 1e6, 1e6
    reader.keys_LGKCD, reader.values_LGKCD = [k], [v]
    return reader


def loop(prompts, lengths, groups, q, k, v, first):
    """Attention of every row, head and token by itself: all of the prompt, own tokens up to t.

    first: the own position of the first query, where k and v hold earlier tokens too.
    """
    out = torch.zeros(*q.shape[:3], WIDTH, dtype=torch.float64)
    for r, g in enumerate(groups):
        for h in range(HEADS):
            kv = h // (HEADS // KV)
            for t in range(q.shape[2]):
                c, own = lengths[g], first + t + 1
                keys = torch.cat([prompts.keys_LGKCD[0][g, kv, :c], k[r, kv, :own]])
                values = torch.cat([prompts.values_LGKCD[0][g, kv, :c], v[r, kv, :own]])
                weight = [math.exp(SCALE * float(q[r, h, t] @ key)) for key in keys]
                total = sum(weight)
                for w, value in zip(weight, values, strict=True):
                    out[r, h, t] += w / total * value
    return out


LAYOUTS = {
    "even": ([2, 2], [3, 3]),
    "uneven groups and prompts": ([3, 1, 5], [2, 4, 1]),
    "one group": ([4], [3]),
    "groups without rows": ([0, 2, 0, 1], [3, 2, 5, 4]),
    "blocks of a wide group": ([40, 1, 1, 1], [2, 3, 1, 2]),
}


def whole_answers(prompts, lengths, groups, q, k, v):
    """AnswerReader on answers of equal length [R, heads, T, D], which it reads flat."""
    rows, _, tokens, _ = q.shape
    flat = (x.transpose(0, 1).reshape(1, x.shape[1], -1, WIDTH) for x in (q, k, v))
    reader = AnswerReader(
        prompts, torch.tensor(lengths), torch.tensor(groups), torch.full((rows,), tokens)
    )
    out = reader.attend(0, *flat, SCALE)
    return out.view(HEADS, rows, tokens, WIDTH).transpose(0, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_answers_attend_like_a_loop(layout):
    """Oracle: softmax by hand in float64, the padding of prompts filled with a poison."""
    counts, lengths = LAYOUTS[layout]
    groups = [g for g, n in enumerate(counts) for _ in range(n)]
    prompts = reader_of(lengths)
    q, k, v = tensors(1, (len(groups), HEADS, 3, WIDTH), *[(len(groups), KV, 3, WIDTH)] * 2)
    got = whole_answers(prompts, lengths, groups, q, k, v)
    want = loop(prompts, lengths, groups, q, k, v, first=0)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("few", [0, 3, 16])
def test_token_by_token_is_the_whole_answer_and_survives_rows_that_leave(few, monkeypatch):
    """Identity, with both forms of the softmax and from one to the other: one token a time through a cache, rows leaving in between, gives what the whole
    answers give at once for the rows that stay."""
    monkeypatch.setattr(shared_prefix, "FEW_ROWS", few)
    counts, lengths = LAYOUTS["uneven groups and prompts"]
    groups = torch.tensor([g for g, n in enumerate(counts) for _ in range(n)])
    prompts, lengths_G = reader_of(lengths), torch.tensor(lengths)
    q, k, v = tensors(2, (9, HEADS, 4, WIDTH), *[(9, KV, 4, WIDTH)] * 2)
    whole = whole_answers(prompts, lengths, groups.tolist(), q, k, v)
    own, alive = OwnCache(capacity=5), torch.arange(9)
    for t, leaving in enumerate([[], [1, 3], [0, 2, 8], [4]]):
        if leaving:
            stay = torch.tensor([i for i, r in enumerate(alive.tolist()) if r not in leaving])
            alive = alive[stay]
            own.keep(stay)
        reader = NextReader(prompts, lengths_G, groups[alive], own)
        at = slice(t, t + 1)
        got = reader.attend(0, q[alive, :, at], k[alive, :, at], v[alive, :, at], SCALE)
        own.length += 1
        torch.testing.assert_close(got, whole[alive][:, :, at], rtol=1e-9, atol=1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
def test_blocks_lose_no_row_and_mix_no_groups(counts):
    """Identity: out of the blocks and back is the same, and each block meets one prompt only."""
    groups = torch.tensor([g for g, n in enumerate(counts) for _ in range(n)])
    blocks = Blocks(torch.ones(len(counts), dtype=torch.int64), groups)
    (x,) = tensors(3, (len(groups), KV, 2, WIDTH))
    assert torch.equal(blocks.out_of(blocks.into(x)), x)
    marked = blocks.into(groups.double()[:, None, None, None] + torch.ones(KV, 2, 1))
    named = marked.amax(dim=(1, 2, 3)) - 1  # padding is 0
    ids = torch.arange(len(counts), dtype=torch.float64)[:, None, None, None]
    assert torch.equal(named, blocks.of_blocks(ids)[:, 0, 0, 0])


def test_block_sizes_by_hand():
    """cost = blocks * (size + 16).

    [512] + 31 x [16]: 512 gives 32 * 528 = 16,896; 16 gives (32 + 31) * 32 = 2,016; 8 gives
    126 * 24 = 3,024; 32 gives (16 + 31) * 48 = 2,256. Equal groups: one block each.
    """
    assert block_size([512] + [16] * 31) == 16
    assert block_size([512] * 8) == 512
    assert block_size([1] * 8) == 1
    assert block_size([64, 0, 63]) == 64


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=40).filter(any))
def test_uneven_groups_cost_what_their_rows_do(counts):
    """Bound: halving passes a size s in [8, 16], or starts below it; there the cost is at most
    (rows / s + groups) * (s + 16) <= 3 rows + 32 groups, and what is held costs less than that."""
    size = block_size(counts)
    held = sum(-(-n // size) for n in counts) * size
    assert held <= 3 * sum(counts) + 32 * len(counts)


def test_even_groups_read_the_prompt_where_it_lies():
    """Nothing is copied: the keys that are read are the keys that were written."""
    keys = reader_of([2, 3]).keys_LGKCD[0]
    assert Blocks(torch.tensor([2, 3]), torch.tensor([0, 0, 1, 1])).of_blocks(keys) is keys


def test_more_than_one_token_a_time_is_refused():
    """Attack: the second would not see the first, whose key is not yet held."""
    q, k, v = tensors(4, (1, HEADS, 2, WIDTH), *[(1, KV, 2, WIDTH)] * 2)
    reader = NextReader(reader_of([2]), torch.tensor([2]), torch.tensor([0]), OwnCache(4))
    with pytest.raises(PolicyError, match="one token at a time, got 2"):
        reader.attend(0, q, k, v, SCALE)


def test_layers_out_of_order_are_refused():
    """Attack: a model that calls its layers twice would read another layer's prompt."""
    q, k, v = tensors(4, (1, HEADS, 2, WIDTH), *[(1, KV, 2, WIDTH)] * 2)
    reader = PromptReader()
    reader.attend(0, q, k, v, SCALE)
    with pytest.raises(PolicyError, match="layers must attend in order, got 0"):
        reader.attend(0, q, k, v, SCALE)


def test_attention_that_is_more_than_a_softmax_is_refused():
    """Attack: a mask, dropout or a soft cap that went by unnoticed would change log-probs."""
    policy = policy_of("llama")
    layer = policy.model.model.layers[0].self_attn
    from transformers import AttentionInterface

    attend = AttentionInterface()["brorl_shared_prefix"]
    q, k, v = tensors(5, (1, HEADS, 2, WIDTH), *[(1, KV, 2, WIDTH)] * 2)
    for extra, named in (
        ({"softcap": 30.0}, "softcap"),
        ({"s_aux": q}, "s_aux"),
        ({"dropout": 0.1}, "dropout or a mask"),
    ):
        with pytest.raises(PolicyError, match=named):
            attend(layer, q, k, v, None, reader=PromptReader(), scaling=1.0, **extra)
    with pytest.raises(PolicyError, match="dropout or a mask"):
        attend(layer, q, k, v, torch.zeros(1, 1, 2, 2), reader=PromptReader(), scaling=1.0)
    with pytest.raises(PolicyError, match="did not pass `reader`"):
        attend(layer, q, k, v, None, scaling=1.0)


def test_a_failure_inside_leaves_the_model_its_own_attention():
    """Attack: an exception in the middle must not leave the model without ordinary attention."""
    policy = policy_of("llama")
    before = policy.model.config._attn_implementation

    def broken():
        with shared_attention(policy.model):
            assert policy.model.config._attn_implementation != before
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        broken()
    assert policy.model.config._attn_implementation == before
