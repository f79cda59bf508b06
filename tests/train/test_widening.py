"""From depth to width: when a wave is added, what is recorded, and that it can be repeated."""

import json

import pytest

from brorl.evaluate.heldout import Heldout
from brorl.evaluate.results import ProblemResult, Votes
from brorl.train.settings import AutoWavesSettings
from brorl.train.widening import Widening, describe, sampling_error
from brorl.verify.verdict import Kind

AUTO = AutoWavesSettings(
    ladder=(4, 16, 64), window=4, smallest_gain=0.05, level=0.95, min_all_wrong=0.1
)


def fed(scores, *, all_wrong=5, error=0.001, settings=AUTO):
    """A Widening that saw one evaluation per ten steps, and the switches it made."""
    widening, made = Widening(settings), []
    for i, score in enumerate(scores):
        widening.saw_groups(20, all_wrong)
        switch = widening.after_eval(10 * i, score, error)
        if switch is not None:
            made.append(switch)
    return widening, made


def test_begins_with_the_first_total():
    assert Widening(AUTO).totals == (4,)


def test_a_flat_line_with_unsolved_prompts_adds_one_wave():
    """Four equal scores: the fifth look would pay more, the first is enough at error 0.001."""
    widening, made = fed([0.5, 0.5, 0.5, 0.5])
    assert [(s.step, s.waves, s.widest, s.cause) for s in made] == [(30, 2, 16, "stall")]
    assert widening.totals == (4, 16)
    assert made[0].all_wrong == 0.25
    assert made[0].gain_low <= 0 <= made[0].gain_high < 0.05
    assert made[0].level == pytest.approx(1 - 0.05 / 2)  # look 1 spends half of the error


def test_a_switch_begins_a_new_window():
    _, made = fed([0.5] * 8)
    assert [s.step for s in made] == [30, 70]
    assert made[1].look == 2


def test_never_beyond_the_ladder():
    widening, made = fed([0.5] * 40)
    assert len(made) == 2
    assert widening.totals == AUTO.ladder


def test_rising_scores_add_nothing():
    assert fed([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])[1] == []


def test_noise_is_no_stall():
    """An evaluation's own error of 0.1 leaves room for a gain of 0.05: undecided, so nothing."""
    assert fed([0.5] * 8, error=0.1)[1] == []


def test_nothing_to_find_adds_nothing():
    """At most one group in twenty all wrong, the rule asks for one in ten."""
    assert fed([0.5] * 8, all_wrong=1)[1] == []


def test_a_falling_line_counts_as_a_stall():
    assert [s.step for s in fed([0.8, 0.7, 0.6, 0.5])[1]] == [30]


def test_state_survives_a_checkpoint():
    """Identity: stopped after any evaluation and restored from JSON, the rest is the same."""
    scores = [0.4, 0.5, 0.5, 0.5, 0.5, 0.51, 0.5, 0.5, 0.5, 0.5]
    whole, made = fed(scores)
    for cut in range(len(scores)):
        first, begun = fed(scores[:cut])
        second = Widening(AUTO)
        second.restore(json.loads(json.dumps(first.state())))
        for i, score in enumerate(scores[cut:], start=cut):
            second.saw_groups(20, 5)
            switch = second.after_eval(10 * i, score, 0.001)
            if switch is not None:
                begun.append(switch)
        assert begun == made
        assert second.state() == whole.state()


def test_replay_repeats_the_switches_and_ignores_the_rule():
    settings = AUTO.model_copy(update={"replay": (3, 7)})
    widening = Widening(settings)
    for step in range(1, 10):
        switch = widening.after_step(step)
        assert (switch is not None) == (step in (3, 7))
        assert widening.after_eval(step, 0.5, 0.001) is None
    assert [s.cause for s in widening.switches] == ["replay", "replay"]
    assert widening.totals == AUTO.ladder


def test_line_names_the_numbers():
    widening, made = fed([0.5] * 4)
    line = describe(made[0], widening.totals)
    assert "[4, 16]" in line
    assert "25.0% of groups all wrong" in line
    assert "look 1" in line


def problem(name, c, n):
    wrong = n - c
    verdicts = {k: v for k, v in ((Kind.CORRECT, c), (Kind.WRONG, wrong)) if v}
    return ProblemResult(
        id=name,
        task="t",
        category="t",
        n=n,
        c=c,
        scores=(1.0,) * c + (0.0,) * wrong,
        tokens=(1,) * n,
        truncated=0,
        verdicts=verdicts,
        answers=(Votes(c, True),) if c else (),
    )


def test_sampling_error_by_hand():
    """c/n = 1/4 and 4/4: variances 1·3 / (16·3) = 1/16 and 0; sqrt(1/16) / 2 = 0.125."""
    result = Heldout([problem("a", 1, 4), problem("b", 4, 4)], {}, 0)
    assert sampling_error(result) == pytest.approx(0.125)
