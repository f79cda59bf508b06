"""Kinds of surprise by hand, and the turns that every kind gets."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.report.groups import Group
from brorl.report.surprise import KINDS, kind_of, pick


def a_group(right, n, *, row=0, top=0.3, **fields):
    plain = {
        "group_id": f"g{row}",
        "problem_id": "p",
        "born": 1,
        "first_row": row,
        "n": n,
        "graded": n,
        "right": right,
        "kept": 0,
        "fates": {},
        "truncated": 0,
        "disputed": 0,
        "unread": 0,
        "distinct": 3,
        "top_answer": "a",
        "top_share": top,
        "top_right": False,
    }
    return Group(**(plain | fields))


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        (a_group(1, 64), "rare success"),
        (a_group(8, 64), "rare success"),  # 1/8 exactly
        (a_group(9, 64), "divided"),
        (a_group(55, 64), "divided"),
        (a_group(56, 64), "rare failure"),  # 7/8 exactly
        (a_group(63, 64), "rare failure"),
        (a_group(64, 64), "all right"),
        (a_group(0, 64), "all wrong"),
        (a_group(0, 64, top=0.5), "agreed on a wrong answer"),
        (a_group(0, 64, truncated=16), "often cut off"),
        (a_group(0, 64, truncated=15), "all wrong"),
        (a_group(32, 64, disputed=1), "reward and true score differ"),
        (a_group(32, 64, unread=8), "divided"),  # 1/8 is not yet trouble
        (a_group(32, 64, unread=9), "grading trouble"),
        (a_group(0, 4, graded=0, unread=0), "nothing graded"),
    ],
)
def test_kinds_by_hand(group, kind):
    assert kind_of(group).name == kind


@given(
    st.lists(
        st.builds(
            lambda n, share, top, cut, row: a_group(
                round(share * n), n, top=top, truncated=cut, row=row
            ),
            st.integers(1, 64),
            st.floats(0, 1),
            st.floats(0, 1),
            st.integers(0, 1),
            st.integers(0, 10_000),
        ),
        max_size=40,
        unique_by=lambda g: g.first_row,
    ),
    st.integers(1, 50),
)
def test_every_kind_gets_its_turn(groups, most):
    """Identity: nothing twice, as many as asked for; a kind has more than one more than another
    only where the other has no more to give; within a kind in order of rank."""
    picked = pick(groups, most)
    assert len(picked) == min(most, len(groups))
    assert len({p.group.first_row for p in picked}) == len(picked)
    there = Counter(kind_of(g).name for g in groups)
    taken = Counter(p.kind for p in picked)
    for a in there:
        for b in there:
            assert taken[b] <= taken[a] + 1 or taken[a] == there[a]
    ranks = {kind.name: i for i, kind in enumerate(KINDS)}
    order = [(ranks[p.kind], KINDS[ranks[p.kind]].rank(p.group)) for p in picked]
    assert order == sorted(order)


def test_the_rarest_success_comes_first():
    groups = [a_group(4, 64, row=0), a_group(1, 64, row=1), a_group(64, 64, row=2)]
    assert [p.group.first_row for p in pick(groups, 2)] == [1, 2]
    assert [p.group.first_row for p in pick(groups, 3)] == [1, 0, 2]
