"""The whole step on a policy small enough to know the answer: a bandit with four arms.

An answer is a word of arms, each drawn from one softmax over four logits; answers that begin
with arm 0 are right. Then the same step on a real tiny model, for what a bandit cannot show.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from brorl.policy.token_logprobs import TokenLogprobs
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling, Stop
from brorl.rollout.scripted import ScriptedEngine
from brorl.tasks.reward_sources import GroundTruth
from brorl.train.collect import Collector
from brorl.train.grading import GradingDesk
from brorl.train.prompts import PromptSource
from brorl.train.step import Learner, train_step
from brorl.verify.pool import GraderPool
from brorl.verify.verdict import correct, wrong

from .test_update import plain, weights
from .toys import completion, problem, settings, tiny


class Bandit:
    """A policy without prompts: every token has the log-softmax of the same four logits."""

    def __init__(self):
        self.logits_V = torch.nn.Parameter(torch.zeros(4))
        self.model = SimpleNamespace(parameters=lambda: [self.logits_V])
        self.device = torch.device("cpu")

    def encode(self, text):
        return (9,)

    def decode_all(self, answers):
        return ["".join(str(t) for t in tokens) for tokens in answers]

    def score(self, prompts, group_R, tokens_RT, lengths_R, *, temperature):
        logp_V = (self.logits_V / temperature).log_softmax(0)
        real = torch.arange(tokens_RT.shape[1]) < lengths_R[:, None]
        entropy = -(logp_V.exp() * logp_V).sum()
        chosen = logp_V[tokens_RT[real]]
        return TokenLogprobs(chosen, entropy.detach().expand_as(chosen))

    def read_prompts(self, prompts):
        return SimpleNamespace(last_hidden_GD=torch.zeros(len(prompts), 1))

    def logits(self, hidden):
        return self.logits_V.expand(len(hidden), 4)

    @property
    def z(self):
        return self.logits_V.detach().clone()


class FirstArm:
    """Right where the answer begins with arm 0."""

    def extract(self, text, row):
        return text

    def grade(self, extracted, *, gold, row):
        return correct(extracted, "") if extracted[0] == "0" else wrong(extracted, "")


class Flaky(FirstArm):
    """Breaks on answers that begin with arm 3."""

    def grade(self, extracted, *, gold, row):
        if extracted[0] == "3":
            raise RuntimeError("our fault")
        return super().grade(extracted, gold=gold, row=row)


def word(arms, version=0):
    """An answer sampled at equal logits: log 1/4 a token."""
    return completion(arms, [-math.log(4)] * len(arms), version)


def bench(script, policy=None, engine=None, problems=1, verifier=None, **changes):
    """(collector, learner, settings) of a step with one prompt, plain SGD and bare advantages."""
    base = {"prompts_per_step": 1, "advantage": {"normalise": "none"},
            "dynamic_sampling": {"max_gen_batches": 1, "oversample": 1.0}}  # fmt: skip
    s = settings(**(base | changes))
    policy = policy or Bandit()
    engine = engine or ScriptedEngine(script)
    desk = GradingDesk(policy, GraderPool(0, 5.0), verifier or FirstArm(), GroundTruth())
    source = PromptSource([problem(f"p{i}", f"q{i}=") for i in range(problems)], s.seed, 1.0)
    sgd = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    return Collector(s, source, engine, desk, policy), Learner(policy, sgd, engine, None), s


def take(parts, step=1, lr=1.0):
    collector, learner, s = parts
    return train_step(step, collector, learner, s, lambda update: lr)


def cycle(*words):
    return lambda request, i: words[i % len(words)]


# By hand


def test_moves_logits_by_the_hand_computed_amount():
    """Arms 0 (right) and 1 (wrong), twice each: A = +-1/2, so z moves by +-1/4 and no more."""
    parts = bench(cycle(word([0]), word([1])))
    result = take(parts)
    torch.testing.assert_close(parts[1].policy.z, torch.tensor([0.25, -0.25, 0.0, 0.0]))
    assert (result.report.updates, result.report.tokens) == (1, 4)
    assert (result.report.clipped_low, result.report.clipped_high) == (0, 0)
    assert result.report.loss == pytest.approx(0.0, abs=1e-7)


def test_the_paper_s_scaling_divides_by_the_batch_s_spread():
    """The same with the default: sigma = 1/2, so A = +-1 and z moves by +-1/2."""
    parts = bench(cycle(word([0]), word([1])), advantage={})
    take(parts)
    torch.testing.assert_close(parts[1].policy.z, torch.tensor([0.5, -0.5, 0.0, 0.0]))


@pytest.mark.parametrize("arm", [0, 1])
def test_a_unanimous_group_changes_nothing_and_says_so(arm):
    parts = bench(cycle(word([arm])))
    result = take(parts)
    assert parts[1].policy.z.tolist() == [0.0] * 4
    assert (result.report.updates, parts[1].updates, parts[1].engine.version) == (0, 0, 0)
    counts = result.collected.counts
    assert (counts.groups, counts.kept, counts.solved_all, counts.solved_none) == (
        1, 0, 1 - arm, arm,
    )  # fmt: skip


def test_every_token_counts_once_and_padding_does_not():
    """One right token, two wrong ones: three in the denominator, though the batch is 2 x 2."""
    parts = bench(cycle(word([0]), word([1, 1])), rollout={"n": 2})
    take(parts)
    want = torch.tensor([0.625, -0.875, 0.125, 0.125]) / 3
    torch.testing.assert_close(parts[1].policy.z, want)


def test_answers_count_alike_under_sequence_means():
    """The same answers, each with weight 1/2 whatever its length: +1/4 and -1/4, no rest."""
    parts = bench(cycle(word([0]), word([1, 1])), rollout={"n": 2},
                  loss_agg_mode="seq-mean-token-mean")  # fmt: skip
    take(parts)
    torch.testing.assert_close(parts[1].policy.z, torch.tensor([0.25, -0.25, 0.0, 0.0]))


def test_a_second_update_sees_the_ratio_of_the_first():
    """Two mini-batches of one right and one wrong answer of two tokens, by an unrolled softmax.

    D = 4 tokens each, A = +-1/2. First: r = 1. Second: r = p(arm) / (1/4) at the moved logits,
    none beyond the clip.
    """
    parts = bench(cycle(word([0, 0]), word([1, 1])), rollout={"n": 2}, num_minibatches=1)
    take(parts, lr=0.1)
    z = np.zeros(4)
    p = np.exp(z) / np.exp(z).sum()
    z += 0.1 / 4 * (2 * 0.5 * (np.eye(4)[0] - p) - 2 * 0.5 * (np.eye(4)[1] - p))
    np.testing.assert_allclose(parts[1].policy.z.numpy(), z, atol=1e-7)
    take(parts, step=2, lr=0.1)  # scripted log-probs stay at log 1/4: the old policy
    p = np.exp(z) / np.exp(z).sum()
    slope = sum(2 * a * p[arm] / 0.25 * (np.eye(4)[arm] - p) for arm, a in ((0, 0.5), (1, -0.5)))
    np.testing.assert_allclose(parts[1].policy.z.numpy(), z + 0.1 / 4 * slope, atol=1e-7)


def test_the_clip_stops_what_has_moved_too_far():
    """p(0) = 0.4 against 1/4 sampled: ratio 1.6 > 1.28, so the right arm pulls no more; the wrong
    one, at 0.23 against 1/4, still does (0.92 >= 1 - 0.2)."""
    parts = bench(cycle(word([0]), word([1])), rollout={"n": 2})
    with torch.no_grad():
        parts[1].policy.logits_V.copy_(torch.tensor([0.4, 0.23, 0.2, 0.17]).log())
    before = parts[1].policy.z
    result = take(parts)
    p = torch.tensor([0.4, 0.23, 0.2, 0.17])
    slope = -0.5 * 0.92 * (torch.eye(4)[1] - p) / 2
    torch.testing.assert_close(parts[1].policy.z - before, slope, atol=1e-6, rtol=1e-5)
    assert (result.report.clipped_high, result.report.clipped_low) == (1, 0)


def test_a_group_with_failed_gradings_learns_from_the_rest():
    """Four answers, two of them ungraded by our fault: D = 2, A = +-1/2, as if they were never."""

    parts = bench(cycle(word([0]), word([3]), word([1]), word([3])), verifier=Flaky())
    result = take(parts)
    torch.testing.assert_close(parts[1].policy.z, torch.tensor([0.25, -0.25, 0.0, 0.0]))
    assert result.report.tokens == 2


def test_a_length_term_cannot_put_spread_among_wrong_answers():
    """All wrong, lengths 1 and 3, a strong length term: nothing is kept and nothing moves."""
    parts = bench(cycle(word([1]), word([1, 1, 1])),
                  length_penalty={"enable": True, "max": 0.0, "min": -5.0})  # fmt: skip
    result = take(parts)
    assert (result.collected.kept, result.report.updates) == ([], 0)
    assert parts[1].policy.z.tolist() == [0.0] * 4
    assert len({x.shaped for x in result.collected.fresh[0].samples}) == 2


# Versions, streams, surplus


def test_each_update_makes_a_version_and_the_engine_hears_of_it():
    heard = []

    class Hearing(ScriptedEngine):
        def weights_changed(self, policy_version):
            heard.append(policy_version)
            super().weights_changed(policy_version)

    script = cycle(word([0]), word([1]), word([0, 2]), word([1, 2]))
    parts = bench(script, engine=Hearing(script), num_minibatches=2)
    take(parts)
    take(parts, step=2)
    assert (heard, parts[1].updates) == ([1, 2, 3, 4], 4)


def test_each_step_draws_afresh():
    parts = bench(cycle(word([0])), problems=1)
    for step in (1, 2):
        take(parts, step)
    again = bench(cycle(word([0])), problems=1)
    take(again)
    first, second = parts[0].engine.calls
    assert first == again[0].engine.calls[0]
    assert first.seed != second.seed
    assert first.group_id != second.group_id


def test_stale_groups_keep_version_and_logprobs_through_the_update():
    """Carried, then used after the policy moved: the ratio is taken to what sampled them."""
    seen = []

    class Watching(Bandit):
        def score(self, prompts, group_R, tokens_RT, lengths_R, *, temperature):
            seen.append(len(lengths_R))
            return super().score(prompts, group_R, tokens_RT, lengths_R, temperature=temperature)

    def script(request, i):
        return word([i % 2], version=engine.version)

    engine = ScriptedEngine(script)
    parts = bench(script, policy=Watching(), engine=engine, problems=4, rollout={"n": 2},
                  dynamic_sampling={"surplus": "carry", "oversample": 2.0})  # fmt: skip
    take(parts, lr=0.1)
    z = parts[1].policy.z
    result = take(parts, step=2, lr=0.1)
    (group,) = result.collected.kept
    assert (group.born, result.collected.fresh) == (1, [])
    assert {x.completion.policy_version for x in group.samples} == {0}
    p = z.softmax(0)
    slope = sum(a * p[arm] / 0.25 * (torch.eye(4)[arm] - p) for arm, a in ((0, 0.5), (1, -0.5)))
    torch.testing.assert_close(parts[1].policy.z - z, 0.1 / 2 * slope, atol=1e-6, rtol=1e-5)
    assert seen == [2, 2]  # one forward a step: nothing is scored again


def test_the_step_is_the_same_whatever_the_micro_batches():
    words = [word([0, 2]), word([1]), word([0]), word([1, 3, 3])]
    found = []
    for budget in (1, 5, 10**6):
        parts = bench(cycle(*words), micro_batch_tokens=budget, num_minibatches=2)
        take(parts)
        found.append(parts[1].policy.z)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found[0], found[2], rtol=1e-5, atol=1e-7)


# A real model


class EvenLetter:
    """Right where the first character's code is even; an empty answer is wrong."""

    def extract(self, text, row):
        return text or None

    def grade(self, extracted, *, gold, row):
        return correct(extracted, "") if ord(extracted[0]) % 2 == 0 else wrong(extracted, "")


def real(seed=0, **changes):
    policy = tiny()
    engine = EmbeddedEngine(policy, memory_budget=1 << 20)
    base = {"prompts_per_step": 2, "rollout": {"n": 6, "max_new_tokens": 4}, "num_minibatches": 2,
            "seed": seed, "dynamic_sampling": {"max_gen_batches": 3}}  # fmt: skip
    return bench(None, policy, engine, problems=5, verifier=EvenLetter(), **(base | changes))


def test_after_an_update_the_engine_samples_from_the_new_weights():
    """No stale weights, no stale prompt cache: log-probs are those of the weights as they are."""
    parts = real()
    policy, engine = parts[1].policy, parts[1].engine
    request = Request("same group", "p", policy.encode("q0="), 0, 5, 77)
    sampling = Sampling(1.0, 1.0, 0, 4)

    def gap():
        (group,) = engine.sample([request], sampling)
        rows = [SimpleNamespace(prompt=request.prompt, sample=SimpleNamespace(completion=c))
                for c in group]  # fmt: skip
        worst = max(
            float((plain(policy, r).detach() - torch.tensor(c.logprobs)).abs().max())
            for r, c in zip(rows, group, strict=True)
        )
        return worst, {c.policy_version for c in group}, group[0].logprobs.copy()

    before, versions, old = gap()
    assert versions == {0}
    result = take(parts, lr=3.0)
    assert result.report.updates == 2
    after, versions, new = gap()
    assert max(before, after) < 1e-5
    assert versions == {2}
    assert not np.allclose(old, new, atol=1e-3)


def test_samples_of_a_step_carry_the_version_of_its_beginning():
    parts = real()
    first = take(parts)
    second = take(parts, step=2)
    versions = [
        {x.completion.policy_version for g in r.collected.fresh for x in g.samples}
        for r in (first, second)
    ]
    assert versions == [{0}, {2}]
    assert {x.completion.stop for g in first.collected.fresh for x in g.samples} <= set(Stop)


def test_the_first_ratio_is_one_at_any_temperature():
    """Engine and trainer agree before the first update: mismatch 0, whatever the temperature."""
    for temperature in (0.6, 1.0, 1.7):
        parts = real(rollout={"n": 6, "max_new_tokens": 4, "temperature": temperature})
        found = take(parts).report.mismatch
        assert found.ratio_max == pytest.approx(1, abs=1e-4)
        assert abs(found.kl) < 1e-5


def test_two_runs_of_one_seed_are_equal_bit_for_bit_and_other_seeds_differ():
    def after(seed):
        parts = real(seed)
        for step in (1, 2):
            take(parts, step, lr=0.5)
        return weights(parts[1].policy)

    assert torch.equal(after(0), after(0))
    assert not torch.equal(after(0), after(1))


def test_the_answers_do_not_depend_on_the_micro_batches_or_on_the_wave_size():
    def texts(budget, memory):
        parts = real(micro_batch_tokens=budget)
        parts[1].engine._budget = memory
        return [x.text for g in take(parts).collected.fresh for x in g.samples]

    want = texts(10**6, 1 << 24)
    assert want == texts(20, 1 << 24) == texts(10**6, 40_000)
