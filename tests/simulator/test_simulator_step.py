"""A step against PyTorch's autograd and optimisers, against Theorem 1, and against itself."""

import itertools

import numpy as np
import pytest
import torch
from simulator_oracle import FirstDrawNumbers, Oracle

from brorl.errors import RunError
from brorl.simulator import step as step_module
from brorl.simulator.flat import make_settings
from brorl.simulator.initial import initial_logits
from brorl.simulator.step import TokenSimulator, distinct
from brorl.theory.correct_mass import exact_mass_change, mass_change, split_mass_change

OPTIMIZERS = (
    {"lr": 0.05, "decay": 0.1},
    {"lr": 0.05, "beta1": 0.0, "eps": 1e-5, "decay": 0.0},
    {"optimizer": "sgd", "lr": 3.0},
    {"optimizer": "sgd-normalised", "lr": 0.5},
)


def settings(**flat):
    return make_settings({"vocab": 40, "correct": 8, "n": (6,), **flat})


def same_draws(s, steps=8, n=6, seed=0):
    """Yields the simulator's record and the oracle's step on draws from the oracle's p."""
    rng = np.random.default_rng(seed)
    ours, theirs = TokenSimulator(s, n), Oracle(s, initial_logits(s), n)
    numbered = FirstDrawNumbers(ours.next_number, s.vocab)
    drawn = set()
    for _ in range(steps):
        p = theirs.p.double().numpy()
        draws = rng.choice(s.vocab, size=n, p=p / p.sum()).tolist()
        drawn |= set(draws)
        yield ours, ours.step(numbered(draws)), theirs.step(draws), draws, drawn


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize(
    ("loss", "epochs"), list(itertools.product(("linear", "log-likelihood", "ppo"), (1, 3)))
)
def test_equals_autograd_and_torchs_optimisers(optimizer, loss, epochs):
    """Oracle: every loss, optimiser, baseline and counting on the same draws, to rounding."""
    for baseline, counting in itertools.product(
        ("none", "mean", "leave-one-out"), ("draws", "set")
    ):
        s = settings(
            loss=loss, epochs=epochs, baseline=baseline, counting=counting, reward_wrong=-0.7,
            **optimizer,
        )  # fmt: skip
        correct = np.arange(s.vocab) < s.correct
        for _, got, (mass, improved, worst, p, dz), draws, drawn in same_draws(s):
            sampled = np.isin(np.arange(s.vocab), draws)
            split = split_mass_change(p, correct, sampled, dz)
            never = split_mass_change(p, correct, np.isin(np.arange(s.vocab), list(drawn)), dz)
            exact = exact_mass_change(p, correct, dz)
            want = [mass, improved, worst, *split, never.unsampled, exact]
            np.testing.assert_allclose([*got[:7], got.exact_change], want, rtol=1e-9, atol=1e-12)


def test_equals_torch_at_a_tiny_eps():
    """Oracle where no gradient is 0 in exact arithmetic: eps only guards, it decides nothing."""
    for _, got, (mass, improved, worst, *_), *_ in same_draws(settings(eps=1e-20), steps=30):
        np.testing.assert_allclose(got[:3], [mass, improved, worst], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_undrawn_tokens_have_no_gradient_where_it_cancels(baseline, dtype):
    """Identity: advantages sum to 0, so log-likelihood leaves undrawn tokens alone; at eps 1e-20
    Adam would turn a rounding error of 1e-18 into full steps, as it does in the direct version."""
    s = settings(
        loss="log-likelihood", baseline=baseline, eps=1e-20, decay=0.0, dtype=dtype,
        reward_correct=0.3, reward_wrong=-0.1,
    )  # fmt: skip
    for _, got, *_ in same_draws(s, steps=30):
        assert got.never_drawn == 0.0


@pytest.mark.parametrize("epochs", [1, 4])
def test_decay_is_what_torch_loses_without_a_gradient(epochs):
    """Oracle: the same logits under torch's AdamW with all gradients zero, only decay acting."""
    s = settings(lr=0.05, decay=0.3, epochs=epochs)
    correct = np.arange(s.vocab) < s.correct
    simulator = TokenSimulator(s, 6)
    z = torch.tensor(initial_logits(s), requires_grad=True)
    p = torch.softmax(z.detach(), 0).numpy()
    alone = torch.optim.AdamW([z], lr=0.05, weight_decay=0.3)
    for _ in range(epochs):
        z.grad = torch.zeros_like(z)
        alone.step()
    dz = z.detach().numpy() - initial_logits(s)
    want = split_mass_change(p, correct, np.zeros(s.vocab, dtype=bool), dz).total
    assert simulator.step(np.array([0, 1, 2, 20, 21, 22])).decay == pytest.approx(want, rel=1e-12)


def test_float32_follows_float64():
    """Identity to single precision: eight steps on the same draws, 1e-5 of a change of 1e-2."""
    wide = [r for _, r, *_ in same_draws(settings(lr=0.05))]
    narrow = [r for _, r, *_ in same_draws(settings(lr=0.05, dtype="float32"))]
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "sgd-normalised"])
def test_split_is_theorem_1_under_plain_gradient_steps(optimizer):
    """Identity: no baseline, set semantics, linear loss: the record is the three terms."""
    s = settings(
        optimizer=optimizer, lr=0.9, baseline="none", counting="set", reward_correct=2.0,
        reward_wrong=-0.5,
    )  # fmt: skip
    correct = np.arange(s.vocab) < s.correct
    for _, got, (_, _, _, p, _), draws, _ in same_draws(s, steps=20):
        sampled = np.isin(np.arange(s.vocab), draws)
        terms = mass_change(p, correct, sampled, reward_correct=2.0, reward_wrong=-0.5)
        want = terms.scaled(0.9 if optimizer == "sgd-normalised" else 0.9 / 6)
        np.testing.assert_allclose(got[3:6], want, rtol=1e-9, atol=1e-15)
        assert got.decay == 0.0


@pytest.mark.parametrize("flat", [{}, {"init": "uniform"}, {"anchor_correct": False}])
def test_sharing_a_state_changes_nothing(flat, monkeypatch):
    """Identity: with a state per token from the start every record is the same."""
    s = settings(lr=0.05, decay=0.1, **flat)
    monkeypatch.setattr(step_module, "LIVE_FROM_START", 0)
    simulators, shared = zip(*[(x, r) for x, r, *_ in same_draws(s)], strict=True)
    assert len(simulators[0].p_L) < s.vocab, "nothing was shared"
    monkeypatch.setattr(step_module, "LIVE_FROM_START", 1)
    own = [r for _, r, *_ in same_draws(s)]
    np.testing.assert_allclose(shared, own, rtol=1e-11, atol=1e-14)


def test_all_tokens_drawn_leave_nothing_shared_and_nothing_unsampled():
    s = settings(n=(40,), optimizer="sgd", lr=1.0, baseline="none", vocab=40)
    simulator = TokenSimulator(s, 40)
    record = simulator.step(np.arange(40))
    assert simulator.next_number == 40
    assert simulator.p_L.sum() == pytest.approx(1, abs=1e-15)
    assert record.unsampled == pytest.approx(0, abs=1e-17)
    assert record.never_drawn == 0


@pytest.mark.parametrize("baseline", ["mean", "leave-one-out"])
@pytest.mark.parametrize("tokens", [[0, 1, 1, 2], [10, 11, 11, 12]])
def test_a_batch_of_one_kind_has_no_gradient(baseline, tokens):
    """Identity: with a group baseline an all-correct or all-wrong batch changes nothing at all."""
    s = settings(optimizer="sgd", lr=1e6, baseline=baseline, reward_correct=0.1, reward_wrong=0.3)
    record = TokenSimulator(s, 4).step(np.array(tokens))
    assert record[3:] == (0, 0, 0, 0, 0, 0)
    assert record.worst_change == 0
    assert record.improved_share == 0  # staying where one was is no improvement


def test_first_step_by_hand():
    """V = 3, z = 0, token 0 correct, drawn once beside token 1; SGD lr 6, N = 2, mean baseline.

    A = +1, -1. sum(pull) = (1/3 - 1/3) = 0, so dz = 6/2 * (1/3, -1/3, 0) = (1, -1, 0).
    Q: 1/3 -> e / (e + 1/e + 1).
    """
    s = make_settings(
        {"vocab": 3, "correct": 1, "n": (2,), "init": "uniform", "optimizer": "sgd", "lr": 6.0}
    )
    record = TokenSimulator(s, 2).step(np.array([0, 1]))
    after = np.e / (np.e + 1 / np.e + 1)
    assert record.correct_mass == pytest.approx(after, rel=1e-14)
    assert record.exact_change == pytest.approx(after - 1 / 3, rel=1e-14)
    assert record[3:6] == pytest.approx((1 / 3 * 2 / 3, 1 / 3 * 1 / 3, 0.0), abs=1e-15)
    assert record.improved_share == 1.0


def test_ppo_clips_from_the_second_epoch_only():
    """On-policy, PPO is log-likelihood; with more epochs the clip holds the change back."""

    def masses(loss, epochs):
        s = settings(loss=loss, epochs=epochs, optimizer="sgd", lr=4.0)
        return [r.correct_mass for _, r, *_ in same_draws(s, steps=1)]

    assert masses("ppo", 1) == pytest.approx(masses("log-likelihood", 1), rel=1e-12)
    assert masses("ppo", 9)[0] < masses("log-likelihood", 9)[0] - 0.01


def test_a_blow_up_is_named():
    s = settings(
        optimizer="sgd", lr=1e308, baseline="none", loss="log-likelihood", reward_correct=100.0
    )
    simulator = TokenSimulator(s, 6)
    tokens = np.array([0, 0, 0, 1, 20, 21])

    def three_steps():
        for _ in range(3):
            simulator.step(tokens)

    with pytest.raises(RunError, match="N=6: the logits are no longer finite"):
        three_steps()


def test_distinct_against_a_counter():
    """Oracle: np.unique, on batches with many and with no repetitions."""
    rng = np.random.default_rng(0)
    for tokens in (rng.integers(0, 5, 100), rng.permutation(100), np.array([7])):
        for got, want in zip(distinct(tokens), np.unique(tokens, return_counts=True), strict=True):
            np.testing.assert_array_equal(got, want)
