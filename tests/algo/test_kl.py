"""KL estimates and their gradients, by enumeration of a small softmax policy."""

import math

import pytest
import torch

from brorl.algo.kl import kl_estimates, kl_penalty
from brorl.errors import ShapeError

ESTIMATORS = ("k1", "k2", "k3")


def policies(seed, V=6):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(V, generator=g, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(V, generator=g, dtype=torch.float64).log_softmax(0)
    return z, ref


def exact_gradient(z, ref, direction):
    """Oracle: autograd through the definition of the divergence, over the whole vocabulary."""
    logp = z.log_softmax(0)
    p, q = (logp, ref) if direction == "policy || reference" else (ref, logp)
    (grad,) = torch.autograd.grad((p.exp() * (p - q)).sum(), z)
    return grad


@pytest.mark.parametrize("kl_estimator", ESTIMATORS)
@pytest.mark.parametrize("seed", range(5))
def test_expected_gradient_of_the_penalty_is_that_of_the_kl(seed, kl_estimator):
    """Every token once, weighted by its probability: the exact expectation on-policy."""
    z, ref = policies(seed)
    logp = z.log_softmax(0)
    everything = torch.ones(6, dtype=torch.bool)
    out = kl_penalty(logp, ref, logp.detach().exp(), everything, kl_estimator=kl_estimator)
    (got,) = torch.autograd.grad(out.loss, z)
    torch.testing.assert_close(got, exact_gradient(z, ref, "policy || reference"))


@pytest.mark.parametrize("seed", range(5))
def test_what_differentiating_the_estimates_would_give(seed):
    """Why the penalty doesn't do it: k1 has no expected gradient, k3 that of another divergence."""
    z, ref = policies(seed)

    def expected(kl_estimator):
        logp = z.log_softmax(0)
        value = kl_estimates(logp, ref, kl_estimator=kl_estimator)
        (grad,) = torch.autograd.grad((logp.detach().exp() * value).sum(), z)
        return grad

    torch.testing.assert_close(expected("k1"), torch.zeros_like(z), rtol=0, atol=1e-14)
    torch.testing.assert_close(expected("k2"), exact_gradient(z, ref, "policy || reference"))
    torch.testing.assert_close(expected("k3"), exact_gradient(z, ref, "reference || policy"))
    assert not torch.allclose(expected("k3"), expected("k2"), rtol=0.05)


@pytest.mark.parametrize("kl_estimator", ["k1", "k3"])
def test_expected_value_is_the_kl(kl_estimator):
    z, ref = policies(0)
    logp = z.detach().log_softmax(0)
    value = kl_estimates(logp, ref, kl_estimator=kl_estimator)
    want = (logp.exp() * (logp - ref)).sum()
    torch.testing.assert_close((logp.exp() * value).sum(), want)


def test_values_by_hand():
    """Hand-computed at d = ln 2: k1 = ln 2, k2 = ln(2)^2 / 2, k3 = 1/2 - 1 + ln 2."""
    logp, ref = torch.tensor([-1.0, -3.0]), torch.tensor([-1 - math.log(2), -3.0])
    want = {"k1": math.log(2), "k2": math.log(2) ** 2 / 2, "k3": -0.5 + math.log(2)}
    for kl_estimator in ESTIMATORS:
        got = kl_estimates(logp, ref, kl_estimator=kl_estimator)
        assert got.tolist() == pytest.approx([want[kl_estimator], 0.0], rel=1e-5)
        weight, mask = torch.tensor([0.25, 1.0]), torch.tensor([True, True])
        out = kl_penalty(logp, ref, weight, mask, kl_estimator=kl_estimator)
        assert out.loss.item() == pytest.approx(want[kl_estimator] / 4, rel=1e-5)
        assert out.total.item() == pytest.approx(want[kl_estimator], rel=1e-5)
        assert int(out.tokens) == 2


@pytest.mark.parametrize("kl_estimator", ESTIMATORS)
def test_far_away_the_pull_is_bounded_and_does_not_end(kl_estimator):
    """Hand-computed: 10 nats of pull at a distance of 1000, towards the reference on both sides."""
    logp = torch.tensor([-1.0, -1001.0], requires_grad=True)
    ref, mask = torch.tensor([-1001.0, -1.0]), torch.tensor([True, True])
    out = kl_penalty(logp, ref, torch.ones(2), mask, kl_estimator=kl_estimator)
    out.loss.backward()
    assert math.isfinite(out.loss.item())
    assert logp.grad.tolist() == [10.0, -10.0]


@pytest.mark.parametrize("kl_estimator", ESTIMATORS)
def test_padding_is_never_read_and_nothing_is_nothing(kl_estimator):
    """Attack: NaN under the mask; an empty mask is 0 with gradient 0."""
    logp = torch.tensor([-1.0, math.nan], requires_grad=True)
    poison = torch.tensor([-2.0, math.nan])
    mask = torch.tensor([True, False])
    out = kl_penalty(logp, poison, poison.abs(), mask, kl_estimator=kl_estimator)
    out.loss.backward()
    assert logp.grad.tolist() == [2.0, 0.0]
    assert int(out.tokens) == 1
    logp.grad = None
    out = kl_penalty(logp, poison, poison, mask & False, kl_estimator=kl_estimator)
    out.loss.backward()
    assert [float(x.detach()) for x in out] == [0.0, 0.0, 0.0]
    assert logp.grad.tolist() == [0.0, 0.0]


def test_constants_carry_no_gradient():
    """Identity: only logp is trained, whatever the other arguments hang on."""
    logp, ref, weight = (torch.tensor([x, -1.0], requires_grad=True) for x in (-2.0, -3.0, 0.5))
    out = kl_penalty(logp, ref, weight, torch.tensor([True, True]), kl_estimator="k3")
    out.loss.backward()
    assert logp.grad.tolist() == [0.5, 0.0]
    assert (ref.grad, weight.grad, out.total.requires_grad) == (None, None, False)


def test_two_steps_add_up():
    """Identity: the loss of a whole is the sum over any split, tokens and totals too."""
    g = torch.Generator().manual_seed(3)
    logp, ref, weight = (torch.randn(9, generator=g, dtype=torch.float64) for _ in range(3))
    mask = torch.tensor([True, False, True] * 3)
    whole = kl_penalty(logp, ref, weight, mask, kl_estimator="k3")
    parts = [
        kl_penalty(logp[s], ref[s], weight[s], mask[s], kl_estimator="k3")
        for s in (slice(0, 4), slice(4, 5), slice(5, 9))
    ]
    for i in range(3):
        torch.testing.assert_close(sum(p[i] for p in parts), whole[i])


def test_says_what_is_wrong():
    x = torch.zeros(2)
    with pytest.raises(ShapeError, match=r"mask must be bool, got torch\.float32"):
        kl_penalty(x, x, x, x, kl_estimator="k2")
    with pytest.raises(ShapeError, match=r"equal shapes, got .*'ref_logp': \[1\]"):
        kl_penalty(x, x[:1], x, x > 0, kl_estimator="k2")
