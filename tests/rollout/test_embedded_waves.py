"""Waves: the same samples however they are batched, prompts read once, memory within bounds."""

import dataclasses

import numpy as np
import pytest
import torch
from policy.small_models import Sizes, plain, policy_of

from brorl.errors import EngineError
from brorl.policy.shared_prefix import PromptReader
from brorl.rollout.embedded import EmbeddedEngine, rows_per_wave
from brorl.rollout.engine import Request, Sampling
from brorl.rollout.prompt_cache import PromptCache

WIDE = 1 << 30
EOS_IDS = (1, 7, 20)
PROMPTS = [(5,), (3, 4, 8, 9, 2, 6), (10, 11, 12)]
TOKENS = 8
HOW = Sampling(1.2, 1.0, 0, TOKENS)


def request(group, n, first=0):
    return Request(f"g{group}", f"problem-{group}", PROMPTS[group], first, n, seed=100 + group)


def budget_of(policy, rows, prompt=6):
    """A budget that allows this many rows a wave."""
    budget = rows * WIDE // rows_per_wave(policy, WIDE, prompt, TOKENS)
    while rows_per_wave(policy, budget, prompt, TOKENS) < rows:
        budget += 1
    assert rows_per_wave(policy, budget, prompt, TOKENS) == rows
    return budget


class Watched:
    """An engine, and (kind, rows) of every forward that its model runs."""

    def __init__(self, policy, budget=WIDE):
        self.engine = EmbeddedEngine(policy, memory_budget=budget)
        self.forwards = []

        def note(module, args, kwargs):
            kind = "prompt" if isinstance(kwargs["reader"], PromptReader) else "answer"
            self.forwards.append((kind, kwargs["input_ids"].shape[0]))

        policy.model.base_model.register_forward_pre_hook(note, with_kwargs=True)

    def rows(self, kind):
        return [rows for k, rows in self.forwards if k == kind]


def assert_same(got, want):
    """Same tokens and ends; log-probs up to float error."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        assert a.stop == b.stop
        np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def policy():
    return policy_of(eos=EOS_IDS)


@pytest.fixture(scope="module")
def whole(policy):
    """20 samples of each of three groups, all in one wave."""
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    return engine.sample([request(g, 20) for g in range(3)], HOW)


@pytest.mark.parametrize("rows", [2, 7, 20, 32])
def test_waves_of_any_size_give_the_same_samples(policy, whole, rows):
    """Identity: two rows at a time, odd cuts through groups, a group a wave, more than a group."""
    watched = Watched(policy, budget_of(policy, rows))
    groups = watched.engine.sample([request(g, 20) for g in range(3)], HOW)
    for got, want in zip(groups, whole, strict=True):
        assert_same(got, want)
    assert max(watched.rows("answer")) <= rows


def test_a_group_grows_in_waves(policy, whole):
    """Identity: 8, then 3, then 9 more are the 20 asked for at once, beside others or alone."""
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    a = engine.sample([request(1, 8), request(0, 3)], HOW)
    b = engine.sample([request(1, 3, first=8)], HOW)
    c = engine.sample([request(2, 9), request(1, 9, first=11)], HOW)
    assert_same([*a[0], *b[0], *c[1]], whole[1])
    assert_same(a[1], whole[0][:3])
    assert_same(c[0], whole[2][:9])


def test_a_group_may_come_in_two_requests_of_one_call(policy, whole):
    """Identity, and a count: its prompt is encoded once."""
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    a, b = engine.sample([request(1, 5), request(1, 15, first=5)], HOW)
    assert_same([*a, *b], whole[1])
    assert engine.prompts_encoded == 1


def test_on_finished_hands_over_every_sample_once_in_place(policy, whole):
    """Identity: what is handed over part by part, put where it says, is what is returned."""
    engine = EmbeddedEngine(policy, memory_budget=budget_of(policy, 9))
    parts = []
    groups = engine.sample(
        [request(g, 20) for g in range(3)], HOW, lambda *part: parts.append(part)
    )
    assert len(parts) > 3
    for index, group in enumerate(groups):
        placed = {}
        for i, offset, completions in parts:
            if i == index:
                placed |= {offset + j: c for j, c in enumerate(completions)}
        assert [placed[i] for i in range(20)] == group
        assert sum(len(c) for i, _, c in parts if i == index) == 20
        assert_same(group, whole[index])


def test_prompts_are_encoded_once_over_all_waves(policy):
    """Count: three prompts, six waves of 10 rows and a later one: three encodings, and no
    forward of a prompt for any row."""
    watched = Watched(policy, budget_of(policy, 10))
    watched.engine.sample([request(g, 20) for g in range(3)], HOW)
    watched.engine.sample([request(g, 4, first=20) for g in range(3)], HOW)
    assert sum(watched.rows("prompt")) == watched.engine.prompts_encoded == 3


def test_forgotten_groups_are_encoded_again(policy):
    """Count: forget drops the groups that are named, or all."""
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    requests = [request(g, 2) for g in range(3)]
    for forget, more in (([], 3), (["g1"], 1), (["g0", "g2", "unknown"], 2), (None, 3)):
        before = engine.prompts_encoded
        if forget != []:
            engine.forget(forget)
        engine.sample(requests, HOW)
        assert engine.prompts_encoded - before == more


def perturb(policy, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in policy.model.parameters():
            p += 0.1 * torch.randn(p.shape, generator=g)


def test_no_cache_survives_an_update():
    """Attack: the weights change between two waves of a group. After weights_changed, log-probs
    are those of the new weights, and samples carry their version; without it the old prompt would
    still be read, which is shown too, so this test can fail."""
    policy = policy_of(eos=EOS_IDS)
    engine = EmbeddedEngine(policy, memory_budget=WIDE, policy_version=4)

    def worst(completions):
        with torch.no_grad():
            return max(
                float(
                    (
                        torch.from_numpy(np.array(c.logprobs))
                        - plain(policy, PROMPTS[1], c.tokens.tolist(), HOW.temperature)[0]
                    )
                    .abs()
                    .max()
                )
                for c in completions
            )

    (old,) = engine.sample([request(1, 6)], HOW)
    assert worst(old) < 1e-5
    perturb(policy, 1)
    (stale,) = engine.sample([request(1, 6, first=6)], HOW)
    assert worst(stale) > 1e-2
    engine.weights_changed(5)
    (new,) = engine.sample([request(1, 6, first=12)], HOW)
    assert worst(new) < 1e-5
    assert [c.policy_version for c in (*old, *new)] == [4] * 6 + [5] * 6


def test_finished_rows_leave_the_batch_and_equal_ones_run_once(policy):
    """Bounds: a forward runs at most 1 / 0.85 as many rows as are unfinished before it, and at
    least one for each distinct answer so far; less than 0.8 of the rows while many are equal."""
    watched = Watched(policy)
    (group,) = watched.engine.sample([request(1, 200)], HOW)
    lengths = np.array([len(c.tokens) for c in group])
    rows = watched.rows("answer")
    assert len(rows) == lengths.max() - 1
    for t, batch in enumerate(rows, start=1):
        unfinished = int((lengths > t).sum())
        distinct = len({tuple(c.tokens[:t]) for c in group if len(c.tokens) > t})
        assert distinct <= batch <= unfinished / 0.85 + 1
    assert rows[0] <= policy.vocabulary
    assert rows[-1] < 0.7 * max(rows)


def test_greedy_answers_are_one_row_however_many_are_asked_for(policy):
    """Identity, and a count: 30 equal answers to each of two prompts, two rows a forward."""
    watched = Watched(policy)
    groups = watched.engine.sample(
        [request(g, 30) for g in range(2)], dataclasses.replace(HOW, temperature=0.0)
    )
    for group in groups:
        assert len({tuple(c.tokens.tolist()) for c in group}) == 1
    assert set(watched.rows("answer")) <= {1, 2}


def test_nothing_runs_once_all_rows_are_finished():
    """Count: with every token an EOS no answer needs a forward beyond the prompt's."""
    watched = Watched(policy_of(eos=range(37)))
    (group,) = watched.engine.sample([request(1, 5)], HOW)
    assert all(len(c.tokens) == 1 for c in group)
    assert [kind for kind, _ in watched.forwards] == ["prompt"]


def test_memory_is_bounded_by_the_wave_not_by_n(policy):
    """Largest tensor of any operation: the same for 16 and for 64 samples at 16 rows a wave."""
    largest = []
    for n in (16, 64):
        engine = EmbeddedEngine(policy, memory_budget=budget_of(policy, 16))
        with Sizes() as sizes:
            engine.sample([request(1, n)], HOW)
        largest.append(sizes.largest)
    assert largest[0] == largest[1]


def test_uneven_groups_do_not_pay_for_the_widest(policy):
    """Largest tensor: 128 rows of one group and 31 single ones hold at most twice what 159 rows
    of one group hold; padding all to the widest would be 32 x 128 rows, 25 times as much."""
    largest = []
    for sizes in ([159], [128] + [1] * 31):
        requests = [
            Request(f"g{i}", f"p{i}", (3, 4, 5, i), 0, n, seed=i) for i, n in enumerate(sizes)
        ]
        with Sizes() as seen:
            EmbeddedEngine(policy, memory_budget=WIDE).sample(requests, HOW)
        largest.append(seen.largest)
    assert largest[1] <= 2 * largest[0]


def test_kv_cache_bytes_by_hand(policy):
    """2 layers, 2 KV heads of width 8, float32: 2*2*2*8*4 = 256 bytes a token, and 6 prompt tokens.

    5 answers of up to 8 tokens: 5*8*256 = 10,240. The prompt as it is read: 6*256 = 1,536; as it
    is kept, the same and its last hidden state of 32 numbers: 1,664. Together 13,440 bytes.
    """
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    assert engine.report().kv_cache == 0
    engine.sample([request(1, 5)], HOW)
    assert engine.report().kv_cache == 13_440
    assert engine.report().kv_cache == 0  # measured anew


def test_kv_cache_is_counted_at_its_most(policy):
    """Identity: 64 samples at 16 a wave hold what 16 hold; a smaller call after it hides nothing."""
    engine = EmbeddedEngine(policy, memory_budget=budget_of(policy, 16))
    engine.sample([request(1, 16)], HOW)
    narrow = engine.report().kv_cache
    engine.sample([request(1, 64, first=16)], HOW)
    engine.sample([request(1, 1, first=80)], HOW)
    assert engine.report().kv_cache == narrow > 0


def test_rows_per_wave_by_hand(policy):
    """2 layers, 2 KV heads of width 8, 4 heads, 37 ids, float32, prompts of 10, answers of 6.

    own 2*2*2*8*6*4 = 1,536; scores 3*4*4*16 = 768; logits 32*37 = 1,184; together 3,488 bytes.
    """
    assert rows_per_wave(policy, 34_880, 10, 6) == 10
    assert rows_per_wave(policy, 34_879, 10, 6) == 9
    assert rows_per_wave(policy, 1, 10, 6) == 1


def test_groups_that_fit_are_not_cut(policy):
    """By hand: 3 groups of 20 at 32 rows a wave: each starts a wave of its own."""
    engine = EmbeddedEngine(policy, memory_budget=budget_of(policy, 32))
    parts = []
    engine.sample(
        [request(g, 20) for g in range(3)], HOW, lambda i, o, c: parts.append((i, o, len(c)))
    )
    assert parts == [(0, 0, 20), (1, 0, 20), (2, 0, 20)]


def test_one_group_with_two_prompts_is_refused(policy):
    """Attack: an id used twice would give one of the two the other's prompt, in one call or two."""
    other = Request("g1", "problem-9", (8, 8), 0, 2, seed=1)
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    with pytest.raises(EngineError, match="problem-9: group g1 came with two prompts"):
        engine.sample([request(1, 2), other], HOW)
    engine.sample([request(1, 2)], HOW)
    with pytest.raises(EngineError, match="problem-9: group g1 came with two prompts"):
        engine.sample([other], HOW)


def test_kept_prompts_stay_within_the_budget(policy):
    """By hand: a prompt of 10 tokens takes 2*2*2*10*8 numbers and its hidden state 32, 2,688
    bytes. A budget for three keeps the three used last; a fourth makes room, and comes again."""
    cache = PromptCache(policy, budget=3 * 2688)
    requests = [Request(f"g{i}", "p", (2 + i,) * 10, 0, 1, 0) for i in range(4)]
    for i in (0, 1, 2, 0, 3):
        with torch.no_grad():
            cache.get([requests[i]])
    assert list(cache._held) == ["g2", "g0", "g3"]
    assert sum(e.bytes for e in cache._held.values()) == 3 * 2688
    with torch.no_grad():
        cache.get([requests[0], requests[2]])
        assert cache.encoded == 4
        cache.get([requests[1]])
    assert cache.encoded == 5


def test_a_small_budget_encodes_in_parts_with_the_same_result(policy):
    """Identity, and a bound: prompts read one by one give what they give together, padded."""
    small, large = PromptCache(policy, budget=1), PromptCache(policy, budget=WIDE)
    requests = [request(g, 1) for g in range(3)]
    seen = []
    handle = policy.model.base_model.register_forward_pre_hook(
        lambda m, a, k: seen.append(k["input_ids"].shape[0]), with_kwargs=True
    )
    with torch.no_grad():
        one, all_ = (c.get(requests) for c in (small, large))
    handle.remove()
    assert seen == [1, 1, 1, 3]
    torch.testing.assert_close(one.last_hidden_GD, all_.last_hidden_GD, rtol=0, atol=1e-5)
    assert torch.equal(one.lengths_G, torch.tensor([1, 6, 3]))
    for a, b in zip(one.reader.keys_LGKCD, all_.reader.keys_LGKCD, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
