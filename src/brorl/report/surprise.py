"""Which groups of a step are worth a look, and why: every kind of surprise gets its turn."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from brorl.report.groups import Group

RARE = 1 / 8
"""A success (or failure) is rare at or below this share of a group's answers."""

_CUT_OFF = 0.25  # share of truncated answers that makes a group worth a look for it
_AGREED = 0.5  # share of one wrong answer that makes a group look sure of itself


class Kind(NamedTuple):
    """A kind of surprise: its name, what fits it, and what comes first within it (ascending)."""

    name: str
    fits: Callable[[Group], bool]
    rank: Callable[[Group], float]


KINDS = (
    Kind("reward and true score differ", lambda g: g.disputed > 0, lambda g: -g.disputed),
    Kind("grading trouble", lambda g: g.unread * 8 > g.n, lambda g: -g.unread / g.n),
    Kind(
        "rare success",
        lambda g: 0 < g.right_share <= RARE,
        lambda g: g.right_share,
    ),
    Kind(
        "agreed on a wrong answer",
        lambda g: g.outcome == "none" and g.top_share >= _AGREED,
        lambda g: -g.top_share,
    ),
    Kind(
        "rare failure",
        lambda g: 1 - RARE <= g.right_share < 1,
        lambda g: -g.right_share,
    ),
    Kind("often cut off", lambda g: g.truncated >= _CUT_OFF * g.n, lambda g: -g.truncated / g.n),
    Kind("all wrong", lambda g: g.outcome == "none", lambda g: g.distinct),
    Kind("divided", lambda g: g.outcome == "some", lambda g: abs(g.right_share - 0.5)),
    Kind("all right", lambda g: g.outcome == "all", lambda g: -g.distinct),
    Kind("nothing graded", lambda g: g.outcome == "ungraded", lambda g: -g.n),
)
"""The most surprising first. A group is of the first kind that fits; the last four fit the rest."""


class Pick(NamedTuple):
    """A group and the kind of surprise it is."""

    kind: str
    group: Group


def pick(groups: Sequence[Group], most: int) -> list[Pick]:
    """At most `most` groups: the first of every kind, then the second of every kind, and so on.

    Returns:
        by kind, the most surprising first. Without such turns a step whose groups are mostly
        all wrong would show nothing else.
    """
    by_kind = {kind.name: _of_kind(kind, groups) for kind in KINDS}
    taken = dict.fromkeys(by_kind, 0)
    while sum(taken.values()) < min(most, len(groups)):
        for name, found in by_kind.items():
            if taken[name] < len(found) and sum(taken.values()) < most:
                taken[name] += 1
    return [Pick(name, g) for name, found in by_kind.items() for g in found[: taken[name]]]


def kind_of(group: Group) -> Kind:
    """The first kind that fits."""
    return next(kind for kind in KINDS if kind.fits(group))


def _of_kind(kind: Kind, groups: Sequence[Group]) -> list[Group]:
    found = [g for g in groups if kind_of(g) is kind]
    return sorted(found, key=lambda g: (kind.rank(g), g.first_row))
