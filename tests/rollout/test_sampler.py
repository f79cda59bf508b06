"""Drawing tokens: exact frequencies on a grid of u, a slow oracle for top-k and top-p, edges."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.rollout.engine import Sampling
from brorl.rollout.sampler import draw
from brorl.seeds import derive_seed, sample_keys, uniforms

GRID = 4_000
ALMOST_ONE = 1.0 - 2.0**-53


def sampling(temperature=1.0, top_p=1.0, top_k=0):
    return Sampling(temperature, top_p, top_k, max_new_tokens=1)


def at(logits, u, how):
    """Draw once for each u from one row of logits."""
    rows = torch.as_tensor(logits, dtype=torch.float32).expand(len(u), -1)
    return draw(rows, torch.as_tensor(u, dtype=torch.float64), how)


def frequencies(logits, how):
    """Counts of each token over u = (i + 1/2) / GRID, i = 0 ... GRID - 1."""
    u = (np.arange(GRID) + 0.5) / GRID
    return np.bincount(at(logits, u, how).token_R.numpy(), minlength=len(logits))


def kept_by_hand(p, top_p, top_k):
    """Slow oracle, on Python floats: the k likeliest (all that tie with the k-th), then of those
    the likeliest until their share reaches top_p; probabilities of what stays, renormalised."""
    order = sorted(range(len(p)), key=lambda v: (-p[v], v))
    stay = set(order)
    if top_k:
        stay = {v for v in order if p[v] >= p[order[min(top_k, len(p)) - 1]]}
    total = sum(p[v] for v in stay)
    chosen, mass = [], 0.0
    for v in order:
        if v in stay and mass < top_p * total:
            chosen.append(v)
            mass += p[v]
    return [p[v] / mass if v in chosen else 0.0 for v in range(len(p))]


def softmax(logits, temperature=1.0):
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies_are_the_probabilities(temperature):
    """Oracle: inverse transform cuts [0, 1) into lengths p, so a grid of n points puts within 1
    of n * p points on each token; softmax by hand."""
    logits = [1.5, -2.0, 0.0, 3.0, -9.0, 0.5]
    got = frequencies(logits, sampling(temperature))
    want = GRID * np.array(softmax(logits, temperature))
    assert np.abs(got - want).max() <= 1.01


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_logp_is_of_the_token_at_the_temperature_over_all_tokens(temperature):
    """Oracle: softmax by hand; top-k and top-p change what is drawn, not what it was worth."""
    logits = [1.5, -2.0, 0.0, 3.0]
    u = np.linspace(0, 0.999, 101)
    for how in (sampling(temperature), sampling(temperature, top_p=0.95, top_k=2)):
        token, logp = at(logits, u, how)
        want = [math.log(softmax(logits, temperature)[t]) for t in token.tolist()]
        np.testing.assert_allclose(logp.numpy(), want, rtol=0, atol=1e-6)
    assert set(token.tolist()) == {0, 3}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(-6, 3), min_size=2, max_size=9),  # whole numbers: ties are common
    st.sampled_from([0.05, 0.3, 0.7, 0.95, 1.0]),
    st.integers(0, 10),
)
def test_top_k_and_top_p(logits, top_p, top_k):
    """Oracle: the slow rule, frequencies on the grid. Shares that reach top_p exactly may fall to
    either side by rounding, so such cases are left to the test below."""
    p = softmax(logits)
    ranked = np.cumsum(sorted(p, reverse=True))
    if top_p < 1.0 and np.abs(ranked - top_p * ranked[:, None]).min() < 1e-6:
        return
    got = frequencies(logits, sampling(top_p=top_p, top_k=top_k))
    want = GRID * np.array(kept_by_hand(p, top_p, top_k))
    assert np.abs(got - want).max() <= 1.01


def test_top_p_by_hand():
    """p = 1/2, 1/4, 1/8, 1/8: top_p 3/4 is reached by the first two; a hair more takes a third,
    the first of the two that tie. top_p near 0 still leaves the likeliest."""
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().tolist()
    for top_p, tokens in ((0.75, {0, 1}), (0.76, {0, 1, 2}), (1e-9, {0}), (1.0, {0, 1, 2, 3})):
        assert set(np.nonzero(frequencies(logits, sampling(top_p=top_p)))[0]) == tokens


def test_top_p_is_a_share_of_what_top_k_left():
    """p = 1/2, 1/4, ...: of the two likeliest the first holds 2/3, enough for top_p 0.6."""
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().tolist()
    for top_p, tokens in ((0.6, {0}), (0.7, {0, 1})):
        got = frequencies(logits, sampling(top_p=top_p, top_k=2))
        assert set(np.nonzero(got)[0]) == tokens


def test_tokens_without_probability_are_never_drawn():
    """Attack: zeros in front, in the middle and at the end, u at both ends of [0, 1)."""
    logits = [-math.inf, 0.0, -math.inf, 0.0, -200.0, -math.inf]
    token, logp = at(logits, [0.0, 0.25, 0.5, 0.75, ALMOST_ONE], sampling())
    assert token.tolist() == [1, 1, 3, 3, 3]
    np.testing.assert_allclose(logp.numpy(), math.log(0.5), rtol=1e-6)


@pytest.mark.parametrize("how", [sampling(), sampling(0.3), sampling(top_p=0.9, top_k=50)])
def test_the_last_u_finds_a_token(how):
    """Attack: sums of 3,000 float32 probabilities miss 1 by rounding, to either side; the largest
    u in [0, 1) must still find a token that can be drawn."""
    g = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(64, 3000, generator=g)
    logits[:, -40:] = -math.inf
    for u in (0.0, ALMOST_ONE):
        token, logp = draw(logits, torch.full((64,), u, dtype=torch.float64), how)
        assert int(token.max()) < 2960
        assert bool(torch.isfinite(logp).all())


def test_rare_tokens_keep_their_share_beside_a_likely_one():
    """Bound: 40 tokens of 1.5e-8 each come after one of nearly 1; a sum that is kept in float32,
    whose steps near 1 are 6e-8, would give most of them nothing. Each is found by some u."""
    logits = [0.0] + [-18.0] * 40
    u = 1.0 - 40 * 1.52e-8 * np.linspace(1.2, 0.0, 4000, endpoint=False)
    assert set(at(logits, u, sampling()).token_R.tolist()) == set(range(41))


def test_rows_do_not_touch_each_other():
    """Identity: a row draws the same alone and among others, each by its own u."""
    g = torch.Generator().manual_seed(1)
    logits, u = torch.randn(9, 7, generator=g), torch.rand(9, generator=g, dtype=torch.float64)
    for how in (sampling(0.7), sampling(top_p=0.8, top_k=4), sampling(0.0)):
        whole = draw(logits, u, how)
        for r in range(9):
            one = draw(logits[r : r + 1], u[r : r + 1], how)
            assert one.token_R[0] == whole.token_R[r]
            assert one.logp_R[0] == whole.logp_R[r]


def test_temperature_zero_is_greedy():
    """By hand: the largest logit whatever u is, its log-prob that of temperature 1."""
    token, logp = at([0.0, 2.0, 1.0], [0.0, 0.5, ALMOST_ONE], sampling(0.0, top_p=0.5, top_k=1))
    assert token.tolist() == [1, 1, 1]
    np.testing.assert_allclose(logp.numpy(), math.log(softmax([0.0, 2.0, 1.0])[1]), rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("how", [sampling(), sampling(0.0), sampling(top_p=0.9, top_k=2)])
def test_broken_logits_show_in_the_logp_of_their_row(bad, how):
    """Attack: no crash far from the cause, no ordinary-looking token, no harm to other rows."""
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 2.0, 1.0]])
    token, logp = draw(logits, torch.tensor([0.5, 0.5], dtype=torch.float64), how)
    assert math.isnan(logp[0])
    assert 0 <= token[0] < 3
    assert token[1] == 1
    assert math.isfinite(logp[1])


def test_frequencies_by_the_named_streams():
    """Statistical: 40,000 draws by the real uniforms, seed fixed; chi-square over 12 tokens has
    mean 11 and variance 22, bound 4 standard deviations."""
    n = 40_000
    g = torch.Generator().manual_seed(2)
    logits = torch.randn(12, generator=g)
    u = uniforms(sample_keys(derive_seed(0, "test", "sampler"), 0, n), 0)
    token = at(logits, u, sampling(1.3)).token_R.numpy()
    want = n * np.array(softmax(logits.tolist(), 1.3))
    chi = float(((np.bincount(token, minlength=12) - want) ** 2 / want).sum())
    assert abs(chi - 11) <= 4 * math.sqrt(22)
