"""Scoring with a shared prompt against ordinary forwards: values, gradients, any split."""

import numpy as np
import pytest
import torch

from brorl.errors import ShapeError

from .small_models import (
    ARCHITECTURES,
    VOCABULARY,
    Sizes,
    named_policy,
    padded,
    plain_rows,
    policy_of,
    ragged,
)

CLOSE = {"rtol": 0, "atol": 1e-5}  # nats; log-probs here reach -12, float32 rounds that at 1e-6


def score(policy, prompts, groups, answers, temperature=1.0, fill=0):
    tokens, lengths = padded(answers, fill)
    return policy.score(prompts, torch.tensor(groups), tokens, lengths, temperature=temperature)


def gradients(policy):
    return {n: p.grad.clone() for n, p in policy.model.named_parameters()}


def gradient_of(policy, backward):
    """Gradients of every parameter that a function leaves behind."""
    policy.model.zero_grad(set_to_none=True)
    backward()
    return gradients(policy)


def assert_same_gradient(got, want):
    """Float error of float32 sums: 1e-5 of the whole gradient's norm, per parameter."""
    whole = torch.cat([g.flatten() for g in want.values()]).norm()
    assert whole > 1.0
    assert got.keys() == want.keys()
    for name, g in want.items():
        assert (got[name] - g).norm() <= 1e-5 * whole, name


BATCHES = {
    "unequal prompts, uneven groups": ([4, 1, 7, 2], [5, 1, 9, 3]),
    "even groups": ([3, 3], [4, 4]),
    "a prompt of one token": ([3], [1]),
    "one row": ([1], [6]),
    "a wide group beside narrow ones": ([33, 1, 2], [6, 8, 1]),
    "a group without a row": ([2, 0, 3], [3, 7, 2]),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("batch", BATCHES)
def test_score_is_that_of_a_plain_forward(name, batch):
    """Oracle: one full forward a row, no padding, no sharing, softmax in float64."""
    policy = named_policy(name)
    sizes, prompt_lengths = BATCHES[batch]
    prompts, groups, answers = ragged(np.random.default_rng(7), sizes, prompt_lengths)
    with torch.no_grad():
        got = score(policy, prompts, groups, answers)
        logp, entropy = plain_rows(policy, prompts, groups, answers)
    torch.testing.assert_close(got.logp_M.double(), logp, **CLOSE)
    torch.testing.assert_close(got.entropy_M.double(), entropy, **CLOSE)


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_score_is_at_the_sampling_temperature(temperature):
    """Oracle, as above: log-prob and entropy both belong to the tempered policy."""
    policy = policy_of("qwen2")
    prompts, groups, answers = ragged(np.random.default_rng(8), [3, 2], [4, 2])
    with torch.no_grad():
        got = score(policy, prompts, groups, answers, temperature)
        logp, entropy = plain_rows(policy, prompts, groups, answers, temperature)
    torch.testing.assert_close(got.logp_M.double(), logp, **CLOSE)
    torch.testing.assert_close(got.entropy_M.double(), entropy, **CLOSE)


def test_answers_of_one_token_need_no_forward_of_answers():
    """Oracle, as above, and a count: the prompt's own forward scores a first token."""
    policy = policy_of("llama")
    prompts = [[3, 4, 5], [6]]
    answers = [[7], [8], [9]]
    calls = []
    handle = policy.model.base_model.register_forward_pre_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        got = score(policy, prompts, [0, 0, 1], answers).logp_M
        handle.remove()
        want = plain_rows(policy, prompts, [0, 0, 1], answers)[0]
    torch.testing.assert_close(got.double(), want, **CLOSE)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["llama, GQA, untied", "qwen2, GQA, tied", "gpt2, tied"])
def test_padded_packed_and_single_rows_agree(name):
    """Identity: the library's left-padded and packed forwards give the shared score too."""
    policy = named_policy(name)
    prompts, groups, answers = ragged(np.random.default_rng(9), [2, 1, 2], [4, 1, 6])
    rows = [[*prompts[g], *a] for g, a in zip(groups, answers, strict=True)]
    width = max(map(len, rows))

    def of_answers(logits, starts):
        out = []
        for g, answer, row, start in zip(groups, answers, logits, starts, strict=True):
            first = start + len(prompts[g]) - 1
            logp = row[first : first + len(answer)].double().log_softmax(-1)
            out.append(logp[torch.arange(len(answer)), torch.tensor(answer)])
        return torch.cat(out)

    ids = torch.tensor([[0] * (width - len(r)) + r for r in rows])
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    flat = torch.tensor([[i for r in rows for i in r]])
    flat_at = torch.tensor([[i for r in rows for i in range(len(r))]])
    begins = np.cumsum([0, *map(len, rows[:-1])]).tolist()
    with torch.no_grad():
        left = policy.model(input_ids=ids, attention_mask=mask, position_ids=at, use_cache=False)
        packed = policy.model(input_ids=flat, position_ids=flat_at, use_cache=False)
        got = score(policy, prompts, groups, answers).logp_M.double()
    torch.testing.assert_close(
        of_answers(left.logits, [width - len(r) for r in rows]), got, **CLOSE
    )
    torch.testing.assert_close(of_answers([packed.logits[0]] * len(rows), begins), got, **CLOSE)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradient_is_that_of_plain_forwards(name):
    """Oracle: autograd through one ordinary forward a row, for every parameter of the model."""
    policy = named_policy(name)
    rng = np.random.default_rng(10)
    prompts, groups, answers = ragged(rng, [4, 1, 17, 2], [5, 1, 9, 3])
    weight = torch.from_numpy(rng.standard_normal(sum(map(len, answers))))

    def shared():
        (score(policy, prompts, groups, answers, 0.8).logp_M * weight).sum().backward()

    def rowwise():
        logp, _ = plain_rows(policy, prompts, groups, answers, 0.8)
        (logp * weight).sum().backward()

    assert_same_gradient(gradient_of(policy, shared), gradient_of(policy, rowwise))


def test_gradient_reaches_the_prompt():
    """Oracle: a token that only the prompt holds moves the last answer token's log-prob.

    Token 35 is the prompt's second of four, the embeddings are untied, and the loss is of the
    last answer token alone, so the gradient can come by the prompt's keys and values only.
    """
    policy = policy_of("llama", tie_word_embeddings=False)
    prompts, answers = [[3, 35, 4, 5]], [[6, 7, 8]]

    def shared():
        score(policy, prompts, [0], answers).logp_M[-1].backward()

    def rowwise():
        plain_rows(policy, prompts, [0], answers)[0][-1].backward()

    got, want = (gradient_of(policy, f)["model.embed_tokens.weight"][35] for f in (shared, rowwise))
    assert want.norm() > 1e-2
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["llama, GQA, untied", "gpt2, tied"])
def test_any_split_gives_the_same_gradient(name):
    """Identity: micro-batches of 1 x 8, 2 x 4 and 8 x 1 rows add up to the same gradient."""
    policy = named_policy(name)
    rng = np.random.default_rng(11)
    prompts, groups, answers = ragged(rng, [5, 3], [6, 2])
    weights = [torch.from_numpy(rng.standard_normal(len(a))) for a in answers]

    def split(size):
        for start in range(0, len(answers), size):
            part = slice(start, start + size)
            named = sorted(set(groups[part]))
            inside = [named.index(g) for g in groups[part]]
            logp = score(policy, [prompts[g] for g in named], inside, answers[part]).logp_M
            (logp * torch.cat(weights[part])).sum().backward()

    whole, fours, ones = (gradient_of(policy, lambda s=s: split(s)) for s in (8, 4, 1))
    assert_same_gradient(fours, whole)
    assert_same_gradient(ones, whole)


def test_padding_is_never_read():
    """Identity: the score does not change with what lies under the padding, not even a bit.

    The EOS's own id is among the fills: a mask comes from lengths, never from ids.
    """
    policy = policy_of("llama")
    prompts, groups, answers = ragged(np.random.default_rng(12), [3, 2], [4, 2])
    with torch.no_grad():
        first, *others = (
            score(policy, prompts, groups, answers, fill=f) for f in (0, 1, -1, VOCABULARY + 5)
        )
    for other in others:
        assert torch.equal(first.logp_M, other.logp_M)
        assert torch.equal(first.entropy_M, other.entropy_M)


def test_eos_in_the_middle_is_scored_like_any_token():
    """Oracle: an answer that holds the EOS id (1) twice has all of its tokens scored."""
    policy = policy_of("llama")
    with torch.no_grad():
        got = score(policy, [[3, 4]], [0], [[5, 1, 6, 1]]).logp_M
        want = plain_rows(policy, [[3, 4]], [0], [[5, 1, 6, 1]])[0]
    torch.testing.assert_close(got.double(), want, **CLOSE)


def test_bfloat16_scores_like_its_own_plain_forward():
    """Oracle, as above, at bfloat16's precision; the log-probs come as float32."""
    policy = policy_of("llama", initializer_range=0.1)
    policy.model.to(torch.bfloat16)
    prompts, groups, answers = ragged(np.random.default_rng(13), [3, 2], [4, 2])
    with torch.no_grad():
        got = score(policy, prompts, groups, answers)
        want, _ = plain_rows(policy, prompts, groups, answers)
    assert got.logp_M.dtype == torch.float32
    torch.testing.assert_close(got.logp_M.double(), want, rtol=0, atol=0.1)


def test_logits_of_the_whole_batch_are_never_held():
    """1,000 tokens x 20,000 ids would be 20 million logits; a chunk holds 2**22."""
    policy = policy_of("llama", vocab_size=20_000)
    tokens = torch.randint(20_000, (100, 10), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((100,), 10)
    with Sizes() as sizes:
        out = policy.score(
            [[3, 4]], torch.zeros(100, dtype=torch.int64), tokens, lengths, temperature=1.0
        )
        out.logp_M.sum().backward()
    assert sizes.largest <= 1 << 22


def test_prompt_is_not_copied_for_every_row():
    """A prompt of 60 tokens, 256 rows: its keys would be 256 x 2 x 60 x 8 numbers if copied.

    The largest tensor that the prompt takes part in is that of the scores: rows x heads x
    columns = 256 x 4 x 60; hidden states are 256 x 64 (the MLP).
    """
    policy = policy_of("llama")
    tokens = torch.randint(VOCABULARY, (256, 2), generator=torch.Generator().manual_seed(0))
    group = torch.zeros(256, dtype=torch.int64)
    with torch.no_grad(), Sizes() as sizes:
        policy.score([[3] * 60], group, tokens, torch.full((256,), 2), temperature=1.0)
    assert sizes.largest == 256 * 4 * 60 < 256 * 2 * 60 * 8


@pytest.mark.parametrize(
    ("group", "lengths", "message"),
    [
        ([1, 0], [2, 2], "sorted by group"),
        ([0, 2], [2, 2], r"groups must be in \[0, 2\), got 0 ... 2"),
        ([-1, 0], [2, 2], r"groups must be in \[0, 2\), got -1 ... 0"),
        ([0, 1], [0, 2], r"lengths must be in \[1, 2\], got 0 ... 2"),
        ([0, 1], [2, 3], r"lengths must be in \[1, 2\], got 2 ... 3"),
        ([0, 1, 1], [2, 2], r"tokens \[R, T\]"),
        ([], [], "R >= 1"),
    ],
)
def test_rows_are_checked_at_the_door(group, lengths, message):
    """Attack: each would score other rows or other tokens than were meant, in silence."""
    tokens = torch.full((len(lengths), 2), 5)
    group, lengths = (torch.tensor(x, dtype=torch.int64) for x in (group, lengths))
    with pytest.raises(ShapeError, match=message):
        policy_of("llama").score([[3], [4]], group, tokens, lengths, temperature=1.0)


def test_the_model_is_left_as_it_was():
    """Identity: a plain forward gives the same bits before and after the shared one."""
    policy = policy_of("llama")
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        before = policy.model(input_ids=ids).logits
        score(policy, [[3, 4]], [0], [[5, 6]])
        assert torch.equal(policy.model(input_ids=ids).logits, before)
