"""Shifts by hand, problems won and lost against shuffled labels, behaviours on written texts."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from brorl.errors import ShapeError
from brorl.evaluate.distribution import distribution, moves
from brorl.evaluate.pairing import Arm
from brorl.evaluate.results import Votes, problem_result
from brorl.evaluate.texts import BEHAVIOURS, text_stats
from brorl.seeds import generator
from brorl.verify.verdict import correct, no_answer, wrong

from .evaluations import evaluation, problem, suite

KNOBS = {"level": 0.95, "resamples": 200, "seed": 0, "common": False}


def arm(name, *runs):
    evaluations = [evaluation({"own": suite(rows)}, seed=i) for i, rows in enumerate(runs)]
    return Arm(name, tuple((f"{name}{i}", e) for i, e in enumerate(evaluations)))


def test_moves_by_chance_by_enumeration():
    """Oracle: 3 successes among 3 + 4 samples: every placement; and two sure cases."""
    got = moves([1], [3], [2], [4], level=0.95)
    places = list(combinations(range(7), 3))
    newly = sum(min(p) >= 3 for p in places) / len(places)
    lost = sum(max(p) < 3 for p in places) / len(places)
    assert (got.newly_by_chance, got.lost_by_chance) == pytest.approx((newly, lost))
    assert moves([0], [3], [0], [4], level=0.95)[3:5] == (0.0, 0.0)


def test_one_policy_moves_as_chance_says():
    """Statistical: 4,000 problems evaluated twice by the same policy, 16 samples each; newly
    solved and lost within 4 standard errors of the expectation."""
    rng = generator(0, "moves")
    a, b = rng.binomial(16, rng.beta(0.2, 2, 4000), (2, 4000))
    got = moves(a, np.full(4000, 16), b, np.full(4000, 16), level=0.95)
    error = 4 * np.sqrt(got.newly_by_chance / 4000)
    assert abs(got.newly_solved.value - got.newly_by_chance) < error
    assert abs(got.lost.value - got.lost_by_chance) < error
    assert got.newly_by_chance > 0.03
    assert got.p > 1e-4


def test_moves_by_hand():
    """Ten newly solved, one lost, of 20: 0.5, 0.05; sign test p = 2·(1 + 11)/2**11."""
    c_a, c_b = [0] * 10 + [1] + [2] * 9, [1] * 10 + [0] + [2] * 9
    got = moves(c_a, [4] * 20, c_b, [4] * 20, level=0.95)
    assert (got.newly_solved.value, got.lost.value) == (0.5, 0.05)
    assert got.p == pytest.approx(24 / 2**11)
    assert moves([1], [4], [1], [4], level=0.95).p == 1.0


def shift(found, name):
    return next(s for s in found.shifts if s.name == name)


def test_shifts_by_hand():
    """Two problems, 4 samples. A: every answer alone, 5 tokens. B: all the same, 9 tokens. Distinct
    answers 4 -> 1, entropy log 4 -> 0, tokens +4; the interval of equal changes is the point."""
    wide = [problem(i, 0).model_copy(update={"answers": (Votes(1, False),) * 4}) for i in "pq"]
    narrow = [problem(i, 0, tokens=9) for i in "pq"]
    got = distribution(arm("a", wide), arm("b", narrow), **KNOBS)
    assert shift(got, "distinct answers in 4")[2:] == (4.0, 1.0, (-3.0, -3.0, -3.0))
    assert shift(got, "answer entropy, nats").difference.value == pytest.approx(-np.log(4))
    assert shift(got, "tokens, mean").difference.value == 4
    assert shift(got, "tokens of other answers").difference.value == 4
    names = [s.name for s in got.shifts]
    assert "tokens of right answers" not in names  # nobody was right
    assert "verdict timeout, share" not in names  # nobody timed out
    assert "self-similarity" not in names  # no texts were kept


def test_unequal_samples_are_compared_at_the_smaller_number():
    """By hand: 4 of 8 distinct answers show fewer in 2 draws: pairs alike 4·1/28, so 2 - 4/28."""
    a = [problem(i, 0, 8).model_copy(update={"answers": (Votes(2, False),) * 4}) for i in "pq"]
    b = [problem(i, 0, 2) for i in "pq"]
    got = shift(distribution(arm("a", a), arm("b", b), **KNOBS), "distinct answers in 2")
    assert (got.mean_a, got.mean_b) == pytest.approx((2 - 4 / 28, 1.0))


def test_runs_are_pooled_for_reach_and_averaged_for_shifts():
    """By hand: runs with 1 and 3 of 4: pass@1 is 1/2, and k goes up to 8 pooled samples."""
    a = arm("a", [problem("p", 1), problem("q", 0)], [problem("p", 3), problem("q", 0)])
    b = arm("b", [problem("p", 2), problem("q", 1)], [problem("p", 2), problem("q", 0)])
    got = distribution(a, b, **KNOBS)
    assert got.ks == (1, 2, 4, 8)
    assert shift(got, "pass@1")[2:4] == pytest.approx((0.25, 0.3125))
    assert got.crossing.difference_J == pytest.approx([1 / 16, 1 / 8, 1 / 4, 1 / 2])
    assert (got.moves.newly_solved.value, got.moves.lost.value) == (0.5, 0.0)


def test_length_shift_has_the_paired_interval():
    """Oracle: scipy on the per-problem mean lengths."""
    rng = generator(1, "lengths")
    a, b = rng.integers(5, 50, (2, 30))
    arms = [
        arm(n, [problem(f"p{i}", 1, tokens=int(t)) for i, t in enumerate(x)])
        for n, x in (("a", a), ("b", b))
    ]
    got = shift(distribution(*arms, **KNOBS), "tokens, mean")
    ends = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert got.difference == pytest.approx(((b - a).mean(), ends.low, ends.high))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"so \boxed{4}", {"boxed answer"}),
        ("<answer>\n4</answer> </think>", {"answer tags", "ends its thinking"}),
        ("Wait, that is wrong. Let me check.", {"reconsiders", "checks"}),
        ("I waited while the holder held on tightly to it", set()),
        ("await the result; actuality", set()),
        ("Alternatively, case 1: x > 0", {"tries another way", "splits into cases"}),
        ("```python\nprint(1)\n```", {"code block"}),
        ("```python\nprint(1)", set()),
        ("I'll guess 7", {"guesses"}),
        ("", set()),
    ],
)
def test_behaviours_by_surface_form(text, shown):
    """By hand, with words that only look alike."""
    got = text_stats([text], seed=0).behaviours
    assert got.keys() == BEHAVIOURS.keys()
    assert {name for name, count in got.items() if count} == shown


def test_text_stats_count_texts_not_matches():
    got = text_stats(["wait wait wait", "wait", "fine"], seed=0)
    assert got.behaviours["reconsiders"] == 2
    assert (got.distinct_1, got.distinct_2) == pytest.approx((2 / 5, 1 / 2))
    single = text_stats(["a"], seed=0)
    assert (single.self_similarity, single.distinct_2) == (None, None)


def test_overlap_is_of_three_words_in_a_row():
    """By hand: {abc, bcd} and {abc, bce} share one of three."""
    assert text_stats(["a b c d", "a b c e"], seed=0).self_similarity == pytest.approx(1 / 3)


def test_texts_travel_with_the_problem():
    texts = text_stats(["wait 7", "8", "hm"], seed=0)
    rows = [
        problem_result(
            i,
            task="t",
            category="c",
            verdicts=[correct("7", ""), wrong("8", ""), no_answer("")],
            tokens=[2, 1, 1],
            truncated=[False] * 3,
            texts=texts,
        )
        for i in "pq"
    ]
    got = distribution(arm("a", rows), arm("b", rows), **KNOBS)
    assert shift(got, "reconsiders, share").mean_a == pytest.approx(1 / 3)
    assert "self-similarity" not in [s.name for s in got.shifts]  # 0 in every problem
    assert texts.self_similarity == 0.0
    assert shift(got, "verdict no_answer, share").difference == (0, 0, 0)


def test_moves_refuses():
    with pytest.raises(ShapeError, match="four vectors"):
        moves([1], [1], [1, 2], [2, 2], level=0.95)
    with pytest.raises(ShapeError, match="four vectors"):
        moves([], [], [], [], level=0.95)
