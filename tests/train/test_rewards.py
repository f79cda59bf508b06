"""Shaping and advantages written into each answer's own record."""

import math

import pytest

from brorl.rollout.engine import Stop
from brorl.train.groups import Fate
from brorl.train.rewards import assign_advantages, shape

from .toys import group, sample, settings


def groups_of(*scores, lengths=None, stops=None):
    """A group for each list of scores; lengths and stops by group and sample where given."""
    made = []
    for g, row in enumerate(scores):
        answers = []
        for i, score in enumerate(row):
            answer = sample(i, [g * 20 + i] * (lengths[g][i] if lengths else 2), score)
            if stops and stops[g][i]:
                answer = sample(
                    i, [g * 20 + i] * len(answer.completion.tokens), score, stop=Stop.LENGTH
                )
            answers.append(answer)
        made.append(group(f"g{g}", answers))
    return made


def advantages(groups):
    return [[s.advantage for s in g.samples] for g in groups]


def ready(groups, s, step=1):
    shape(groups, s, step)
    assign_advantages(groups, s, step)
    return groups


# Shaping


def test_without_terms_the_shaped_reward_is_the_raw_score():
    groups = groups_of([1.0, 0.5, 0.0, None])
    shape(groups, settings(), 1)
    assert [s.shaped for s in groups[0].samples] == [1.0, 0.5, 0.0, 0.0]


def test_length_term_by_hand_and_only_while_it_is_on():
    """Limit 8, from 1 down to -1: cos(pi · L / 8) is 1, 0 and -1 at L = 0, 4, 8; weight 1/2."""
    term = {"enable": True, "max": 1.0, "min": -1.0, "weight": 0.5, "on_steps": 2, "off_steps": 3}
    s = settings(length_penalty=term)
    for step, on in [(0, 1), (1, 1), (2, 0), (4, 0), (5, 1), (6, 1), (7, 0)]:
        groups = groups_of([0.0, 1.0], lengths=[[4, 8]])
        shape(groups, s, step)
        want = [0.0, 1.0 - 0.5 * on]
        assert [x.shaped for x in groups[0].samples] == pytest.approx(want, abs=1e-15)


def test_a_length_term_moves_shaped_rewards_but_not_what_the_filter_looked_at():
    s = settings(length_penalty={"enable": True, "max": 0.0, "min": -1.0})
    groups = groups_of([0.0, 0.0, 0.0], lengths=[[1, 4, 8]])
    shape(groups, s, 0)
    assert len({x.shaped for x in groups[0].samples}) == 3
    assert {x.raw for x in groups[0].samples} == {0.0}


def test_truncated_answers_earn_nothing_or_a_fixed_cost():
    stops = [[False, True, True]]
    for coefficient, want in [(0.0, [1, 0, 0]), (0.5, [1, 0.5, 0]), (-0.2, [1, -0.2, -0.2])]:
        groups = groups_of([1.0, 1.0, 0.0], stops=stops)
        shape(groups, settings(overlong={"stop_properly": coefficient}), 1)
        assert [x.shaped for x in groups[0].samples] == pytest.approx(want)


def test_soft_buffer_by_hand():
    """Limit 8, buffer 4: free to 4 tokens, then 1/4 a token: -1/4 at 5, -1 at 8, times 0.5."""
    groups = groups_of([1.0, 1.0, 1.0], lengths=[[4, 5, 8]])
    shape(groups, settings(overlong={"buffer": 4, "factor": 0.5}), 1)
    assert [x.shaped for x in groups[0].samples] == pytest.approx([1, 0.875, 0.5])


# Advantages


def test_group_mean_then_one_scale_over_the_whole_batch_by_hand():
    """Groups [1, 0, 0, 0] and [1, 1, 0]: centred 3/4, -1/4 x3 and 1/3, 1/3, -2/3; sum of squares
    3/4 + 2/3 over 7 rows. A group of one and a flat group get exactly 0 and do not count."""
    groups = ready(groups_of([1.0, 0, 0, 0], [1.0, 1, 0], [1.0], [0.0, 0.0]), settings())
    sigma = math.sqrt((3 / 4 + 2 / 3) / 7)
    got = advantages(groups)
    assert got[0] == pytest.approx([0.75 / sigma] + [-0.25 / sigma] * 3)
    assert got[1] == pytest.approx([1 / 3 / sigma] * 2 + [-2 / 3 / sigma])
    assert got[2:] == [[0.0], [0.0, 0.0]]


def test_grader_errors_have_no_advantage_and_no_part_in_the_mean():
    """[1, 0, error, error] is a group of two: +-1/2, which is +-1 after scaling."""
    groups = ready(groups_of([1.0, 0.0, None, None]), settings())
    assert advantages(groups) == [[pytest.approx(1.0), pytest.approx(-1.0), None, None]]


def test_a_group_that_failures_shrank_to_one_gets_exactly_zero():
    groups = ready(groups_of([1.0, None, None], [1.0, 0.0]), settings())
    assert advantages(groups)[0] == [0.0, None, None]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "reinforce_plus_plus_baseline"])
def test_advantages_do_not_depend_on_the_order_of_groups(estimator):
    s = settings(advantage={"estimator": estimator})
    rows = ([1.0, 0, 0, 0.5], [0.0, 1, 1, 0], [1.0, 1, 0, 1])
    forward = advantages(ready(groups_of(*rows), s))
    backward = advantages(ready(groups_of(*rows[::-1]), s))
    for a, b in zip(forward, backward[::-1], strict=True):
        assert a == pytest.approx(b, rel=1e-12)


def test_one_in_512_by_hand():
    """grpo: sqrt(512) · (511/512) / sqrt(511/512 · 512/511) = 22.6 (reports.md row 45)."""
    groups = ready(groups_of([1.0] + [0.0] * 511), settings(advantage={"estimator": "grpo"}))
    assert advantages(groups)[0][0] == pytest.approx(22.583, abs=1e-3)
    assert sum(advantages(groups)[0]) == pytest.approx(0, abs=1e-9)


def test_shaped_rewards_without_spread_in_raw_ones_give_bounded_advantages():
    """[0, 0.95 x 7] (reports.md row 33): the largest is -7/8 over its spread, sqrt(7)."""
    groups = ready(groups_of([0.0] + [0.95] * 7), settings())
    assert advantages(groups)[0] == pytest.approx([-math.sqrt(7)] + [1 / math.sqrt(7)] * 7)


def test_unbiased_baseline_reads_the_waves():
    """Waves 2, 4, stop at 1; the group went on, so its first two were wrong, and found RW then.

    The first sample is one of those two: the chance that it is right, given the end, is 0, and
    so is the baseline; the group's mean would be 1/4. sigma over (A - mu)^2 with A = [0,0,1,0].
    """
    unbiased = {"baseline": "unbiased", "normalise": "none"}
    s = settings(rollout={"waves": [2, 4], "stop_right": 1}, advantage=unbiased)
    groups = ready(groups_of([0.0, 0.0, 1.0, 0.0]), s)
    assert advantages(groups) == [[0.0, 0.0, 1.0, 0.0]]


def test_advantages_are_those_of_the_shaped_rewards():
    """All right, 4 and 8 tokens of 8: the term gives 0 and -1, so +-1 after scaling; raw gave 0."""
    s = settings(length_penalty={"enable": True, "max": 1.0, "min": -1.0})
    groups = ready(groups_of([1.0, 1.0], lengths=[[4, 8]]), s, step=0)
    assert advantages(groups) == [[pytest.approx(1.0), pytest.approx(-1.0)]]


# Cutting


def cut(seed=3, step=1, weight="none", order=(0, 1)):
    scores = [[1.0] * 3 + [0.0] * 9, [1.0, 0.0, 0.0]]
    groups = groups_of(*[scores[i] for i in order])
    return ready(
        groups,
        settings(seed=seed, rollout={"n": 12, "keep_per_group": 4}, advantage={"weight": weight}),
        step,
    )


def test_cut_answers_lose_their_advantage_and_say_so_the_others_keep_theirs():
    whole = advantages(ready(groups_of([1.0] * 3 + [0.0] * 9, [1.0, 0.0, 0.0]), settings()))
    groups = cut()
    for before, after in zip(whole, groups, strict=True):
        kept = [s for s in after.samples if s.advantage is not None]
        assert len(kept) == min(4, len(after.samples))
        for value, s in zip(before, after.samples, strict=True):
            assert s.advantage in (None, pytest.approx(value))
            assert s.fate is (Fate.CUT if s.advantage is None else Fate.KEPT)
            assert s.weight == 1.0
    assert sum(s.right for s in groups[0].samples if s.advantage is not None) == 2


def test_weights_of_a_cut_group_add_up_to_the_group():
    """Right: 2 of 3 kept, each stands for 3/2. Wrong: 9 different ones, 2 kept, 9/2 each."""
    groups = cut(weight="unbiased")
    kept = [s for s in groups[0].samples if s.advantage is not None]
    assert sorted(s.weight for s in kept) == pytest.approx([1.5, 1.5, 4.5, 4.5])
    assert [s.weight for s in groups[1].samples] == [1.0, 1.0, 1.0]


def kept_of(rule, weight="none", keep=4):
    """Scores 1 1 1 and nine times 0 of one group, cut by a rule: (right, weight) of those kept."""
    cut_by = {"n": 12, "keep_per_group": keep, "keep_rule": rule}
    groups = ready(
        groups_of([1.0] * 3 + [0.0] * 9),
        settings(rollout=cut_by, advantage={"weight": weight}),
    )
    return [(s.right, s.weight) for s in groups[0].samples if s.advantage is not None]


def test_the_rule_of_the_cut_is_the_one_that_is_set():
    """Of 3 right and 9 wrong: 2 + 2 by spread and by variance; any 4 at random, each for 12/4."""
    assert sum(right for right, _ in kept_of("max_variance", keep=8)) == 3
    assert kept_of("max_variance") == [(True, 1.0)] * 2 + [(False, 1.0)] * 2
    assert [w for _, w in kept_of("random", "unbiased")] == [3.0] * 4
    assert [w for _, w in kept_of("random")] == [1.0] * 4


def test_variance_is_that_of_the_rewards_that_advantages_come_from():
    """Hand-computed: scores equal but for length; of lengths 1, 2, 4, 8 the ends differ most."""
    s = settings(
        rollout={"n": 4, "keep_per_group": 2, "keep_rule": "max_variance", "max_new_tokens": 8},
        length_penalty={"enable": True, "max": 1.0, "min": -1.0},
    )
    groups = ready(groups_of([1.0] * 4, lengths=[[4, 1, 8, 2]]), s, step=0)
    assert [x.advantage is not None for x in groups[0].samples] == [False, True, True, False]


def test_the_cut_is_drawn_afresh_each_step_and_alike_in_a_repeat():
    def chosen(**at):
        return tuple(s.index for s in cut(**at)[0].samples if s.advantage is not None)

    assert chosen() == chosen()
    assert len({chosen(step=i) for i in range(12)}) > 3
    assert len({chosen(seed=i) for i in range(12)}) > 3
