"""Rows dealt over mini-batches and cut into micro-batches: nothing lost, nothing doubled."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from brorl.train.batch import Row, micro_batches, minibatches, rows_of, tensors

from .toys import group, sample


def rows_with(sizes, longest=5, names=None):
    """Groups of the given sizes; every answer has an advantage and its own token pattern."""
    made = []
    for g, size in enumerate(sizes):
        answers = [sample(i, [10 + g] * (1 + (7 * g + 3 * i) % longest), 0.0) for i in range(size)]
        for answer in answers:
            answer.advantage = 1.0
        made.append(group(names[g] if names else f"g{g}", answers, prompt=[5] * (2 + g)))
    return rows_of(made)


def key(row):
    return (row.group_id, row.sample.index)


def in_dealing_order(dealt):
    """Card t went to hand t mod count as its (t // count)-th: undo it."""
    return [hand[i] for i in range(len(dealt[0])) for hand in dealt if i < len(hand)]


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def test_a_row_for_each_answer_with_an_advantage_and_no_other():
    answers = [sample(i, [9], 0.0) for i in range(4)]
    answers[1].advantage, answers[3].advantage = 0.5, 0.0
    assert [r.sample.index for r in rows_of([group("a", answers)])] == [1, 3]


@examples(max_examples=100, deadline=None, derandomize=True)
@given(sizes, st.integers(1, 12), st.integers(0, 99))
def test_minibatches_are_a_partition_with_equal_slices_of_every_group(sizes, count, step):
    rows = rows_with(sizes)
    dealt = minibatches(rows, count, seed=4, step=step)
    assert sorted(key(r) for hand in dealt for r in hand) == sorted(map(key, rows))
    assert len(dealt) == min(count, len(rows))
    lengths = [len(hand) for hand in dealt]
    assert max(lengths) - min(lengths) <= 1
    for g in range(len(sizes)):
        shares = [sum(r.group == g for r in hand) for hand in dealt]
        assert max(shares) - min(shares) <= 1


def test_no_row_is_no_minibatch():
    assert minibatches([], 4, seed=0, step=1) == []


def test_the_order_of_a_group_depends_on_its_name_seed_and_step_alone():
    def order(sizes, names, seed=4, step=1):
        dealt = minibatches(rows_with(sizes, names=names), 3, seed, step)
        return [r.sample.index for r in in_dealing_order(dealt) if r.group_id == "a#0"]

    want = order([8], ["a"])
    assert want == order([5, 8, 2], ["x", "a", "y"]) == order([8, 7], ["a", "z"])
    assert want != sorted(want)
    assert len({tuple(order([8], ["a"], *more)) for more in [(4, 1), (5, 1), (4, 2)]}) == 3


def tokens_of(part):
    """What a part costs: its groups' prompts once, and its answers padded to the longest."""
    prompts = {r.group: len(r.prompt) for r in part}
    return sum(prompts.values()) + padded(part)


def padded(part):
    """Tokens of distinct answers, each as long as the longest."""
    answers = {(r.group, tuple(r.sample.completion.tokens.tolist())) for r in part}
    return len(answers) * max(r.length for r in part)


@examples(max_examples=150, deadline=None, derandomize=True)
@given(sizes, st.integers(1, 80), st.randoms(use_true_random=False))
def test_micro_batches_are_a_partition_within_the_budget(sizes, budget, random):
    rows = rows_with(sizes)
    random.shuffle(rows)
    parts = micro_batches(rows, budget)
    assert sorted(key(r) for part in parts for r in part) == sorted(map(key, rows))
    for part in parts:
        assert tokens_of(part) <= budget or len(part) == 1
        assert [r.group for r in part] == sorted(r.group for r in part)
    costs = [padded(p) for p in parts]
    assert costs == sorted(costs, reverse=True)  # a shortage of memory shows at once


def test_a_row_beyond_the_budget_is_alone_and_the_rest_is_not():
    """Prompt 2 and answers of 1, 1, 1, 30 tokens, budget 8: [1, 1, 1] costs 5; 30 costs 32."""
    answers = [sample(i, [9] * n, 0.0) for i, n in enumerate([1, 30, 1, 1])]
    for answer in answers:
        answer.advantage = 1.0
    parts = micro_batches(rows_of([group("a", answers, prompt=[5, 5])]), 8)
    assert [[r.length for r in part] for part in parts] == [[30], [1, 1, 1]]


def test_equal_answers_to_one_prompt_are_scored_once_and_read_by_all():
    """By hand: groups a: [7], [8, 9], [7]; b: [7]. Three are scored; a's [7] serves two rows."""
    groups = [[[7], [8, 9], [7]], [[7]]]
    rows = [
        Row(g, f"g{g}", (5,), sample(i, tokens, 0.0), np.zeros(len(tokens), np.float32))
        for g, answers in enumerate(groups)
        for i, tokens in enumerate(answers)
    ]
    micro = tensors(rows, torch.device("cpu"))
    assert micro.group_U.tolist() == [0, 0, 1]
    assert micro.tokens_UT.tolist() == [[7, 0], [8, 9], [7, 0]]
    assert micro.lengths_U.tolist() == [1, 2, 1]
    assert micro.row_M.tolist() == [0, 1, 1, 2, 3]
    assert micro.score_M.tolist() == [0, 1, 2, 0, 3]
    assert [len(part) for part in micro_batches(rows, 1 + 2 + 1)] == [1, 2, 1]


def test_tensors_by_hand():
    """Groups 0 and 2 of three, answers of 1, 2 and 3 tokens: padded with 0, tokens flat by row."""
    rows = [r for r in rows_with([1, 1, 2], longest=3) if r.group != 1]
    for row, tokens in zip(rows, ([7], [8, 9], [1, 2, 3]), strict=True):
        row.sample = sample(row.sample.index, tokens, 0.0)
    micro = tensors(rows, torch.device("cpu"))
    assert micro.prompts == [(5, 5), (5, 5, 5, 5)]
    assert micro.group_U.tolist() == [0, 1, 1]
    assert micro.tokens_UT.tolist() == [[7, 0, 0], [8, 9, 0], [1, 2, 3]]
    assert micro.lengths_U.tolist() == [1, 2, 3]
    assert micro.row_M.tolist() == [0, 1, 1, 2, 2, 2]
    assert micro.score_M is None
    assert micro.per_token([0.5, -1.0, 2.0]).tolist() == [0.5, -1.0, -1.0, 2.0, 2.0, 2.0]
    flat = micro.flat([np.float32([1]), np.float32([2, 3]), np.float32([4, 5, 6])])
    assert flat.tolist() == [1, 2, 3, 4, 5, 6]
