"""Study `allocation`: its rule on made-up results (hand-computed), and what its arms hold equal."""

import pytest

from brorl.studies import allocation
from brorl.studies.runner.spec import make_spec, plan_runs, settings_of

from .toys import toy_results, toy_run


def judged(narrow, wide, **spent):
    """Final scores of N = 4 and N = 16; what N = 16 spent of a budget, others 1,000."""
    runs = [
        toy_run(f"n{n}", seed, [0.2, score + 0.01 * seed], spent=spent if n == 16 else None,
                metrics={"samples/kept_easy_share": 0.1})
        for seed in (0, 1, 2)
        for n, score in ((4, narrow), (16, wide))
    ]  # fmt: skip
    return allocation.judge(toy_results("allocation", runs, widths=(4, 16), batch=32))


@pytest.mark.parametrize(
    ("ends", "spent", "holds"),
    [
        ((0.8, 0.5), {}, True),
        ((0.5, 0.8), {}, False),
        ((0.5, 0.5), {}, None),
        # Below at equal samples (0.5 against 0.7), but four times as fast: at its 250 CPU seconds
        # the narrow arm has 0.325, far below 0.5.
        ((0.7, 0.5), {"cpu_seconds": 250.0}, False),
        # A lead at equal updates does not count: half of the updates, 0.5 against 0.45.
        ((0.7, 0.5), {"updates": 500.0}, True),
    ],
)
def test_both_deciding_budgets_must_agree(ends, spent, holds):
    found = judged(*ends, **spent)
    assert found.holds is holds
    assert set(found.figures) == {"generated", "cpu_seconds", "kept", "update_tokens", "updates"}


def test_the_numbers_of_the_sentence_are_those_of_the_comparison():
    """Hand-computed: 0.5 - 0.8 at 1,000 of everything."""
    found = judged(0.8, 0.5)
    assert "N = 16 minus N = 4: -0.300" in found.because
    assert "at 1,000 generated samples" in found.because


def test_arms_differ_in_width_and_prompts_alone_and_updates_are_of_one_size():
    plans = plan_runs(make_spec("allocation", seeds=2))
    made = [settings_of(p) for p in plans if p.seed == 0]
    assert {s.samples_per_step for s in made} == {512}
    changed = [
        {k for k, v in s.model_dump().items() if v != made[0].model_dump()[k]} for s in made[1:]
    ]
    assert all(c == {"name", "rollout", "prompts_per_step"} for c in changed)
    assert {(s.num_minibatches, s.lr, s.lr_scaling) for s in made} == {
        (made[0].num_minibatches, made[0].lr, "none")
    }
