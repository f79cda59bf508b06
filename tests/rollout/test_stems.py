"""Equal answers so far, run once: growth by hand, and against a table of whole prefixes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.rollout.stems import APART, Stems

V = 7


def test_growth_by_hand():
    """Groups 0 and 2 of three, rows (0, 0, 0, 0, 0, 2, 2, 2).

    Tokens 5 5 5 5 1 | 5 5 5 make stems (0,1), (0,5), (2,5) of parents 0, 0, 2. Then all of a stem
    draw alike: nothing moves. Then the row of (0,1) leaves and one of (2,5) parts.
    """
    stems = Stems(torch.tensor([0, 0, 0, 0, 0, 2, 2, 2]), 3)
    assert stems.group_S.tolist() == [0, 1, 2]
    parents = stems.grow(torch.tensor([5, 5, 5, 5, 1, 5, 5, 5]), V, None)
    assert parents.tolist() == [0, 0, 2]
    assert stems.group_S.tolist() == [0, 0, 2]
    assert stems.token_S.tolist() == [1, 5, 5]
    assert stems.of_B.tolist() == [1, 1, 1, 1, 0, 2, 2, 2]
    assert stems.grow(torch.tensor([4, 4, 4, 4, 6, 3, 3, 3]), V, None) is None
    assert stems.token_S.tolist() == [6, 4, 3]
    stay = torch.tensor([0, 1, 2, 3, 5, 6, 7])
    parents = stems.grow(torch.tensor([2, 2, 2, 2, 1, 1, 0]), V, stay)
    assert parents.tolist() == [1, 2, 2]
    assert stems.group_S.tolist() == [0, 2, 2]
    assert stems.token_S.tolist() == [2, 0, 1]
    assert stems.of_B.tolist() == [0, 0, 0, 0, 2, 2, 1]


def test_a_stem_that_vanishes_while_another_parts_moves_all():
    """By hand: two stems before and after, but not the same two."""
    stems = Stems(torch.tensor([0, 0, 0, 0, 0, 0, 1]), 2)
    parents = stems.grow(torch.tensor([3, 3, 3, 4, 4, 4]), V, torch.arange(6))
    assert parents.tolist() == [0, 0]
    assert stems.group_S.tolist() == [0, 0]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_every_row_reads_the_stem_of_its_own_prefix(data):
    """Identity: whatever is drawn and whoever leaves, a row's stem has the row's group and tokens,
    as followed by the parents that were returned."""
    groups = data.draw(st.integers(1, 3))
    group_B = sorted(data.draw(st.lists(st.integers(0, groups - 1), min_size=1, max_size=12)))
    stems = Stems(torch.tensor(group_B), groups)
    prefix = [(g,) for g in group_B]  # of each row
    held = [(g,) for g in range(groups)]  # of each stem, moved as keys and values are
    for _ in range(4):
        stay = sorted(data.draw(st.sets(st.integers(0, len(prefix) - 1), min_size=1)))
        token = data.draw(st.lists(st.integers(0, 1), min_size=len(stay), max_size=len(stay)))
        prefix = [(*prefix[i], t) for i, t in zip(stay, token, strict=True)]
        whole = len(stay) == len(stems.of_B)
        parents = stems.grow(torch.tensor(token), V, None if whole else torch.tensor(stay))
        if parents is not None:
            held = [held[i] for i in parents.tolist()]
        held = [(*h, t) for h, t in zip(held, stems.token_S.tolist(), strict=True)]
        assert [held[i] for i in stems.of_B.tolist()] == prefix
        assert stems.group_S.tolist() == sorted(h[0] for h in held)
        if len(held) <= APART * len(prefix):
            assert len(set(held)) == len(held)


def test_rows_that_have_parted_are_not_followed_any_more():
    """By hand: 4 of 5 rows differ, which is 0.8 and followed; 5 of 5 are rows from then on."""
    stems = Stems(torch.zeros(5, dtype=torch.int64), 1)
    assert stems.grow(torch.tensor([0, 1, 2, 3, 3]), V, None).tolist() == [0, 0, 0, 0]
    assert stems.of_B.tolist() == [0, 1, 2, 3, 3]
    assert stems.grow(torch.tensor([0, 0, 0, 1, 2]), V, None).tolist() == [0, 1, 2, 3, 3]
    assert stems.of_B.tolist() == [0, 1, 2, 3, 4]
    assert stems.grow(torch.tensor([6, 6, 6, 6, 6]), V, None) is None
    assert stems.token_S.tolist() == [6] * 5
    parents = stems.grow(torch.tensor([1, 2]), V, torch.tensor([0, 4]))
    assert (parents.tolist(), stems.of_B.tolist()) == ([0, 4], [0, 1])
