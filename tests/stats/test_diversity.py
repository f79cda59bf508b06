"""Diversity by hand and by enumeration; crossings of curves with a known crossing."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.seeds import generator
from brorl.stats.crossing import pass_at_k_crossing
from brorl.stats.diversity import answer_entropy, distinct_in_k, distinct_n, self_similarity
from brorl.stats.pass_at_k import pass_at_k_table


def test_entropy():
    """Oracle: scipy; and the two ends."""
    counts = generator(0, "c").integers(0, 9, 12)
    assert answer_entropy(counts) == pytest.approx(stats.entropy(counts))
    assert answer_entropy([7]) == 0.0
    assert math.copysign(1, answer_entropy([7])) == 1.0
    assert answer_entropy([1] * 16) == pytest.approx(math.log(16))
    assert answer_entropy([]) == answer_entropy([0]) == 0.0


def test_distinct_in_k_by_enumeration():
    """Oracle: the mean number of labels over every subset; silent samples are drawn too."""
    labels = [0, 0, 0, 1, 2, 2, None]
    for k in range(1, 8):
        subsets = [len({x for x in s if x is not None}) for s in combinations(labels, k)]
        assert distinct_in_k([3, 1, 2], silent=1, k=k) == pytest.approx(np.mean(subsets))
    assert distinct_in_k([], silent=3, k=2) == 0.0


def test_distinct_n_by_hand():
    """a b a b | a b: unigrams 2 of 6; bigrams ab ba ab | ab: 2 of 4."""
    texts = ["a b a b", "a b"]
    assert distinct_n(texts, n=1) == pytest.approx(2 / 6)
    assert distinct_n(texts, n=2) == pytest.approx(2 / 4)
    assert math.isnan(distinct_n(["a", ""], n=2))


def test_self_similarity_by_hand():
    """Pairs of {a,b}, {b,c}, {a,b}: 1/3, 1, 1/3; mean 5/9."""
    texts = ["a b", "b c", "b a a"]
    got = self_similarity(texts, n=1, most_pairs=100, seed=0)
    assert got == pytest.approx(5 / 9)
    assert self_similarity(["x y"] * 4, n=2, most_pairs=100, seed=0) == 1.0
    assert self_similarity(["", ""], n=1, most_pairs=9, seed=0) == 1.0
    assert self_similarity(["4", "5", "4"], n=3, most_pairs=9, seed=0) == pytest.approx(1 / 3)
    assert math.isnan(self_similarity(["alone"], n=1, most_pairs=9, seed=0))
    assert self_similarity(["a", "a"], n=1, most_pairs=1, seed=0) == 1.0


def test_sampled_pairs_estimate_all_pairs():
    """Statistical: 4,000 pairs of distinct texts, 4 standard errors; a text is never paired with
    itself, which would add 1/40 here."""
    rng = generator(1, "texts")
    texts = [" ".join(map(str, rng.integers(0, 30, 12))) for _ in range(40)]
    whole = self_similarity(texts, n=1, most_pairs=10_000, seed=0)
    sets = [set(t.split()) for t in texts]
    pairs = [len(a & b) / len(a | b) for a, b in combinations(sets, 2)]
    assert whole == pytest.approx(np.mean(pairs))
    # 700 of the 780 pairs: fewer than all, so pairs are drawn
    drawn = [self_similarity(texts, n=1, most_pairs=700, seed=s) for s in range(6)]
    assert abs(np.mean(drawn) - whole) < 4 * np.std(pairs) / np.sqrt(4200)
    assert len(set(drawn)) == 6


KS = (1, 2, 4, 8, 16, 32)


def test_sharpening_crosses_where_the_formula_says():
    """By hand: A solves every problem with p = 0.2 a sample, B half of them always. Means are
    1 - 0.8**k and 1/2, which meet at k = log 2 / log 1.25 = 3.11, between 2 and 4."""
    a = np.tile(1 - 0.8 ** np.array(KS), (40, 1))
    b = np.repeat([[1.0] * 6, [0.0] * 6], 20, axis=0)
    got = pass_at_k_crossing(a, b, KS, level=0.95, resamples=1000, seed=0)
    # linear in log k between 2 (+0.14) and 4 (-0.0904): 2 · 2**(0.14 / 0.2304)
    assert got.k == pytest.approx(2 * 2 ** (0.14 / 0.2304), rel=1e-6)
    assert got.low < got.k < got.high
    assert got.share > 0.99
    assert got.difference_J[0] == pytest.approx(0.3)
    assert (got.low_J < got.difference_J).all()
    assert got.high_J[-1] < 0 < got.low_J[0]


def test_a_policy_better_everywhere_does_not_cross():
    c = generator(4, "c").integers(0, 12, 60)
    a, b = (pass_at_k_table(x, 32, KS) for x in (c, c + 3))
    got = pass_at_k_crossing(a, b, KS, level=0.95, resamples=300, seed=0)
    assert (got.k, got.low, got.high, got.share) == (None, None, None, 0.0)
    assert (got.difference_J > 0).all()


def test_equal_curves_touch_and_do_not_cross():
    a = pass_at_k_table([1, 5], 32, KS)
    got = pass_at_k_crossing(a, a, KS, level=0.95, resamples=50, seed=0)
    assert (got.k, got.share) == (None, 0.0)
    assert got.low_J.tolist() == got.high_J.tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: answer_entropy([0.5, 0.5]), "integers"),
        (lambda: answer_entropy([-1]), ">= 0"),
        (lambda: distinct_in_k([1], silent=0, k=2), "got k=2 and n=1"),
        (lambda: distinct_in_k([1], silent=-1, k=1), "silent >= 0"),
        (lambda: distinct_n(["a"], n=0), "n >= 1 words"),
        (lambda: self_similarity(["a", "b"], n=1, most_pairs=0, seed=0), "most_pairs >= 1"),
        (
            lambda: pass_at_k_crossing([[1.0]], [[1.0]], [1, 2], level=0.9, resamples=9, seed=0),
            r"\[K, 2\]",
        ),
        (
            lambda: pass_at_k_crossing([[1, 1]], [[1, 1]], [2, 2], level=0.9, resamples=9, seed=0),
            "must increase",
        ),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
