"""Dynamic sampling with scripted answers: who is asked, who is kept, and what is said about the rest.

A plan spells a prompt's answers by their first letters: R right, W wrong, H half, N none, E the
grader breaks; see toys.Judge.
"""

import pytest

from brorl.errors import EngineError, RunError
from brorl.rollout.engine import check_counts
from brorl.rollout.scripted import ScriptedEngine
from brorl.tasks.problem import Problem
from brorl.tasks.reward_sources import GroundTruth
from brorl.train.collect import Collector, PassRate
from brorl.train.grading import GradingDesk
from brorl.train.groups import Fate
from brorl.train.prompts import PromptSource
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import Kind

from .toys import Judge, Spelling, letters, settings


def collector(plans, *, engine=None, golds=None, **changes):
    """A collector whose prompt i answers by plans[i], repeated as often as asked for."""
    problems = [
        Problem(f"p{i}", "same prompt", golds[i] if golds else None, row={"plan": plan}, task="toy")
        for i, plan in enumerate(plans)
    ]
    by_id = {p.id: p.row["plan"] for p in problems}

    def script(request, index):
        plan = by_id[request.problem_id]
        return letters(f"{plan[index % len(plan)]}{index:03d}", version=engine.version)

    engine = engine or ScriptedEngine(script)
    engine._script = engine._script or script
    s = settings(**changes)
    policy = Spelling()
    desk = GradingDesk(policy, GraderPool(0, 5.0), Judge(), GroundTruth())
    return Collector(s, PromptSource(problems, s.seed, s.data.solved_weight), engine, desk, policy)


def outcome(groups):
    """Problem id to the letters that its group holds, in sample order."""
    return {g.problem.id: "".join(s.text[0] for s in g.samples) for g in groups}


def fates(group):
    return [s.fate for s in group.samples]


# Fixed width


def test_every_prompt_gets_exactly_its_n_and_every_sample_its_index():
    c = collector(["RW", "WR", "RRW"], prompts_per_step=3, rollout={"n": 5})
    out = c.collect(1)
    assert {(r.first, r.n) for r in c.engine.calls} == {(0, 5)}
    for group in out.fresh:
        assert [s.index for s in group.samples] == list(range(5))
        assert [s.text[1:] for s in group.samples] == [f"{i:03d}" for i in range(5)]
    assert outcome(out.kept).items() >= {"p0": "RWRWR", "p1": "WRWRW", "p2": "RRWRR"}.items()


def test_equal_prompts_are_separate_groups_with_streams_of_their_own():
    """One problem drawn three times, and two problems with one text: five groups, five seeds."""
    c = collector(["RW"], prompts_per_step=3, dynamic_sampling={"enable": False})
    assert [g.id for g in c.collect(1).kept] == ["p0#0", "p0#1", "p0#2"]
    other = collector(["RW", "WR"], prompts_per_step=2, dynamic_sampling={"enable": False})
    other.collect(1)
    calls = [*c.engine.calls, *other.engine.calls[1:]]
    assert {tuple(r.prompt) for r in calls} == {calls[0].prompt}
    assert len({r.seed for r in calls}) == 4


def test_each_step_draws_afresh_and_the_same_step_alike():
    runs = []
    for _ in range(2):
        c = collector(["RW"] * 4, prompts_per_step=2, dynamic_sampling={"enable": False})
        c.collect(1)
        c.collect(2)
        runs.append([(r.group_id, r.seed) for r in c.engine.calls])
    assert runs[0] == runs[1]
    assert len({seed for _, seed in runs[0]}) == 4


def test_rewards_that_reveal_the_order_land_on_their_own_prompts():
    """An answer is right only where it spells its own problem's gold: a shift scores 0."""
    golds = ["aa", "bb", "cc", "dd"]
    engine = ScriptedEngine(
        lambda r, i: letters(f"R{golds[int(r.problem_id[1:])]}" if i == 2 else "Wxx")
    )
    c = collector(["R"] * 4, engine=engine, golds=golds, prompts_per_step=4,
                  dynamic_sampling={"oversample": 1.0})  # fmt: skip
    out = c.collect(1)
    assert len(out.kept) == 4
    for group in out.kept:
        assert [s.raw for s in group.samples] == [0.0, 0.0, 1.0, 0.0]
        assert group.samples[2].text == f"R{group.problem.gold}"


class Piecemeal(ScriptedEngine):
    """Hands finished parts over last prompt first and last samples first."""

    def sample(self, requests, sampling, on_finished=None):
        groups = super().sample(requests, sampling)
        for index in reversed(range(len(requests))):
            for offset in reversed(range(len(groups[index]))):
                on_finished(index, offset, groups[index][offset : offset + 1])
        return groups


def test_parts_that_finish_in_any_order_are_put_in_sample_order():
    out = collector(["RWH"] * 2, engine=Piecemeal(None), rollout={"n": 6}).collect(1)
    for group in out.kept:
        assert [s.text for s in group.samples] == [f"{'RWH'[i % 3]}{i:03d}" for i in range(6)]
        assert [s.raw for s in group.samples] == [1.0, 0.0, 0.5] * 2


class Short(ScriptedEngine):
    """Forgets the last sample of the last prompt."""

    def sample(self, requests, sampling, on_finished=None):
        groups = super().sample(requests, sampling, on_finished)
        groups[-1].pop()
        return groups


class Silent(ScriptedEngine):
    """Returns everything and hands over nothing."""

    def sample(self, requests, sampling, on_finished=None):
        return super().sample(requests, sampling, None)


def test_a_short_group_is_refused_by_name():
    with pytest.raises(EngineError, match=r"problem p\d: asked for 4 samples, got 3"):
        collector(["RW"] * 2, engine=Short(None)).collect(1)
    with pytest.raises(RunError, match=r"problem p\d: needs samples 0 ... 3, got 0"):
        collector(["RW"] * 2, engine=Silent(None)).collect(1)
    with pytest.raises(EngineError, match="asked for 1 groups, the engine gave 0"):
        check_counts([None], [])


# Waves

WAVES = {"waves": [2, 4, 8], "stop_right": 2}


def test_groups_grow_until_two_right_answers_or_the_last_wave():
    """RR stops at 2; RWR finds its second right one in the wave to 4; W goes to 8."""
    c = collector(["RR", "RWRW", "WWWWWWRR", "W"], prompts_per_step=4, rollout=WAVES,
                  dynamic_sampling={"oversample": 1.0, "max_gen_batches": 1})  # fmt: skip
    out = c.collect(1)
    want = {"p0": "RR", "p1": "RWRW", "p2": "WWWWWWRR", "p3": "WWWWWWWW"}
    assert outcome(out.fresh) == want
    asked = {p: [(r.first, r.n) for r in c.engine.calls if r.problem_id == p] for p in want}
    assert asked == {
        "p0": [(0, 2)],
        "p1": [(0, 2), (2, 2)],
        "p2": [(0, 2), (2, 2), (4, 4)],
        "p3": [(0, 2), (2, 2), (4, 4)],
    }
    assert out.escalated == {2: 4, 4: 3, 8: 2}
    assert {g.problem.id for g in out.kept} == {"p1", "p2"}
    assert (out.counts.solved_all, out.counts.dropped_right, out.counts.dropped_wrong) == (1, 1, 1)


def test_a_wave_has_the_stream_of_its_group():
    c = collector(["W"], prompts_per_step=1, rollout=WAVES, dynamic_sampling={"max_gen_batches": 1})
    c.collect(1)
    for name in {r.group_id for r in c.engine.calls}:
        assert len({r.seed for r in c.engine.calls if r.group_id == name}) == 1


def test_an_answer_that_could_not_be_graded_makes_no_group_grow_further_than_planned():
    """REWW: one right of three graded after 4 asked for, so on to 8, where the second is found."""
    c = collector(["REWWWWRW"], prompts_per_step=1, rollout=WAVES,
                  dynamic_sampling={"oversample": 1.0, "max_gen_batches": 1})  # fmt: skip
    (group,) = c.collect(1).kept
    assert len(group.samples) == 8
    assert len(group.counting) == 7
    assert group.before((2, 4, 8)) == 3


def test_samples_before_the_last_wave_that_was_graded():
    """Of 8 asked for, all of the last wave fell to the grader: the last wave is that to 4."""
    c = collector(["RWWWEEEE"], prompts_per_step=1, rollout=WAVES,
                  dynamic_sampling={"oversample": 1.0, "max_gen_batches": 1})  # fmt: skip
    (group,) = c.collect(1).kept
    assert (len(group.counting), group.before((2, 4, 8)), group.before((8,))) == (4, 2, 0)


# The filter


def test_filter_looks_at_raw_scores():
    """All wrong stays out however the answers differ; part credit has spread for score alone."""
    plans = {"W": False, "N": False, "WN": False, "H": False, "R": False, "HW": True, "RH": True,
             "RW": True, "RN": True}  # fmt: skip
    n = len(plans)
    once = {"oversample": 1.0, "max_gen_batches": 1}
    out = collector(list(plans), prompts_per_step=n, dynamic_sampling=once).collect(1)
    assert {g.problem.row["plan"]: g in out.kept for g in out.fresh} == plans
    assert (out.counts.dropped_wrong, out.counts.dropped_flat, out.counts.dropped_right) == (
        3,
        1,
        1,
    )
    by_accuracy = once | {"metric": "accuracy"}
    out = collector(list(plans), prompts_per_step=n, dynamic_sampling=by_accuracy).collect(1)
    assert {g.problem.row["plan"] for g in out.kept} == {"RH", "RW", "RN"}


def test_grader_errors_leave_the_group_and_a_group_of_one_has_no_spread():
    once = {"oversample": 1.0, "max_gen_batches": 1}
    c = collector(["RWEE", "REEE", "EEEE"], prompts_per_step=3, dynamic_sampling=once)
    groups = {g.problem.id: g for g in c.collect(1).fresh}
    assert fates(groups["p0"]) == [Fate.KEPT] * 2 + [Fate.GRADER_ERROR] * 2
    assert fates(groups["p1"]) == [Fate.NO_SPREAD] + [Fate.GRADER_ERROR] * 3
    assert fates(groups["p2"]) == [Fate.GRADER_ERROR] * 4
    assert [s.verdict.kind for s in groups["p0"].samples][2:] == [Kind.GRADER_ERROR] * 2
    assert [len(g.counting) for g in groups.values()].count(0) == 1


def test_a_grader_that_fails_on_everything_stops_the_run_and_says_why():
    with pytest.raises(RunError, match=r"none of 24 answers could be graded.*broken on purpose"):
        collector(["E"] * 3, dynamic_sampling={"max_gen_batches": 1}, rollout={"n": 6}).collect(2)


def test_without_dynamic_sampling_every_group_is_kept_in_one_round():
    c = collector(["R", "W", "RW", "W"], prompts_per_step=4, dynamic_sampling={"enable": False})
    out = c.collect(1)
    assert (len(out.kept), len(c.engine.calls), out.rounds) == (4, 4, 1)
    assert (out.counts.kept, out.counts.dropped_wrong) == (1, 2)  # counted all the same


# Refill


def test_a_round_asks_for_the_missing_over_the_pass_rate():
    """Target 4. Round 1: 4 / (1/2) = 8 asked, 2 kept. Rate (2+1)/(8+2) = 0.3: 2 / 0.3 = 7 asked."""
    plans = ["RW"] * 2 + ["W"] * 14
    c = collector(plans, prompts_per_step=4, dynamic_sampling={"max_gen_batches": 2})
    c.source._order = list(range(16))
    out = c.collect(1)
    assert (len(out.fresh), len(out.kept), out.rounds) == (15, 2, 2)


def test_a_round_never_asks_for_more_than_oversample_batches():
    c = collector(["W"] * 50, prompts_per_step=4,
                  dynamic_sampling={"oversample": 1.5, "max_gen_batches": 3})  # fmt: skip
    assert len(c.collect(1).fresh) == 3 * 6


def test_no_round_begins_once_there_are_enough():
    c = collector(["RW"] * 8, prompts_per_step=2)
    out = c.collect(1)
    assert (out.rounds, len(out.kept), len(out.fresh), out.found) == (1, 2, 4, 4)


def test_pass_rate_by_hand_and_never_zero():
    """(1 of 2 made up) -> (0+1)/(8+2); then 0.9·8 + 4 = 11.2: (3+1)/(11.2+2)."""
    rate = PassRate()
    assert rate.value == 0.5
    rate.update(0, 8)
    assert rate.value == pytest.approx(0.1)
    rate.update(3, 4)
    assert rate.value == pytest.approx(4 / 13.2)
    for _ in range(500):
        rate.update(0, 10**9)
    assert 0 < rate.value < 1e-6


# Exhaustion

HARD = ["RW"] + ["W"] * 9
EASY = ["RW"] + ["R"] * 9


def exhausted(plans, **dynamic):
    c = collector(plans, prompts_per_step=2, dynamic_sampling={"max_gen_batches": 2} | dynamic)
    c.source._order = list(range(len(plans)))
    return c


def test_exhausted_train_takes_what_there_is():
    out = exhausted(HARD, on_exhausted="train").collect(1)
    assert outcome(out.kept) == {"p0": "RWRW"}
    assert out.rounds == 2


def test_exhausted_skip_trains_on_nothing_and_drops_or_carries_what_was_accepted():
    dropped = exhausted(HARD, on_exhausted="skip")
    out = dropped.collect(1)
    assert (out.kept, dropped.carried) == ([], [])
    assert {f for g in out.fresh if g.problem.id == "p0" for f in fates(g)} == {Fate.SURPLUS}
    carried = exhausted(HARD, on_exhausted="skip", surplus="carry")
    assert carried.collect(1).kept == []
    assert outcome(carried.carried) == {"p0": "RWRW"}


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        (HARD, "mostly all wrong: the prompts are too hard for this width"),
        (EASY, "mostly all right: the prompts are too easy"),
    ],
)
def test_exhausted_stop_says_how_many_and_whether_all_wrong_or_all_right(plans, words):
    with pytest.raises(RunError, match=words) as found:
        exhausted(plans, on_exhausted="stop").collect(5)
    assert str(found.value).startswith("step 5: 1 of 2 groups had answers that disagree after 2 ")


# Surplus


def test_surplus_is_dropped_by_default_and_says_so():
    c = collector(["RW"] * 8, prompts_per_step=2)
    out = c.collect(1)
    extra = [g for g in out.fresh if g not in out.kept]
    assert [fates(g) for g in extra] == [[Fate.SURPLUS] * 4] * 2
    assert (c.carried, out.carry) == ([], [])


def test_carried_groups_come_first_keep_their_version_and_spare_new_ones():
    c = collector(["RW"] * 20, prompts_per_step=3, dynamic_sampling={"surplus": "carry"})
    first = c.collect(1)
    assert (len(first.fresh), len(first.kept), len(c.carried)) == (6, 3, 3)
    kept_back = list(c.carried)
    logprobs = [s.completion.logprobs for g in kept_back for s in g.samples]
    c.engine.weights_changed(2)
    second = c.collect(2)
    assert second.kept == kept_back
    assert (second.fresh, second.rounds, c.carried) == ([], 0, [])
    assert {s.completion.policy_version for g in second.kept for s in g.samples} == {0}
    assert all(
        a is b.completion.logprobs
        for a, b in zip(logprobs, (s for g in second.kept for s in g.samples), strict=True)
    )
    assert {f for g in second.kept for f in fates(g)} == {Fate.KEPT}
    third = c.collect(3)
    assert {s.completion.policy_version for g in third.kept for s in g.samples} == {2}
    assert {g.born for g in third.kept} == {3}


# What the source learns


def test_the_source_hears_the_share_of_right_answers_of_what_was_graded():
    c = collector(["RRRW", "REEE", "EEEE"], prompts_per_step=3,
                  dynamic_sampling={"oversample": 1.0, "max_gen_batches": 1})  # fmt: skip
    c.collect(1)
    assert c.source.last_rate == {"p0": 0.75, "p1": 1.0}
