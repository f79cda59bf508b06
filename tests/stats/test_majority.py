"""maj@k against enumeration of every subset of the samples."""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.majority import majority_at_k
from brorl.stats.pass_at_k import pass_at_k


def by_enumeration(votes, right, abstained, k):
    """Oracle: list the samples, look at every subset, share ties; exact fractions."""
    samples = [d for d, m in enumerate(votes) for _ in range(m)] + [None] * abstained
    total, subsets = Fraction(0), 0
    for subset in combinations(samples, k):
        subsets += 1
        count = Counter(a for a in subset if a is not None)
        if count:
            most = max(count.values())
            lead = [a for a, m in count.items() if m == most]
            total += Fraction(sum(right[a] for a in lead), len(lead))
    return float(total / subsets)


@pytest.mark.parametrize("seed", range(40))
def test_every_subset_of_small_groups(seed):
    rng = generator(seed, "votes")
    votes = rng.integers(1, 4, rng.integers(1, 5)).tolist()
    right = (rng.random(len(votes)) < 0.5).tolist()
    abstained = int(rng.integers(0, 3))
    for k in range(1, sum(votes) + abstained + 1):
        got = majority_at_k(votes, right, abstained=abstained, k=k)
        assert got == pytest.approx(by_enumeration(votes, right, abstained, k), abs=1e-12)


def test_one_sample_is_pass_at_1_and_all_samples_are_the_plurality():
    """Identity: k = 1 and k = n, up to 512 samples with a long tail of answers given once."""
    votes, right = [200, 100, *[1] * 150], [False, True, *[False] * 150]
    assert majority_at_k(votes, right, abstained=62, k=1) == pytest.approx(100 / 512, rel=1e-11)
    assert majority_at_k(votes, right, abstained=62, k=512) == pytest.approx(0.0, abs=1e-12)
    assert majority_at_k(votes, right[::-1], abstained=62, k=2) < 0.1
    assert majority_at_k([3, 3], [True, False], abstained=1, k=7) == pytest.approx(0.5)


def test_two_answers_vote_like_a_hypergeometric_count():
    """Oracle at width: with two answers, maj@k is P(more than half) + P(half)/2 of one count."""
    n, c, k = 400, 230, 64
    hits = stats.hypergeom(n, c, k)
    want = hits.sf(k // 2) + hits.pmf(k // 2) / 2
    assert majority_at_k([c, n - c], [True, False], abstained=0, k=k) == pytest.approx(
        want, rel=1e-10
    )


def test_if_only_the_right_answer_is_ever_given_voting_is_pass_at_k():
    """Identity: no rival, so one vote suffices."""
    for k in (1, 3, 10):
        got = majority_at_k([4], [True], abstained=12, k=k)
        assert got == pytest.approx(float(pass_at_k(4, 16, k)), rel=1e-11)


def test_against_random_draws_with_many_answers():
    """Statistical: 20,000 draws of 48 of 128 samples, 4 standard errors."""
    rng = generator(0, "draws")
    votes = [30, 28, 20, 10, 10, 5, *[1] * 15]
    right = [False, True, False, True] + [False] * 17
    labels = np.r_[np.repeat(np.arange(21), votes), np.full(10, -1)]
    hits = 0.0
    for _ in range(20_000):
        count = np.bincount(rng.permutation(labels)[:48] + 1, minlength=22)[1:]
        lead = count == count.max()
        hits += np.asarray(right)[lead].mean()
    want = majority_at_k(votes, right, abstained=10, k=48)
    assert abs(hits / 20_000 - want) < 4 * np.sqrt(want * (1 - want) / 20_000)


def test_nobody_answers():
    assert majority_at_k([], [], abstained=5, k=3) == 0.0


@pytest.mark.parametrize(
    ("votes", "right", "abstained", "k", "message"),
    [
        ([1], [True], 0, 2, "got k=2 and n=1"),
        ([1], [True], 0, 0, "got k=0"),
        ([1, 2], [True], 0, 1, "one 'right' a vote"),
        ([0], [True], 3, 1, "votes >= 1"),
        ([1], [True], -1, 1, "abstained >= 0"),
    ],
)
def test_refuses(votes, right, abstained, k, message):
    with pytest.raises(ShapeError, match=message):
        majority_at_k(votes, right, abstained=abstained, k=k)
