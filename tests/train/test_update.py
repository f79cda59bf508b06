"""The update against one ordinary forward a row, token by token; and the splits that change nothing."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling
from brorl.train.batch import micro_batches, minibatches, rows_of, tensors
from brorl.train.reference import Reference
from brorl.train.update import NonFiniteLoss, rescore, update

from .toys import completion, group, sample, settings, tiny

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")
MANY = 10**6  # a token budget that holds everything


class Recorder(torch.optim.SGD):
    """Keeps the gradient of every step."""

    def __init__(self, policy):
        super().__init__(policy.model.parameters(), lr=1.0)
        self.gradients = []

    def step(self):
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        self.gradients.append(torch.cat([g.flatten() for g in grads]).clone())
        return super().step()


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def random_rows(policy, seed=0, sizes=(3, 4, 1), off_policy=0.4):
    """Groups with answers of 1 to 5 tokens; old log-probs lie beside the policy's own."""
    rng = np.random.default_rng(seed)
    made = []
    for g, size in enumerate(sizes):
        answers = []
        for i in range(size):
            tokens = rng.integers(3, 90, rng.integers(1, 6)).tolist()
            answer = sample(i, tokens, 0.0)
            answer.advantage = float(rng.normal()) * 2
            answers.append(answer)
        made.append(group(f"g{g}", answers, prompt=rng.integers(3, 90, 2 + 2 * g).tolist()))
    rows = rows_of(made)
    for row in rows:
        own = plain(policy, row).detach().numpy()
        row.old_logp = (own + off_policy * rng.normal(size=len(own))).astype(np.float32)
    return rows


def plain(policy, row, temperature=1.0):
    """Log-probs of a row's tokens by one ordinary forward of prompt and answer."""
    answer = row.sample.completion.tokens.tolist()
    ids = torch.tensor([[*row.prompt, *answer]])
    logits = policy.model(input_ids=ids, use_cache=False).logits[0, len(row.prompt) - 1 : -1]
    logp = (logits / temperature).log_softmax(-1)
    return torch.stack([logp[t, token] for t, token in enumerate(answer)])


def run(policy, batches, s, *, reference=None, whole=(), lr=0.0, updates_done=0):
    """One call of the update; returns (report, gradients, versions announced)."""
    optimizer, versions = Recorder(policy), []
    report = update(
        policy,
        optimizer,
        batches,
        s,
        whole_lengths=whole,
        reference=reference,
        lr=lambda update: lr,
        updates_done=updates_done,
        after_update=versions.append,
    )
    return report, optimizer.gradients, versions


def free(**changes):
    """Settings without gradient clipping, so that the recorded gradient is the loss's own."""
    return settings(**({"optimizer": {"grad_clip": 1e9}, "micro_batch_tokens": MANY} | changes))


def oracle_loss(policy, rows, s, reference=None, denominator=None):
    """The loss of one mini-batch by cases, a row and a token at a time."""
    lengths = [r.length for r in rows]
    if denominator is None:
        denominator = sum(lengths) if s.loss_agg_mode == "token-mean" else len(rows)
    total = torch.zeros(())
    for row in rows:
        logp = plain(policy, row, s.rollout.temperature)
        a, cut = row.sample.advantage, row.sample.weight
        for t in range(row.length):
            share = cut / denominator
            if s.loss_agg_mode == "seq-mean-token-mean":
                share /= row.length
            ratio = (logp[t] - float(row.old_logp[t])).exp()
            surrogate = ratio * a
            if a > 0 and ratio > 1 + s.clip_ratio_high:
                surrogate = torch.tensor((1 + s.clip_ratio_high) * a)
            if a < 0 and ratio < 1 - s.clip_ratio_low:
                surrogate = torch.tensor((1 - s.clip_ratio_low) * a)
            if a < 0 and s.clip_ratio_c is not None and ratio > s.clip_ratio_c:
                surrogate = torch.tensor(s.clip_ratio_c * a)
            correction = 1.0 if row.correction is None else float(row.correction[t])
            total = total - share * correction * surrogate
            if reference is not None:
                with torch.no_grad():
                    far = plain(reference.policy, row, s.rollout.temperature)[t]
                total = total + s.kl_coef * share * 0.5 * (logp[t] - far) ** 2  # k2
    return total


def gradient_of(policy, loss):
    policy.model.zero_grad()
    loss.backward()
    found = torch.cat([p.grad.flatten() for p in policy.model.parameters()]).clone()
    policy.model.zero_grad()
    return found


CASES = {
    "plain": {},
    "temperature": {"rollout": {"temperature": 0.6}},
    "dual clip": {"clip_ratio_c": 1.1, "clip_ratio_high": 0.2},
    "kl": {"kl_coef": 0.7},
    "correction": {"tis": {"type": "tis"}},
    "all of it": {
        "kl_coef": 0.3, "tis": {"type": "icepop"}, "clip_ratio_c": 1.2, "rollout": {"temperature": 1.3}
    },
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_gradient_and_loss_match_the_oracle(case, mode):
    policy, s = tiny(), free(loss_agg_mode=mode, **CASES[case])
    rows = random_rows(policy, seed=len(case))
    reference = None
    if s.kl_coef:
        reference = Reference(tiny(seed=9), 0)
    if s.tis.type != "none":
        rng = np.random.default_rng(5)
        for row in rows:
            row.correction = rng.choice([0.0, 0.5, 1.0, 1.9], row.length).astype(np.float32)
    want_loss = oracle_loss(policy, rows, s, reference)
    want, want_loss = gradient_of(policy, want_loss), float(want_loss.detach())
    report, (got,), _ = run(policy, [rows], s, reference=reference)
    torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-6)
    assert report.loss == pytest.approx(want_loss, rel=1e-4)
    assert report.grad_norms == [pytest.approx(float(want.norm()), rel=1e-4)]


@pytest.mark.parametrize("mode", MODES)
def test_cut_rows_stand_for_whole_groups_in_policy_and_kl_terms(mode):
    """Weights 1 to 4 under the denominator of the whole groups: 40 answers of 3 tokens each."""
    policy = tiny()
    s = free(
        loss_agg_mode=mode,
        rollout={"keep_per_group": 2},
        advantage={"weight": "unbiased"},
        kl_coef=0.5,
    )
    rows, reference = random_rows(policy), Reference(tiny(seed=9), 0)
    for i, row in enumerate(rows):
        row.sample.weight = 1.0 + i % 4
    halves = [rows[:4], rows[4:]]
    whole = [3] * 40
    share = (120 if mode == "token-mean" else 40) / 2
    want = [
        gradient_of(policy, oracle_loss(policy, half, s, reference, denominator=share))
        for half in halves
    ]
    _, got, _ = run(policy, halves, s, reference=reference, whole=whole)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("mode", MODES)
def test_the_split_into_micro_batches_changes_no_gradient(mode):
    """8 rows of unequal length as 1 x 8, 2 x 4 and 8 x 1: the denominator is that of all 8."""
    policy = tiny()
    rows = random_rows(policy, sizes=(5, 3))
    reference = Reference(tiny(seed=9), 0)
    found, parts = {}, set()
    for budget in (MANY, 24, 1):
        s = free(loss_agg_mode=mode, kl_coef=0.3).model_copy(update={"micro_batch_tokens": budget})
        parts.add(len(micro_batches(rows, budget)))
        _, (found[budget],), _ = run(policy, [rows], s, reference=reference)
    assert max(parts) == 8
    assert min(parts) == 1
    assert len(parts) == 3
    for budget in (24, 1):
        torch.testing.assert_close(found[budget], found[MANY], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_repeated_answers_are_scored_once_and_count_as_often_as_they_came(mode, monkeypatch):
    """Oracle: the loss row by row; repeats differ in advantage, weight and old log-probs."""
    policy, s = tiny(), free(loss_agg_mode=mode, kl_coef=0.3)
    rows = random_rows(policy, sizes=(6, 4))
    for to, of in ((1, 0), (4, 0), (7, 6)):
        rows[to].sample.completion = rows[of].sample.completion
        rows[to].old_logp = rows[of].old_logp + np.float32(0.05 * to)
        rows[to].sample.weight = 1.0 + to
    reference = Reference(tiny(seed=9), 0)
    want = gradient_of(policy, oracle_loss(policy, rows, s, reference))
    scored = []
    real = type(policy).score

    def seen(self, prompts, group, tokens, lengths, **more):
        scored.append(len(tokens))
        return real(self, prompts, group, tokens, lengths, **more)

    monkeypatch.setattr(type(policy), "score", seen)
    report, (got,), _ = run(policy, [rows], s, reference=reference)
    assert scored == [7, 7]  # of ten rows; by the policy and by the reference
    assert report.tokens == sum(row.length for row in rows)
    torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [2, 4, 8])
def test_minibatch_gradients_at_held_weights_average_to_the_whole(mode, count):
    """Identity for 8 rows of 3 tokens each: equal slices have equal denominators."""
    policy, s = tiny(), free(loss_agg_mode=mode)
    rows = random_rows(policy, sizes=(4, 4))
    for row in rows:
        row.sample.completion = completion([*row.sample.completion.tokens, 7, 8][:3])
        while row.length < 3:
            row.sample.completion = completion([*row.sample.completion.tokens, 9])
        row.old_logp = np.full(3, -4.5, np.float32)
    _, (whole,), _ = run(policy, [rows], s)
    _, split, _ = run(policy, minibatches(rows, count, seed=1, step=1), s)
    assert len(split) == count
    torch.testing.assert_close(torch.stack(split).mean(0), whole, rtol=1e-4, atol=1e-6)


def test_rows_are_never_matched_by_position():
    policy, s = tiny(), free(tis={"type": "tis"})
    rows = random_rows(policy, sizes=(4, 4))
    rng = np.random.default_rng(0)
    for row in rows:
        row.correction = rng.uniform(0.5, 2, row.length).astype(np.float32)
    _, (want,), _ = run(policy, [rows], s)
    for _ in range(3):
        _, (got,), _ = run(policy, [[rows[i] for i in rng.permutation(8)]], s)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def test_weights_move_by_the_rate_times_the_clipped_gradient():
    policy = tiny()
    rows = random_rows(policy)
    before = weights(policy)
    _, (free_gradient,), _ = run(policy, [rows], free())
    norm = float(free_gradient.norm())
    s = free(optimizer={"grad_clip": norm / 3})
    report, _, versions = run(policy, [rows], s, lr=0.25, updates_done=6)
    torch.testing.assert_close(
        before - weights(policy), 0.25 * free_gradient / 3, rtol=1e-3, atol=1e-6
    )
    assert report.grad_norms == [pytest.approx(norm, rel=1e-5)]  # before the clip
    assert (report.lr, report.updates, versions) == (0.25, 1, [7])


def test_each_update_has_its_own_rate_and_version():
    policy = tiny()
    rows = random_rows(policy)
    asked, versions = [], []
    update(
        policy, Recorder(policy), [rows[:4], rows[4:]], free(), whole_lengths=(), reference=None,
        lr=lambda n: asked.append(n) or 0.1, updates_done=10, after_update=versions.append,
    )  # fmt: skip
    assert (asked, versions) == ([10, 11], [11, 12])


def test_no_rows_no_update():
    policy = tiny()
    before = weights(policy)
    report, gradients, versions = run(policy, [], free(), lr=1.0)
    assert (report.updates, gradients, versions, report.mismatch) == (0, [], [], None)
    assert torch.equal(before, weights(policy))


def test_rows_without_advantage_move_nothing_but_count_in_the_denominator():
    """Identity: 4 rows of the same length, half of them with advantage 0, halve the gradient."""
    policy = tiny()
    rows = random_rows(policy, sizes=(4,))
    for row in rows:
        row.sample.completion = completion([7, 8])
        row.old_logp = np.full(2, -4.6, np.float32)
        row.sample.advantage = 1.0
    _, (all_four,), _ = run(policy, [rows], free())
    for row in rows[:2]:
        row.sample.advantage = 0.0
    _, (two,), _ = run(policy, [rows], free())
    torch.testing.assert_close(two, all_four / 2, rtol=1e-4, atol=1e-7)


def test_counts_of_the_clip_by_hand():
    """Ratio 2 with A > 0 is cut (once), 1/2 with A < 0 (twice); 2 with A < 0 beyond c = 1.5 (once)."""
    policy = tiny()
    rows = random_rows(policy, sizes=(6,))
    cases = [(2, 1.0), (0.5, 1.0), (0.5, -1.0), (0.5, -2.0), (2, -1.0), (1, 1.0)]
    for row, (ratio, a) in zip(rows, cases, strict=True):
        row.sample.completion = completion([7])
        row.old_logp = np.float32([float(plain(policy, row).detach()) - math.log(ratio)])
        row.sample.advantage = a
    report, _, _ = run(policy, [rows], free(clip_ratio_c=1.5))
    assert (report.clipped_high, report.clipped_low, report.clipped_c) == (1, 2, 1)
    assert (report.tokens, report.overflowed) == (6, 0)


def test_entropy_is_that_of_the_sampling_distribution():
    policy, s = tiny(), free(rollout={"temperature": 0.7})
    rows = random_rows(policy, sizes=(2,))
    report, _, _ = run(policy, [rows], s)
    want = 0.0
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.sample.completion.tokens.tolist()]])
        logits = policy.model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1] / 0.7
        p = logits.detach().softmax(-1).double()
        want += float(-(p * p.log()).sum())
    assert report.entropy == pytest.approx(want, rel=1e-5)


def test_engine_logprobs_serve_as_old_ones_within_float_error():
    """Reuse = rescore within 1e-5 at another temperature, over prompts and answers of any length."""
    policy, s = tiny(), free(rollout={"temperature": 0.8})
    prompts = [(5, 6, 7), (8, 9), (10, 11, 12, 13, 14)]
    requests = [Request(f"g{i}", f"g{i}", p, 0, 6, 100 + i) for i, p in enumerate(prompts)]
    engine = EmbeddedEngine(policy, memory_budget=1 << 20)
    groups = []
    for i, drawn in enumerate(engine.sample(requests, Sampling(0.8, 1.0, 0, 8))):
        answers = [dataclasses.replace(sample(j, [9], 0.0), completion=c, advantage=1.0)
                   for j, c in enumerate(drawn)]  # fmt: skip
        groups.append(group(f"g{i}", answers, prompt=prompts[i]))
    rows = rows_of(groups)
    found = rescore(policy, rows, s)
    for row in rows:
        np.testing.assert_allclose(row.old_logp, row.sample.completion.logprobs, atol=1e-5)
    assert found.masked_share == 0.0
    assert found.mismatch.tokens == sum(r.length for r in rows)
    assert abs(found.mismatch.kl) < 1e-5
    assert found.mismatch.ratio_max == pytest.approx(1, abs=1e-4)


def test_rescoring_writes_each_row_its_own_logprobs_and_weights():
    """tis: rho = exp(trainer - engine) per token, moved into [0.5, 2]; by hand a row at a time."""
    policy, s = tiny(), free(tis={"type": "tis", "cap": 2.0, "min": 0.5}, micro_batch_tokens=12)
    rows = random_rows(policy)
    rng = np.random.default_rng(1)
    for row in rows:
        engine = plain(policy, row).detach().numpy() + rng.choice([-3.0, 0.0, 0.1, 3.0], row.length)
        row.sample.completion = completion(row.sample.completion.tokens, engine)
    order = [rows[i] for i in rng.permutation(len(rows))]
    found = rescore(policy, order, s)
    engine_kl = 0.0
    for row in rows:
        own = plain(policy, row).detach().numpy()
        engine = row.sample.completion.logprobs
        np.testing.assert_allclose(row.old_logp, own, atol=1e-5)
        np.testing.assert_allclose(row.correction, np.exp(own - engine).clip(0.5, 2), rtol=1e-4)
        engine_kl += float((engine - own).sum())
    tokens = sum(r.length for r in rows)
    assert found.mismatch.kl == pytest.approx(engine_kl / tokens, abs=1e-4)


def test_sequence_rules_see_whole_sequences_whatever_the_micro_batches():
    """seq-mask-tis removes whole answers: one of three has a mean log ratio beyond the bounds."""
    policy = tiny()
    rows = random_rows(policy, sizes=(3,))
    for i, row in enumerate(rows):
        own = plain(policy, row).detach().numpy()
        row.sample.completion = completion(
            row.sample.completion.tokens, own + (0.5 if i == 1 else 0)
        )
    tis = {"type": "seq-mask-tis", "cap": 1.01, "min": 0.99}
    shares = set()
    for budget in (1, MANY):
        s = free(tis=tis).model_copy(update={"micro_batch_tokens": budget})
        found = rescore(policy, rows, s)
        assert [bool(row.correction.any()) for row in rows] == [True, False, True]
        shares.add(found.masked_share)
    assert shares == {rows[1].length / sum(r.length for r in rows)}


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_stops_before_the_optimizer_steps(bad):
    policy = tiny()
    rows = random_rows(policy)
    rows[2].sample.advantage = bad
    optimizer = Recorder(policy)
    before = weights(policy)
    s = free().model_copy(update={"micro_batch_tokens": 1})
    with pytest.raises(NonFiniteLoss, match=r"the loss is (-?inf|nan) at update 5") as found:
        update(
            policy, optimizer, [rows], s, whole_lengths=(), reference=None,
            lr=lambda n: 1.0, updates_done=4, after_update=lambda n: None,
        )  # fmt: skip
    assert torch.equal(before, weights(policy))
    assert optimizer.gradients == []
    assert [r.sample for r in found.value.rows] == [rows[2].sample]


def test_a_gradient_that_is_not_finite_stops_before_the_optimizer_steps():
    """The loss stays finite (3e38 < the largest float32), its gradient's norm does not."""
    policy = tiny()
    rows = random_rows(policy, off_policy=0.0)
    for row in rows:
        row.sample.advantage = 3e38
    before = weights(policy)
    with pytest.raises(NonFiniteLoss, match=r"gradient's norm is (inf|nan) at update 1") as found:
        run(policy, [rows], free(), lr=1.0)
    assert torch.equal(before, weights(policy))
    assert len(found.value.rows) == len(rows)


def test_a_ratio_that_overflows_is_counted_and_moves_nothing():
    """exp(+100): cut at 20 nats, so finite; with advantage 0 it is not looked at at all."""
    policy = tiny()
    rows = random_rows(policy, sizes=(2,))
    for row, a in zip(rows, (-1.0, 0.0), strict=True):
        row.sample.completion = completion([7])
        row.old_logp = np.float32([-104.0])
        row.sample.advantage = a
    report, (gradient,), _ = run(policy, [rows], free())
    assert report.overflowed == 1
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_scores_come_from_a_policy_without_dropout():
    """Policy: a rollout must be scored as it was sampled, so training never turns dropout on."""
    policy = tiny()
    rows = random_rows(policy, sizes=(2,))
    run(policy, [rows], free(), lr=0.1)
    assert not policy.model.training
    micro = tensors(rows, policy.device)
    a, b = (micro.score(policy, 1.0).logp_M.detach() for _ in range(2))
    assert torch.equal(a, b)


def test_engine_mismatch_is_measured_before_the_weights_move():
    """The engine's log-probs are the policy's own: exactly 1 in the first update, not after it."""
    policy = tiny()
    rows = random_rows(policy, off_policy=0.0)
    for row in rows:
        row.sample.completion = completion(row.sample.completion.tokens, row.old_logp)
    report, _, _ = run(policy, [rows[:4], rows[4:]], free(), lr=5.0)
    assert report.mismatch.tokens == sum(r.length for r in rows[:4])
    assert report.mismatch.ratio_max == pytest.approx(1, abs=1e-5)
    assert report.mismatch.ess == pytest.approx(1, abs=1e-6)
