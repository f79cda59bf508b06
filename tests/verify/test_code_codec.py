"""The codec both ways, and against senders that mean harm."""

import collections
import contextlib
import decimal
import enum
import fractions
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.verify.code_codec import MAX_DEPTH, CodecError, decode, encode

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters()),  # lone surrogates too
    st.binary(),
    st.binary().map(bytearray),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3)),
    st.sampled_from([int, str, dict, frozenset]),
)
keys = atoms.filter(lambda v: not isinstance(v, bytearray))
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.lists(inner).map(collections.deque),
        st.sets(keys),
        st.frozensets(keys),
        st.dictionaries(keys, inner),
    ),
    max_leaves=20,
)


def same(a, b):
    """Equal and of one type all the way down: 1, 1.0 and True are three things."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(
            same(*pair) for pair in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(sorted(map(repr, a))) == repr(sorted(map(repr, b))) if _is_set(a) else a == b


def _is_set(value):
    return isinstance(value, set | frozenset)


@settings(deadline=None, derandomize=True)
@given(values)
def test_values_come_back_with_their_types(value):
    assert same(decode(encode(value)), value)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(values, st.randoms(use_true_random=False))
def test_damaged_bytes_are_refused_or_are_another_value(value, rng):
    """Attack: one byte changed, cut or added; whatever comes out, it is a value or a CodecError."""
    data = bytearray(encode(value))
    match rng.randrange(3):
        case 0:
            data[rng.randrange(len(data))] = rng.randrange(256)
        case 1:
            del data[rng.randrange(len(data)) :]
        case 2:
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
    with contextlib.suppress(CodecError):
        encode(decode(bytes(data), lambda number, flags: number))


def test_random_bytes_are_refused_without_other_errors():
    rng = random.Random(1)
    refused = 0
    for _ in range(20_000):
        data = bytes(rng.choice(b"NTFifcsbBltSZdRqDQon\x00\x01\x02\xff") for _ in range(24))
        try:
            decode(data, lambda number, flags: number)
        except CodecError:
            refused += 1
    assert refused > 19_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"l" + (1 << 60).to_bytes(8, "little"),  # a list of 10^18
        b"s" + (1 << 40).to_bytes(8, "little") + b"a",
        b"S" + (1).to_bytes(8, "little") + encode([]),  # a set of lists
        b"d" + (1).to_bytes(8, "little") + encode({}) + b"N",
        b"R" + encode(0) + encode(9) + encode(0),  # a range without a step
        b"Q" + encode(1) + encode(0),
        b"D" + (3).to_bytes(8, "little") + b"abc",
        b"n" + (4).to_bytes(8, "little") + b"eval",
        b"o" + bytes(9),  # a handle where none can be
        encode(1) + b"N",
    ],
)
def test_malformed_values_are_refused(data):
    with pytest.raises(CodecError):
        decode(data)


def test_nesting_and_cycles_are_bounded():
    deep = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with pytest.raises(CodecError, match="nested 200 deep"):
        encode(deep)
    with pytest.raises(CodecError, match="nested 200 deep"):
        decode((b"l" + (1).to_bytes(8, "little")) * 10_000 + b"N")
    loop = []
    loop.append(loop)
    with pytest.raises(CodecError, match="nested 200 deep"):
        encode(loop)


class Colour(enum.IntEnum):
    RED = 3


class Lie(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class Claim:
    __class__ = int

    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (Colour.RED, 3),
        (Lie(0), 0),
        (Point(1, 2), (1, 2)),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (fractions.Fraction(1, 3), fractions.Fraction(1, 3)),
        (decimal.Decimal("1.10"), decimal.Decimal("1.10")),
    ],
)
def test_instances_of_subclasses_arrive_as_the_type(value, arrives):
    assert same(decode(encode(value)), arrives)


@pytest.mark.parametrize(
    "value", [Claim(), object(), len, Colour, itertools.count(), (x for x in ())]
)
def test_other_objects_travel_as_handles_or_not_at_all(value):
    with pytest.raises(CodecError, match="cannot be sent"):
        encode([value])
    sent = []
    data = encode([value, value], lambda v: (sent.append(v), (7, 1))[1])
    assert [v is value for v in sent] == [True, True]
    assert decode(data, lambda number, flags: (number, flags)) == [(7, 1), (7, 1)]
