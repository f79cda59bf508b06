"""Which prompt comes next: every one in every epoch, no matter where a run was stopped."""

import json
import math

import pytest

from brorl.errors import DataError
from brorl.train.prompts import PromptSource

from .toys import problem


def source(count=10, seed=1, weight=1.0):
    return PromptSource([problem(f"p{i}") for i in range(count)], seed, weight)


def ids(draws):
    return [d.problem.id for d in draws]


def test_an_epoch_draws_every_prompt_once_and_the_next_in_another_order():
    s = source()
    first, second, third = (ids(s.draw(10)) for _ in range(3))
    assert sorted(first) == sorted(second) == sorted(third) == sorted(f"p{i}" for i in range(10))
    assert len({tuple(first), tuple(second), tuple(third)}) == 3


def test_the_order_depends_on_the_seed_and_not_on_how_many_are_asked_for():
    a, b, c = source(seed=1), source(seed=1), source(seed=2)
    many = ids(a.draw(24))
    assert many == [i for n in (1, 5, 0, 7, 11) for i in ids(b.draw(n))]
    assert many != ids(c.draw(24))


def test_a_draw_has_a_name_of_its_own():
    """The same prompt twice is two groups: one prompt, six draws, six names."""
    names = [d.group_id for d in source(count=1).draw(6)]
    assert names == [f"p0#{i}" for i in range(6)]


@pytest.mark.parametrize("done", [0, 3, 10, 17])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_a_restored_source_goes_on_as_if_never_stopped(done, weight):
    whole, broken = source(weight=weight), source(weight=weight)
    for s in (whole, broken):
        for i in range(8):
            s.saw(f"p{i}", 1.0)
        s.draw(done)
    state = json.loads(json.dumps(broken.state()))
    fresh = source(weight=weight)
    fresh.restore(state)
    assert [d.group_id for d in whole.draw(25)] == [d.group_id for d in fresh.draw(25)]
    assert whole.state() == fresh.state()


def test_solved_prompts_come_with_their_weight_and_unsolved_ones_always():
    """Statistical: 600 epochs, 6 of 12 prompts solved (>= 0.9), weight 1/4; 4 sigma."""
    s = source(count=12, weight=0.25)
    for i in range(12):
        s.saw(f"p{i}", 0.9 if i < 6 else 0.89)
    counts = dict.fromkeys(ids(source(count=12).draw(12)), 0)
    while s.epoch < 600:
        for name in ids(s.draw(1)):
            counts[name] += 1
    sigma = math.sqrt(600 * 0.25 * 0.75)
    for i in range(6):
        assert abs(counts[f"p{i}"] - 150) < 4 * sigma + 1
        assert abs(counts[f"p{i + 6}"] - 600) <= 1  # the last epoch has just begun


def test_a_prompt_that_is_no_longer_solved_comes_back_in_full():
    s = source(count=2, weight=1e-6)
    s.saw("p0", 1.0)
    assert set(ids(s.draw(20))) == {"p1"}
    s.saw("p0", 0.5)
    assert ids(s.draw(20)).count("p0") in (9, 10, 11)


def test_a_weight_of_zero_passes_over_a_prompt_after_so_many_solved_visits_in_a_row():
    """All right twice running leaves; once, or 15 of 16, or twice with a miss between, stays."""
    s = PromptSource([problem(f"p{i}") for i in range(5)], 1, 0.0, 1.0, 2)
    seen = {"p0": [1, 1], "p1": [1], "p2": [1, 15 / 16], "p3": [1, 0, 1], "p4": [0, 1, 1, 1]}
    for name, rates in seen.items():
        for rate in rates:
            s.saw(name, rate)
    assert sorted(set(ids(s.draw(60)))) == ["p1", "p2", "p3"]
    again = PromptSource([problem(f"p{i}") for i in range(5)], 1, 0.0, 1.0, 2)
    again.restore(json.loads(json.dumps(s.state())))
    assert ids(again.draw(30)) == ids(s.draw(30))


@pytest.mark.timeout(20)
def test_all_prompts_solved_with_a_weight_near_zero_is_no_endless_loop():
    """Attack: each epoch would pass over every prompt about 1e12 times in a row."""
    s = source(count=5, weight=1e-12)
    for i in range(5):
        s.saw(f"p{i}", 1.0)
    assert len(set(ids(s.draw(60)))) == 5


def test_refuses_no_prompts_repeated_ids_and_a_state_of_other_data():
    with pytest.raises(DataError, match="at least one training problem"):
        PromptSource([], 0, 1.0)
    with pytest.raises(DataError, match="'b' comes twice"):
        PromptSource([problem("a"), problem("b"), problem("b")], 0, 1.0)
    s = source(count=10)
    s.draw(8)
    with pytest.raises(DataError, match="stands at prompt 8 of 4: the training data has changed"):
        source(count=4).restore(s.state())


def test_what_is_upcoming_is_what_is_drawn():
    """Identity, at every place of two epochs, and looking changes nothing."""
    looked, plain = source(5), source(5)
    for _ in range(10):
        told = looked.upcoming(3)
        assert looked.upcoming(1) == told[:1]
        (drawn,) = looked.draw(1)
        assert [drawn] == told[:1] == plain.draw(1)
    assert looked.state() == plain.state()
