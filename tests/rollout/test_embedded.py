"""The embedded engine against a plain sampler: which tokens, what they were worth, where it ends."""

import math

import numpy as np
import pytest
import torch
from policy.small_models import (
    ARCHITECTURES,
    VOCABULARY,
    named_policy,
    padded,
    plain,
    policy_of,
    tokenizer_of,
)

from brorl.errors import EngineError
from brorl.policy.load import load_policy
from brorl.rollout import embedded
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling, Stop
from brorl.seeds import sample_keys, uniforms

WIDE = 1 << 30
EOS_IDS = (1, 7, 20)
PROMPTS = [(5,), (3, 4, 8, 9, 2, 6), (10, 11, 12)]
SIZES = [2, 24, 5]


def sampling(temperature=1.0, tokens=8, top_p=1.0, top_k=0):
    return Sampling(temperature, top_p, top_k, tokens)


def requests_of(sizes=SIZES, prompts=PROMPTS, first=0):
    return [
        Request(f"g{i}", f"problem-{i}", prompt, first, n, seed=100 + i)
        for i, (prompt, n) in enumerate(zip(prompts, sizes, strict=True))
    ]


def plain_sample(policy, request, index, how):
    """Slow oracle: one row, a plain forward over everything for each token, float64 sums.

    Stops early, with None as its last token, where u lies within 1e-5 of a border between two
    tokens: float32 may then fall on either side.
    """
    key = sample_keys(request.seed, index, 1)
    tokens, logps = [], []
    for t in range(how.max_new_tokens):
        ids = torch.tensor([[*request.prompt, *tokens]])
        with torch.no_grad():
            logits = policy.model(input_ids=ids, use_cache=False).logits[0, -1].double()
        logp = (logits / how.temperature).log_softmax(-1).numpy()
        border = np.exp(logp).cumsum()
        u = uniforms(key, t)[0]
        if np.abs(border - u).min() < 1e-5:
            return [*tokens, None], logps
        token = int((border <= u).sum())
        tokens.append(token)
        logps.append(logp[token])
        if token in policy.eos_ids:
            break
    return tokens, logps


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_and_logprobs_are_those_of_a_plain_sampler(name):
    """Oracle: for groups and prompts of unequal length, with rows that end and leave in between,
    every sample is the one that (seed, index) fixes, scored by a plain forward of its own."""
    policy = named_policy(name, eos=EOS_IDS)
    how = sampling(temperature=1.4, tokens=6)
    requests = requests_of()
    groups = EmbeddedEngine(policy, memory_budget=WIDE).sample(requests, how)
    compared = 0
    for request, group in zip(requests, groups, strict=True):
        for index in range(0, request.n, 6):
            tokens, logps = plain_sample(policy, request, index, how)
            got = group[index]
            if tokens[-1] is None:
                assert got.tokens[: len(logps)].tolist() == tokens[:-1]
            else:
                assert got.tokens.tolist() == tokens
                compared += 1
            np.testing.assert_allclose(got.logprobs[: len(logps)], logps, rtol=0, atol=1e-5)
    assert compared >= 3


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_the_update_scores_what_the_engine_sampled(temperature):
    """Identity: Policy.score at the same temperature gives the engine's log-probs."""
    policy = named_policy("qwen2, GQA, tied", eos=EOS_IDS)
    requests = requests_of()
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    groups = engine.sample(requests, sampling(temperature))
    rows = [(g, c) for g, group in enumerate(groups) for c in group]
    tokens, lengths = padded([c.tokens for _, c in rows])
    with torch.no_grad():
        scored = policy.score(
            PROMPTS, torch.tensor([g for g, _ in rows]), tokens, lengths, temperature=temperature
        )
    engine_logp = np.concatenate([c.logprobs for _, c in rows])
    np.testing.assert_allclose(scored.logp_M.numpy(), engine_logp, rtol=0, atol=1e-5)


def test_greedy_takes_the_likeliest_token_and_scores_it_at_temperature_1():
    """Oracle: argmax of plain forwards; every sample of a group is the same."""
    policy = policy_of(eos=EOS_IDS)
    request = requests_of()[1]
    group = EmbeddedEngine(policy, memory_budget=WIDE).sample([request], sampling(0.0))[0]
    tokens = []
    while len(tokens) < 8 and not (tokens and tokens[-1] in EOS_IDS):
        with torch.no_grad():
            ids = torch.tensor([[*request.prompt, *tokens]])
            tokens.append(int(policy.model(input_ids=ids).logits[0, -1].argmax()))
    for c in group:
        assert c.tokens.tolist() == tokens
    with torch.no_grad():
        want = plain(policy, request.prompt, tokens)[0]
    np.testing.assert_allclose(group[0].logprobs, want, rtol=0, atol=1e-5)


def test_whole_answers_come_with_their_probability():
    """Statistical: all answers of at most two tokens, enumerated by plain forwards; 6,000 samples
    in one group, seed fixed; chi-square within 4 standard deviations of its mean."""
    policy = policy_of(vocab_size=6, eos=(1,), initializer_range=0.15)
    request = Request("g", "p", (3, 4), 0, 6_000, seed=9)
    group = EmbeddedEngine(policy, memory_budget=WIDE).sample([request], sampling(tokens=2))[0]
    counts = {}
    for c in group:
        key = tuple(c.tokens.tolist())
        counts[key] = counts.get(key, 0) + 1
    chi, cells = 0.0, 0
    with torch.no_grad():
        for a in range(6):
            for answer in [(a,)] if a == 1 else [(a, b) for b in range(6)]:
                want = 6_000 * math.exp(float(plain(policy, (3, 4), answer)[0].sum()))
                chi += (counts.pop(answer, 0) - want) ** 2 / want
                cells += 1
    assert not counts  # nothing else was sampled
    assert abs(chi - (cells - 1)) <= 4 * math.sqrt(2 * (cells - 1))


def test_every_eos_ends_an_answer_and_belongs_to_it():
    """By hand, on 64 samples: an answer holds an EOS only as its last token, which is scored like
    any other; one without is cut at the limit. All three EOS ids occur, also at the limit."""
    policy = policy_of(eos=EOS_IDS)
    request = Request("g", "p", (5, 6), 0, 64, seed=3)
    group = EmbeddedEngine(policy, memory_budget=WIDE).sample([request], sampling(1.5, 5))[0]
    ends = set()
    for c in group:
        tokens = c.tokens.tolist()
        assert not set(tokens[:-1]) & set(EOS_IDS)
        if c.stop == Stop.EOS:
            assert tokens[-1] in EOS_IDS
            ends.add((tokens[-1], len(tokens) == 5))
        else:
            assert c.stop == Stop.LENGTH
            assert len(tokens) == 5
            assert tokens[-1] not in EOS_IDS
        assert c.mask.dtype == bool
        assert c.mask.all()
        with torch.no_grad():
            want = plain(policy, (5, 6), tokens, temperature=1.5)[0]
        np.testing.assert_allclose(c.logprobs, want, rtol=0, atol=1e-5)
    assert {e for e, _ in ends} == set(EOS_IDS)
    assert {last for _, last in ends} == {True, False}
    assert {c.stop for c in group} == {Stop.EOS, Stop.LENGTH}


def test_eos_ids_come_from_the_generation_config(tmp_path):
    """Attack: a checkpoint with a list of EOS ids; the one that the tokenizer does not name ends
    answers too."""
    saved = policy_of(vocab_size=100)
    saved.model.generation_config.eos_token_id = [1, *range(3, 60)]
    saved.model.save_pretrained(tmp_path)
    tokenizer_of().save_pretrained(tmp_path)
    policy = load_policy(
        str(tmp_path), revision=None, dtype="float32", device="cpu", trained_length=8
    )
    request = Request("g", "p", (70, 71), 0, 32, seed=3)
    group = EmbeddedEngine(policy, memory_budget=WIDE).sample([request], sampling(tokens=6))[0]
    ended = [c for c in group if c.stop == Stop.EOS]
    assert {int(c.tokens[-1]) for c in ended} & set(range(3, 60))
    assert not any(int(t) in policy.eos_ids for c in group for t in c.tokens[:-1])


def test_padding_id_equal_to_eos_changes_nothing():
    """Identity: the same samples whether the pad id is the EOS or another; masks come from
    lengths, so the final EOS keeps its place in the update."""
    made = []
    for pad in (0, 1):
        policy = policy_of(eos=(1,), pad_token_id=pad, bos_token_id=None)
        policy.model.load_state_dict(policy_of().model.state_dict())
        groups = EmbeddedEngine(policy, memory_budget=WIDE).sample(requests_of(), sampling())
        made.append([[c.tokens.tolist() for c in g] for g in groups])
    assert made[0] == made[1]
    assert any(tokens[-1] == 1 for group in made[0] for tokens in group)


def test_completions_cannot_be_written_to():
    """A rollout is a record: sampling, grading and update read the same numbers."""
    c = EmbeddedEngine(policy_of(), memory_budget=WIDE).sample(requests_of(), sampling())[1][0]
    for array in (c.tokens, c.logprobs, c.mask):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert (c.tokens.dtype, c.logprobs.dtype) == (np.int32, np.float32)


def test_ids_go_in_and_out_and_text_is_not_touched():
    """Attack: a tokenizer that fails at any use; sampling and scoring go by ids alone."""

    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"the tokenizer was asked for {name}")

        def __call__(self, *_, **__):
            raise AssertionError("text was tokenised")

    policy = policy_of(eos=EOS_IDS, tokenizer=Untouchable())
    group = EmbeddedEngine(policy, memory_budget=WIDE).sample(requests_of(), sampling())[1]
    tokens, lengths = padded([c.tokens for c in group])
    with torch.no_grad():
        policy.score(
            PROMPTS[1:2], torch.zeros(24, dtype=torch.int64), tokens, lengths, temperature=1.0
        )


def test_no_global_generator_is_used():
    """Identity: torch's and numpy's global states stay where they are, and do not matter."""
    policy = policy_of(eos=EOS_IDS)
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()
        groups = EmbeddedEngine(policy, memory_budget=WIDE).sample(requests_of(), sampling())
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[1].tolist() == before[1]
        made.append([[c.tokens.tolist() for c in g] for g in groups])
    assert made[0] == made[1]


def test_samples_of_a_group_differ():
    """Attack: one stream for all rows would give a group of one answer 24 times."""
    group = EmbeddedEngine(policy_of(), memory_budget=WIDE).sample(requests_of(), sampling())[1]
    assert len({c.tokens.tobytes() for c in group}) > 20


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_stop_the_engine_and_name_the_problem(bad, temperature):
    """Attack: a weight that broke. Only the second prompt holds token 4; the embedding is untied."""
    policy = policy_of(tie_word_embeddings=False)
    with torch.no_grad():
        policy.model.model.embed_tokens.weight[4] = bad
    engine = EmbeddedEngine(policy, memory_budget=WIDE)
    with pytest.raises(EngineError, match=r"problem-1: .* non-finite log-prob at answer token 0"):
        engine.sample(requests_of(), sampling(temperature))


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [
        ((3, VOCABULARY), 4, r"problem-0: prompt ids must be in \[0, 37\), got 3 ... 37"),
        ((-1, 3), 4, r"problem-0: prompt ids must be in \[0, 37\), got -1 ... 3"),
        ((3,) * 60, 5, "problem-0: .*need 65 positions, test llama has 64"),
    ],
)
def test_prompts_that_cannot_be_served_are_refused(prompt, tokens, message):
    """Attack: a rotary model would go on beyond its positions without a word."""
    engine = EmbeddedEngine(policy_of(), memory_budget=WIDE)
    with pytest.raises(EngineError, match=message):
        engine.sample(requests_of([1], [prompt]), sampling(tokens=tokens))


def test_a_group_that_is_short_by_one_is_an_error(monkeypatch):
    """Attack: an engine that loses a sample; a short group would change the baseline in silence."""
    run = EmbeddedEngine._run
    monkeypatch.setattr(embedded.EmbeddedEngine, "_run", lambda *a: [c[:-1] for c in run(*a)])
    with pytest.raises(EngineError, match="problem-0: asked for 2 samples, got 1"):
        EmbeddedEngine(policy_of(), memory_budget=WIDE).sample(requests_of(), sampling())


def test_no_request_no_work():
    assert EmbeddedEngine(policy_of(), memory_budget=WIDE).sample([], sampling()) == []
