"""The numbers of a step: by hand for a small one, and never NaN for any."""

import json
import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from brorl.rollout.engine import EngineReport, Stop
from brorl.stats.pass_at_k import pass_at_k
from brorl.train.telemetry import (
    WALL_CLOCK,
    clock_metrics,
    engine_metrics,
    step_metrics,
    without_clock,
)

from .test_step import Bandit, Flaky, bench, cycle, take, word
from .toys import completion


def cut_off(arms):
    return completion(arms, [-math.log(4)] * len(arms), stop=Stop.LENGTH)


def by_problem(plans):
    """A script from problem id to its words."""
    return lambda request, i: plans[request.problem_id][i % len(plans[request.problem_id])]


def metrics_of(plans, **changes):
    once = {"max_gen_batches": 1, "oversample": 1.0}
    base = {"prompts_per_step": len(plans), "dynamic_sampling": once}
    parts = bench(by_problem(plans), problems=len(plans), verifier=Flaky(), **(base | changes))
    result = take(parts, lr=0.1)
    return step_metrics(1, result, parts[2], parts[1].updates), result


THREE = {
    "p0": [word([0]), word([0]), word([1]), cut_off([1, 1, 1])],  # two of four right
    "p1": [word([0])],  # all right, one answer
    "p2": [word([1]), word([2])],  # all wrong, two answers
}


def test_a_step_of_three_groups_by_hand():
    """12 answers, 6 of them right; 14 tokens, one answer cut off; the first group is kept."""
    m, _ = metrics_of(THREE)
    entropy = -(0.5 * math.log(0.5) + 0.5 * math.log(0.25)) + 0 + math.log(2)
    want = {
        "step": 1,
        "updates": 1,
        "groups/sampled": 3,
        "groups/solved_none": 1 / 3,
        "groups/solved_some": 1 / 3,
        "groups/solved_all": 1 / 3,
        "groups/kept": 1,
        "dynamic_sampling/pass_rate": 1 / 3,
        "dynamic_sampling/gen_batches": 1,
        "samples/generated": 12,
        "samples/kept": 4,
        "samples/kept_tokens": 6,
        "samples/stale": 0,
        "samples/kept_easy_share": 0,
        "reward/mean": 0.5,
        "reward/true_mean": 0.5,
        "reward/shaped_mean": 0.5,
        "response/length_mean": 14 / 12,
        "response/truncated_frac": 1 / 12,
        "verdict/correct": 0.5,
        "verdict/wrong": 0.5,
        "verdict/no_answer": 0,
        "verdict/ungradable": 0,
        "verdict/timeout": 0,
        "verdict/grader_error": 0,
        "group/distinct_answers": (3 + 1 + 2) / 3,
        "group/top_answer_share": (0.5 + 1 + 0.5) / 3,
        "group/answer_entropy": entropy / 3,
        "pass@k/1": 0.5,
        "pass@k/2": (5 / 6 + 1 + 0) / 3,
        "pass@k/4": (1 + 1 + 0) / 3,
        "policy/updates": 1,
        "policy/entropy": math.log(4),
        "policy/clipped_frac_low": 0,
        "policy/clipped_frac_high": 0,
        "policy/ratio_overflows": 0,
        "policy/lr": 0.1,
        "mismatch/kl": 0,
        "mismatch/k3": 0,
        "mismatch/ratio_mean": 1,
        "mismatch/ratio_max": 1,
        "mismatch/ess": 1,
    }
    assert {k: m[k] for k in want} == pytest.approx(want, abs=1e-6)
    rest = set(m) - set(want)
    assert rest == {
        "policy/loss", "policy/grad_norm", "width/unsampled_second_moment",
        "width/unsampled_second_moment_expected",
    }  # fmt: skip


def test_width_figures_by_hand():
    """p = 1/4 each. p0 and p2 drew arms {0, 1} and {1, 2}, p1 drew {0}: 2/16, 2/16, 3/16 unsampled;
    expected 4 · (1/16) · (3/4)^4 with 4 answers each."""
    m, _ = metrics_of(THREE)
    assert m["width/unsampled_second_moment"] == pytest.approx((2 + 3 + 2) / 16 / 3)
    assert m["width/unsampled_second_moment_expected"] == pytest.approx(0.25 * 0.75**4)


def test_pass_at_k_is_that_of_stats_at_a_width_that_is_no_power_of_two():
    plans = {"p0": [word([0])] + [word([1])] * 5, "p1": [word([0])] * 4 + [word([1])] * 2}
    m, _ = metrics_of(plans, rollout={"n": 6})
    names = [k for k in m if k.startswith("pass@k/")]
    assert names == ["pass@k/1", "pass@k/2", "pass@k/4", "pass@k/6"]
    for name in names:
        k = int(name.removeprefix("pass@k/"))
        assert m[name] == pytest.approx(float(pass_at_k([1, 4], [6, 6], k).mean()))


def test_kept_samples_of_easy_prompts_are_told_apart():
    """9 of 10 right is easy, 8 of 10 is not: half of the kept samples."""
    plans = {"p0": [word([1])] + [word([0])] * 9, "p1": [word([1])] * 2 + [word([0])] * 8}
    m, _ = metrics_of(plans, rollout={"n": 10})
    assert m["samples/kept_easy_share"] == 0.5


def test_answers_that_could_not_be_graded_are_counted_apart():
    """p0: right, wrong and two failures: the reward mean is over the six graded ones."""
    plans = {"p0": [word([0]), word([1]), word([3]), word([3])], "p1": [word([1])]}
    m, _ = metrics_of(plans)
    assert m["verdict/grader_error"] == 2 / 8
    assert m["reward/mean"] == pytest.approx(1 / 6)
    assert (m["samples/generated"], m["samples/kept"]) == (8, 2)
    assert m["pass@k/4"] == 0.0  # of the whole group alone


def test_surplus_groups_count_as_found_and_carried_ones_as_stale():
    """Two groups with spread, one wanted: the pass rate is 2 / 2; the other is used a step later."""
    plans = {f"p{i}": [word([0]), word([1])] for i in range(4)}
    parts = bench(by_problem(plans), problems=4, rollout={"n": 2}, prompts_per_step=1,
                  dynamic_sampling={"surplus": "carry", "oversample": 2.0})  # fmt: skip
    first, second = (
        step_metrics(step, take(parts, step, lr=0.1), parts[2], step) for step in (1, 2)
    )
    assert (first["dynamic_sampling/pass_rate"], first["groups/kept"]) == (1.0, 1)
    assert (first["samples/stale"], second["samples/stale"]) == (0, 2)
    assert (second["samples/generated"], second["samples/kept"]) == (0, 2)
    assert second["reward/mean"] is None


def test_the_true_score_is_told_beside_the_rewarded_one():
    """A source that pays what is wrong: p0 has 3 of 4 right, so 1/4 is paid."""

    class Contrary:
        name = "contrary"

        def extra(self, problem):
            return None

        def score(self, problem, group_id, index, true, extra):
            return 1.0 - true.score

    words = [word([0]), word([0]), word([0]), word([1])]
    parts = bench(cycle(*words))
    parts[0].desk._reward = Contrary()
    m = step_metrics(1, take(parts), parts[2], 1)
    assert (m["reward/mean"], m["reward/true_mean"]) == (0.25, 0.75)
    assert m["verdict/correct"] == 0.75


def test_clipped_shares_and_loss_are_means_over_tokens_and_updates():
    """Arms at 0.4, 0.23, 0.2, 0.17 against 1/4 sampled; one right answer [0], two wrong [1], [3].

    A = 2/3, -1/3, -1/3; ratios 1.6 (cut at 1.28), 0.92, 0.68 (cut at 0.8), each 1 of 3 tokens.
    With three mini-batches of one token each, and no step between: the mean of their losses.
    """
    parts = bench(cycle(word([0]), word([1]), word([3])), rollout={"n": 3}, num_minibatches=3)
    with torch.no_grad():
        parts[1].policy.logits_V.copy_(torch.tensor([0.4, 0.23, 0.2, 0.17]).log())
    m = step_metrics(1, take(parts, lr=0.0), parts[2], 3)
    assert m["policy/clipped_frac_high"] == pytest.approx(1 / 3)
    assert m["policy/clipped_frac_low"] == pytest.approx(1 / 3)
    want = -(1.28 * 2 / 3 - 0.92 / 3 - 0.8 / 3) / 3
    assert m["policy/loss"] == pytest.approx(want, rel=1e-5)
    two = bench(cycle(word([0]), word([1]), word([0]), word([0])), clip_ratio_high=0.2)
    with torch.no_grad():
        two[1].policy.logits_V.copy_(torch.tensor([0.4, 0.23, 0.2, 0.17]).log())
    m = step_metrics(1, take(two, lr=0.0), two[2], 1)
    assert (m["policy/clipped_frac_high"], m["policy/clipped_frac_low"]) == (0.75, 0.0)


def test_waves_report_where_groups_ended():
    """p0 stops at 2, p1 finds one right in four, p2 none: unsolved at the widest."""
    plans = {
        "p0": [word([0])],
        "p1": [word([1]), word([0]), word([1]), word([1])],
        "p2": [word([1])],
    }
    m, _ = metrics_of(plans, rollout={"waves": [2, 4], "stop_right": 2})
    assert m["groups/escalated_4"] == 2
    assert (m["groups/unsolved_at_max"], m["groups/widest"]) == (1, 4)
    assert m["samples/generated"] == 10


def test_a_step_without_an_update_has_no_policy_figures_and_no_nan():
    m, _ = metrics_of({"p0": [word([1])]})
    assert m["policy/updates"] == 0
    assert not [k for k in m if k.startswith(("policy/", "mismatch/")) and k != "policy/updates"]


def test_kl_is_left_out_where_there_is_no_reference():
    m, _ = metrics_of(THREE)
    assert "policy/kl_ref" not in m


def test_mismatch_is_told_before_and_after_the_mask():
    """The engine claims log 1/4 + 1 for one answer: icepop removes its token (reports.md row 50)."""
    plans = {"p0": [completion([0], [1 - math.log(4)]), word([1])]}
    icepop = {"type": "icepop", "min": 0.5, "cap": 2.0}
    m, _ = metrics_of(plans, rollout={"n": 2}, tis=icepop)
    rho = math.exp(-1)
    assert m["mismatch/masked_frac"] == 0.5
    assert m["mismatch/ratio_mean"] == pytest.approx((1 + rho) / 2)
    assert m["mismatch/kept_ratio_mean"] == pytest.approx(1)
    assert m["mismatch/kept_k3"] == pytest.approx(0, abs=1e-7)


def test_wall_clock_figures_are_told_by_their_prefix():
    m, result = metrics_of(THREE)
    clock = clock_metrics(result, 0.5, 0.25)
    assert set(clock) >= {
        "time/generate", "time/grade", "time/update", "time/eval", "time/other",
        "throughput/generated_samples_per_s", "throughput/kept_samples_per_s",
        "throughput/tokens_per_s", "throughput/grader_queue_max", "throughput/grader_queue_end",
        "memory/peak_rss",
    }  # fmt: skip
    assert all(k.startswith(WALL_CLOCK) for k in clock)
    assert without_clock(m | clock) == m
    assert (clock["time/eval"], clock["time/other"]) == (0.5, 0.25)
    assert clock["throughput/tokens_per_s"] == pytest.approx(
        clock["throughput/generated_samples_per_s"] * 14 / 12
    )


def test_engine_figures_and_what_a_resumed_run_repeats_of_them():
    """By hand. The cache is the machine's affair; the fingerprint is there where there is one."""
    with_one = engine_metrics(EngineReport(kv_cache=4096, fingerprint=2e-7))
    assert with_one == {"memory/kv_cache": 4096, "mismatch/fingerprint": 2e-7}
    without = engine_metrics(EngineReport(kv_cache=4096, fingerprint=None))
    assert without == {"memory/kv_cache": 4096}
    assert without_clock(without) == {}


arms = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@examples(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(
    st.dictionaries(st.sampled_from(["p0", "p1", "p2"]), st.lists(arms, min_size=1, max_size=5),
                    min_size=3),
    st.sampled_from([
        {"rollout": {"n": 4}},
        {"rollout": {"n": 4, "keep_per_group": 2}, "advantage": {"weight": "unbiased"}},
        {"rollout": {"waves": [2, 4, 8], "stop_right": 2}, "advantage": {"baseline": "unbiased"}},
        {"dynamic_sampling": {"enable": False}, "tis": {"type": "tis"}},
    ]),
)  # fmt: skip
def test_no_step_gives_a_figure_that_is_not_finite(words, changes):
    """Attack: any mixture of right, wrong, ungraded (arm 3) and flat groups, in four regimes."""
    plans = {name: [word(w) for w in ws] for name, ws in words.items()}
    assume(any(ws[0][0] != 3 for ws in words.values()))  # else the run stops and says so
    m, result = metrics_of(plans, **changes)
    json.dumps(m | clock_metrics(result, 0.0, 0.0), allow_nan=False)
    shares = [k for k in m if k.startswith(("groups/solved", "verdict/", "pass@k/"))]
    assert all(0 <= m[k] <= 1 for k in shares)
    assert sum(m[f"groups/solved_{x}"] for x in ("none", "some", "all")) in (0, pytest.approx(1))
    assert sum(m[k] for k in m if k.startswith("verdict/")) == pytest.approx(1)


def test_the_bandit_scores_what_it_is_asked():
    """Of the fake above: each token's own log-prob, rows unequal in length."""
    scored = Bandit().score(
        [(9,)], torch.tensor([0, 0]), torch.tensor([[0, 1, 2], [3, 0, 0]]), torch.tensor([3, 1]),
        temperature=1.0,
    )  # fmt: skip
    assert scored.logp_M.tolist() == pytest.approx([-math.log(4)] * 4)
    assert cycle("a", "b")(None, 3) == "b"
