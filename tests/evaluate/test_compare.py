"""Comparisons of constructed evaluations: numbers by hand, refusals, and what may be claimed."""

import numpy as np
import pytest

from brorl.errors import DataError
from brorl.evaluate.compare import Knobs, claim, compare_arms, correct_for_arms
from brorl.evaluate.pairing import Arm, metric, pair_arms
from brorl.evaluate.regimes import regimes
from brorl.seeds import generator
from brorl.stats.paired import paired_t

from .evaluations import evaluation, problem, suite

KNOBS = Knobs(
    metric="score", level=0.95, power=0.8, exact_up_to=12, draws=2000, seed=0, common=False
)


def arm(name, *evaluations):
    return Arm(name, tuple((f"{name}{i}.json", e) for i, e in enumerate(evaluations)))


def one(counts, *, name="own", n=16, task=None, seed=0, **options):
    """One suite; problem i of task i // 5 unless one task is named."""
    rows = [
        problem(f"p{i}", int(c), n, task=task or f"t{i // 5}", category="c")
        for i, c in enumerate(counts)
    ]
    return evaluation({name: suite(rows)}, seed=seed, samples=n, **options)


def counts(seed, k=60, shift=0.0):
    rng = generator(seed, "counts")
    return rng.binomial(16, np.clip(rng.beta(1, 1, k) * 0.8 + shift, 0, 1))


def test_by_hand():
    """Counts of 4: A 1, 2, 3 and B 2, 2, 4 give differences .25, 0, .25: mean 1/6, s.d.
    0.144338, standard error 1/12, t = 2 with 2 degrees of freedom, two wins and a tie."""
    a, b = (one(c, n=4, task="t") for c in ([1, 2, 3], [2, 2, 4]))
    got = compare_arms(arm("a", a), arm("b", b), KNOBS)
    assert got.headline.difference.value == pytest.approx(1 / 6)
    assert (got.headline.t, got.headline.df) == pytest.approx((2.0, 2))
    assert got.standard_error == pytest.approx(1 / 12)
    assert got.counts == (2, 1, 0)
    assert got.effect_size == pytest.approx(2 / np.sqrt(3))
    assert (got.mean_a.value, got.mean_b.value) == pytest.approx((0.5, 2 / 3))
    # signs of two nonzero differences: ++ and -- of four reach the observed sum
    assert got.permutation == (0.5, True, 4)
    assert got.wilcoxon == 0.5
    assert (got.by_runs, got.by_benchmark, got.by_task) == (None, None, None)


def test_two_problems_are_enough_to_try():
    """By hand: differences 0 and 1/2; one degree of freedom."""
    a, b = (one(c, n=4, task="t") for c in ([1, 2], [1, 4]))
    got = compare_arms(arm("a", a), arm("b", b), KNOBS)
    assert (got.problems, got.headline.df) == (2, 1)


def test_order_of_problems_does_not_matter_and_ids_do():
    """Identity: pairs are made by row id, whatever the order in the file."""
    a, b = one(counts(1)), one(counts(2))
    own = b.suites["own"]
    turned = own.model_copy(update={"problems": own.problems[::-1]})
    shuffled = b.model_copy(update={"suites": {"own": turned}})
    first, second = (compare_arms(arm("a", a), arm("b", x), KNOBS) for x in (b, shuffled))
    assert first == second


def test_swapping_the_arms_turns_the_signs():
    """Identity."""
    a, b = arm("a", one(counts(1))), arm("b", one(counts(2)))
    x, y = compare_arms(a, b, KNOBS), compare_arms(b, a, KNOBS)
    d = x.headline.difference
    assert y.headline.difference == pytest.approx((-d.value, -d.high, -d.low))
    assert y.counts == x.counts[::-1]
    assert y.permutation == x.permutation
    assert y.effect_size == pytest.approx(-x.effect_size)


def test_an_evaluation_against_itself():
    """By hand: no difference, p 1, nothing detectable hidden, and no claim."""
    a = one(counts(1))
    got = compare_arms(arm("a", a), arm("b", a), KNOBS)
    assert got.headline.difference == (0, 0, 0)
    assert (got.headline.p_two_sided, got.permutation.p_two_sided, got.wilcoxon) == (1, 1, 1)
    assert got.smallest_detectable == 0.0
    assert claim(got).startswith("No difference may be claimed")


def test_partial_credit_stays_partial():
    """By hand: B's wrong answers score 0.5, so its mean score rises while pass@1 is as before."""
    rows = [
        [problem(f"p{i}", 2, 4, wrong=w, task="t", category="c") for i in range(3)]
        for w in (0.0, 0.5)
    ]
    a, b = (arm(name, evaluation({"own": suite(r)})) for name, r in zip("ab", rows, strict=True))
    assert compare_arms(a, b, KNOBS).headline.difference.value == pytest.approx(0.25)
    by_success = compare_arms(a, b, KNOBS._replace(metric="pass@1"))
    assert by_success.headline.difference.value == 0.0


def test_benchmarks_and_tasks_by_themselves():
    """Identity: each part is the paired t-test of its own problems; Holm over the parts."""
    x, y = counts(1), counts(1, shift=0.05)
    halves = [
        evaluation(
            {
                "first": suite([problem(f"p{i}", int(c), 16) for i, c in enumerate(z[:30])]),
                "second": suite([problem(f"p{i}", int(c), 16) for i, c in enumerate(z[30:])]),
            },
            samples=16,
        )
        for z in (x, y)
    ]
    got = compare_arms(arm("a", halves[0]), arm("b", halves[1]), KNOBS)
    d = (y - x) / 16
    want = [paired_t(part, level=0.95) for part in (d[:30], d[30:])]
    assert [p.name for p in got.benchmarks] == ["first", "second"]
    for part, test in zip(got.benchmarks, want, strict=True):
        assert part.difference == pytest.approx(test.difference)
        assert part.p == pytest.approx(test.p_two_sided)
    small, large = sorted(t.p_two_sided for t in want)
    held = sorted(p.p_holm for p in got.benchmarks)
    assert held == pytest.approx([min(1, 2 * small), max(min(1, 2 * small), large)])
    assert got.by_benchmark.clusters == 2
    assert got.by_task.clusters == 2  # task "t" of each suite


def test_several_runs_widen_a_claim_to_the_recipe():
    """Statistical by construction: two runs an arm whose levels differ by far more than problems
    do: the interval over runs must be wider, and one run an arm must say what it lacks."""
    a = [one(np.full(60, c) + counts(s) % 2, seed=s) for s, c in ((1, 4), (2, 9))]
    b = [one(np.full(60, c) + counts(s) % 2, seed=s) for s, c in ((3, 8), (4, 13))]
    alone = compare_arms(arm("a", a[0]), arm("b", b[0]), KNOBS)
    several = compare_arms(arm("a", *a), arm("b", *b), KNOBS)
    assert "for these checkpoints, not for their recipes" in claim(alone)
    assert "one run of a and of b" in alone.notes[-1]
    assert several.by_runs is not None
    assert several.notes == ()
    assert several.headline.difference.value == pytest.approx(0.25, abs=0.02)
    assert several.headline.difference.low < 0 < several.headline.difference.high
    assert claim(several).startswith("No difference may be claimed")
    mixed = compare_arms(arm("a", *a), arm("b", b[0]), KNOBS)
    assert mixed.by_runs is None
    assert mixed.notes[-1].startswith("one run of b:")


def test_a_gain_in_one_task_only_is_said_to_rest_on_it():
    """By construction: 60 of 120 problems, all of one task, gain 4 of 16; the other eleven tasks
    do not move. Over problems that is certain; over tasks it is one of twelve."""
    base = np.tile([3, 5, 7, 9], 30)
    task = ["big"] * 60 + [f"t{i // 6}" for i in range(60)]

    def build(c):
        rows = [
            problem(f"p{i}", int(x), 16, task=t, category="c")
            for i, (x, t) in enumerate(zip(c, task, strict=True))
        ]
        return evaluation({"own": suite(rows)}, samples=16)

    up = base + np.where(np.arange(120) < 60, 4, 0)
    got = compare_arms(arm("a", build(base)), arm("b", build(up)), KNOBS)
    assert got.headline.p_two_sided < 1e-10
    assert got.by_task.test.difference.low < 0
    assert "with tasks as what was drawn the interval holds 0" in claim(got)
    assert got.tasks[0].p_holm == 0.0
    assert got.by_task.design_effect > 20


def test_holm_over_arms():
    """By hand: two arms against one reference, the smaller p doubled."""
    a = arm("a", one(counts(1)))
    found = [compare_arms(a, arm("b", one(counts(1, shift=s))), KNOBS) for s in (0.03, 0.06)]
    p = [c.headline.p_two_sided for c in found]
    assert p[1] < p[0]
    assert correct_for_arms(found) == pytest.approx([max(p[0], 2 * p[1]), min(1, 2 * p[1])])


def refused(a, b, **change):
    with pytest.raises(DataError) as caught:
        compare_arms(a, b, KNOBS._replace(**change))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unlike_evaluations_are_refused_by_name():
    base = one(counts(1))
    a = arm("a", base)
    other = base.suites["own"]

    def with_suite(**change):
        return arm(
            "b", base.model_copy(update={"suites": {"own": other.model_copy(update=change)}})
        )

    assert "temperature: 0.6 and 1.0" in refused(a, arm("b", one(counts(2), temperature=1.0)))
    assert "differ in verifier of suite own: 'exact 1' and 'exact 2'" in refused(
        a, with_suite(verifier="exact 2")
    )
    assert "differ in prompt" in refused(a, with_suite(prompt="Q: {prompt}"))
    assert "differ in source_sha256" in refused(a, with_suite(source_sha256="11"))
    assert "only one has own, x" in refused(a, arm("b", one(counts(1), name="x")))
    fewer = refused(a, with_suite(problems=other.problems[1:]))
    assert "only one has p0 (1 in all)" in fewer
    assert "--common" in fewer
    assert "needs at least 2 problems" in refused(*(arm(n, one([3])) for n in "ab"))
    same = arm("b", base, base.model_copy(update={"versions": {}}))
    assert "are the same evaluation: one run cannot count twice" in refused(a, same)


def test_common_problems_only_and_said_so():
    """By hand: 60 problems, B lacks 2 of them and has a suite of its own."""
    a, b = one(counts(1)), one(counts(2))
    fewer = b.suites["own"].model_copy(update={"problems": b.suites["own"].problems[2:]})
    b = b.model_copy(update={"suites": {"own": fewer, "x": fewer}})
    got = compare_arms(arm("a", a), arm("b", b), KNOBS._replace(common=True))
    assert got.problems == 58
    assert "suite x is not in every evaluation: left out" in got.notes
    assert "suite own: 2 problems are not in every evaluation: left out" in got.notes
    assert "share no problem" in refused(
        arm("a", a), arm("b", one(counts(1), name="y")), common=True
    )


def test_what_does_not_bias_is_named():
    """Other numbers of samples, engines and library versions are let pass and noted."""
    a = one(counts(1))
    b = one(counts(2) // 2, n=8)
    b = b.model_copy(update={"versions": {"brorl": "1"}})
    notes = compare_arms(arm("a", a), arm("b", b), KNOBS).notes
    assert "samples: 16 and 8" in notes
    assert "version of brorl: 0 and 1" in notes


def test_metrics_by_name():
    p = problem("p", 1, 4, wrong=0.5)
    assert metric("score")(p) == pytest.approx(0.625)
    assert metric("pass@2")(p) == pytest.approx(0.5)
    with pytest.raises(DataError, match="pass@8 needs 8 samples, problem p has 4"):
        metric("pass@8")(p)
    for bad in ("pass", "pass@", "pass@0", "pass@-1", "pass@x", "best@4", "pass@²"):
        with pytest.raises(DataError, match="need metric score or pass@K"):
            metric(bad)


def test_pairs_by_suite_and_id():
    """By hand: equal ids in two suites are two problems."""
    both = {"x": suite([problem("1", 1)]), "y": suite([problem("1", 4)])}
    paired = pair_arms(
        arm("a", evaluation(both)), arm("b", evaluation(both)), value=metric("score"), common=False
    )
    assert paired.a_SK.tolist() == [[0.25, 1.0]]
    assert [r.suite for r in paired.rows] == ["x", "y"]


def test_regimes_by_construction():
    """The three rows of the paper's figure: both rise, A falls and B rises, neither moves."""
    rng = generator(0, "regimes")
    start = rng.integers(5, 11, 40)
    moves = {"up": (3, 5), "apart": (-3, 3), "still": (0, 0)}

    def build(which):
        rows = []
        for task, move in moves.items():
            shift = 0 if which is None else move[which]
            wiggle = rng.integers(-1, 2, 40)
            rows += [
                problem(f"{task}{i}", int(c + shift + w), 16, task=task, category="c")
                for i, (c, w) in enumerate(zip(start, wiggle, strict=True))
            ]
        return evaluation({"own": suite(rows)}, samples=16)

    got = regimes(arm("s", build(None)), arm("a", build(0)), arm("b", build(1)), KNOBS)
    assert {r.task: r.regime for r in got} == {
        "up": "A rises, B rises",
        "apart": "A falls, B rises",
        "still": "A shows no change, B shows no change",
    }
    assert got[0].problems == 40
    assert got[0].b_over_a.low > 0
    assert got[0].change_b.value - got[0].change_a.value == pytest.approx(got[0].b_over_a.value)


def test_regimes_of_small_tasks():
    """A task of one problem has no interval and is left out; one of two is shown."""
    rows = [problem("x", 1, task="single"), *(problem(f"y{i}", 2, task="pair") for i in (0, 1))]
    same = evaluation({"own": suite(rows)})
    (found,) = regimes(arm("s", same), arm("a", same), arm("b", same), KNOBS)
    assert (found.task, found.problems) == ("pair", 2)
    assert found.regime == "A shows no change, B shows no change"
