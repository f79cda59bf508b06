"""The draws: what the table gives in exact arithmetic, and frequencies within 4 sigma."""

import numpy as np
import pytest

from brorl.seeds import generator
from brorl.simulator import sampling
from brorl.simulator.sampling import TableSampler, TokenSampler, number_by_first_draw
from brorl.theory.distribution import zipf

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)


def start_like(vocab, correct):
    z = np.zeros(vocab)
    z[:correct], z[0] = 3, 5
    p = np.exp(z)
    return p / p.sum()


def drifted(p, steps=1, size=0.3, seed=0):
    """p some steps later: every logit moved by up to `size`."""
    q = p * np.exp(np.random.default_rng(seed).uniform(-size, size, p.size) * steps)
    return q / q.sum()


def law_of_a_proposal(sampler):
    """Chance of each token to be proposed and kept, from the sampler's own table and ratios."""
    cells = np.bincount(sampler._table, minlength=sampler._tokens)
    return cells / cells.sum() * sampler._ratio_S / sampler._largest


@pytest.mark.parametrize("p", [start_like(3000, 200), zipf(3000, exponent=1.5), np.ones(1)])
@pytest.mark.parametrize("drift", [0.0, 0.1, 3.0])
def test_what_is_kept_follows_p_exactly(p, drift):
    """Identity: proposals times acceptance are proportional to p, with a fresh or a stale table."""
    sampler = TableSampler(np.random.default_rng(0), p.size, F64)
    sampler.draw(p, 1.0, 10)
    now = drifted(p, size=drift)
    sampler.draw(now, 1.0, 10)
    law = law_of_a_proposal(sampler)
    np.testing.assert_allclose(law / law.sum(), now, rtol=1e-13)
    assert law.max() <= 1
    assert law.sum() >= (sampling.LEAST_ACCEPTED if drift else sampling.ENOUGH_ACCEPTED)


def test_a_stale_table_is_used_and_a_bad_one_replaced():
    p = start_like(3000, 200)
    sampler = TableSampler(np.random.default_rng(0), p.size, F64)
    sampler.draw(p, 1.0, 10)
    first = sampler._table
    sampler.draw(drifted(p, size=0.05), 1.0, 10)
    assert sampler._table is first
    sampler.draw(drifted(p, size=2.0), 1.0, 10)
    assert sampler._table is not first


@pytest.mark.parametrize("dtype", [F64, F32])
@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_frequencies(dtype, drift):
    """Statistical: chi-square of 400,000 draws over 300 tokens, within 4 sigma of its mean."""
    vocab, correct, n = 300, 40, 400_000
    p = drifted(zipf(vocab, exponent=0.7), size=0.01)
    sampler = TokenSampler(generator(5, "test-sampling"), vocab, correct, dtype)
    sampler.draw(p.astype(dtype), (p[:correct].sum(), p[correct:].sum()), vocab, 100)
    now = drifted(p, size=drift, seed=1)
    scale = 7.0  # weights need not be normalised
    sides = (scale * now[:correct].sum(), scale * now[correct:].sum())
    tokens = sampler.draw((scale * now).astype(dtype), sides, vocab, n)
    assert tokens.size == n
    chi2 = ((np.bincount(tokens, minlength=vocab) - n * now) ** 2 / (n * now)).sum()
    assert abs(chi2 - (vocab - 1)) <= 4 * np.sqrt(2 * (vocab - 1))


def test_draws_are_independent():
    """Statistical: pairs of neighbours in a batch, and counts of a token over batches of 2."""
    p = np.array([0.3, 0.2, 0.5])
    sampler = TokenSampler(generator(6, "test-sampling"), 3, 1, F64)
    twos = np.array([np.sort(sampler.draw(p, (0.3, 0.7), 3, 2)) for _ in range(40_000)])
    for a in range(3):
        for b in range(a, 3):
            chance = p[a] * p[b] * (1 if a == b else 2)
            seen = ((twos[:, 0] == a) & (twos[:, 1] == b)).mean()
            assert abs(seen - chance) <= 4 * np.sqrt(chance * (1 - chance) / 40_000)


def test_shared_tokens_are_drawn_in_proportion_and_numbered_without_gaps():
    """Statistical: L = 5 live of 100; the last stands for 96 tokens. And the numbers are new."""
    weight = np.array([4.0, 2.0, 1.0, 3.0, 0.5])
    sides = (6.0, 1.0 + 3.0 + 96 * 0.5)
    hits, n = 0, 20
    sampler = TokenSampler(generator(7, "test-sampling"), 100, 2, F64)
    for _ in range(5_000):
        tokens = sampler.draw(weight, sides, 4, n)
        fresh = tokens[tokens >= 4]
        assert set(fresh) == set(range(4, 4 + len(set(fresh))))
        hits += fresh.size
    chance = 48 / 58
    assert abs(hits / (5_000 * n) - chance) <= 4 * np.sqrt(chance * (1 - chance) / (5_000 * n))


def test_repeats_among_shared_tokens():
    """Statistical: distinct tokens among 20 draws of 96 equal ones: 96 (1 - (95/96)**20)."""
    sampler = TokenSampler(generator(8, "test-sampling"), 100, 2, F64)
    weight, sides = np.array([0.0, 0.0, 0.0, 0.0, 1.0]), (0.0, 96.0)
    counts = [len(set(sampler.draw(weight, sides, 4, 20))) for _ in range(4_000)]
    error = np.std(counts, ddof=1) / np.sqrt(4_000)
    assert abs(np.mean(counts) - 96 * (1 - (95 / 96) ** 20)) <= 4 * error


def test_numbering_by_hand():
    tokens = np.array([9, 2, 7, 9, 0, 4], dtype=np.int32)
    number_by_first_draw(tokens, 4)
    assert tokens.tolist() == [6, 2, 5, 6, 0, 4]


def test_many_draws_come_in_several_batches():
    """Identity: asking for more than one batch of proposals gives exactly the number asked for."""
    p = start_like(50, 5)
    sampler = TokenSampler(generator(9, "test-sampling"), 50, 5, F64)
    n = 3 * sampling.PROPOSALS_AT_ONCE
    assert sampler.draw(p, (p[:5].sum(), p[5:].sum()), 50, n).size == n
