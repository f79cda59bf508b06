"""Chunked log-probs against log_softmax and autograd in float64, in any chunking."""

import numpy as np
import pytest
import scipy.stats
import torch

from brorl.errors import ShapeError
from brorl.policy.token_logprobs import CHUNK_ELEMENTS, token_logprobs

from .small_models import Sizes

M, D, V = 23, 5, 11


def inputs(seed=0, bias=True, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(M, D, generator=g)
    weight = scale * torch.randn(V, D, generator=g)
    target = torch.randint(V, (M,), generator=g)
    return hidden, weight, torch.randn(V, generator=g) if bias else None, target


def oracle(hidden, weight, bias, target, temperature, upstream):
    """log_softmax and autograd in float64: log-probs, and gradients of hidden, weight, bias."""
    leaves = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    leaves += [] if bias is None else [bias.detach().double().requires_grad_()]
    logits = leaves[0] @ leaves[1].T + (leaves[2] if bias is not None else 0)
    logp = (logits / temperature).log_softmax(-1)
    taken = logp[torch.arange(len(target)), target]
    (taken * upstream).sum().backward()
    return taken.detach(), logp.detach(), [x.grad for x in leaves]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rows", [1, 7, M, 4 * M])
def test_values_and_gradients(rows, bias, temperature):
    """Oracle: float64 autograd; chunks of one row, an odd number, all, and more than all."""
    hidden, weight, bias_V, target = inputs(bias=bias)
    upstream = torch.randn(M, generator=torch.Generator().manual_seed(1))
    logp, full, grads = oracle(hidden, weight, bias_V, target, temperature, upstream.double())
    leaves = [x.requires_grad_() for x in (hidden, weight, bias_V) if x is not None]
    out = token_logprobs(
        hidden, weight, bias_V, target, temperature=temperature, chunk_elements=rows * V
    )
    (out.logp_M * upstream).sum().backward()
    torch.testing.assert_close(out.logp_M.double(), logp, rtol=0, atol=2e-6)
    for leaf, want in zip(leaves, grads, strict=True):
        torch.testing.assert_close(leaf.grad.double(), want, rtol=1e-5, atol=1e-5)
    want = scipy.stats.entropy(full.exp().numpy(), axis=-1)  # another library, in nats
    np.testing.assert_allclose(out.entropy_M.numpy(), want, rtol=0, atol=2e-6)


def test_chunks_change_at_most_the_last_bits_of_what_goes_forward():
    """Identity: each row is a sum of its own; products of other sizes may add in another order."""
    hidden, weight, bias, target = inputs(3)
    whole = token_logprobs(hidden, weight, bias, target, temperature=1.0)
    for rows in (1, 4, 10):
        part = token_logprobs(
            hidden, weight, bias, target, temperature=1.0, chunk_elements=rows * V
        )
        torch.testing.assert_close(part.logp_M, whole.logp_M, rtol=5e-7, atol=1e-6)
        torch.testing.assert_close(part.entropy_M, whole.entropy_M, rtol=5e-7, atol=1e-6)


def test_tokens_without_probability():
    """By hand: p = (1/2, 1/2, 0) for a bias of -inf and for a logit 300 nats below.

    Entropy log 2 in both; the target's gradient is (1/2, -1/2, 0) and nothing is NaN.
    """
    hidden = torch.zeros(2, 1, requires_grad=True)
    weight = torch.zeros(3, 1)
    for low in (float("-inf"), -300.0):
        bias = torch.tensor([0.0, 0.0, low], requires_grad=True)
        out = token_logprobs(hidden, weight, bias, torch.tensor([0, 1]), temperature=1.0)
        out.logp_M[0].backward()
        torch.testing.assert_close(out.entropy_M, torch.full((2,), 2.0).log())
        torch.testing.assert_close(out.logp_M.detach(), torch.full((2,), 0.5).log())
        torch.testing.assert_close(bias.grad, torch.tensor([0.5, -0.5, 0.0]))
    far = token_logprobs(
        hidden.detach(), weight, bias.detach(), torch.tensor([2, 2]), temperature=1.0
    )
    torch.testing.assert_close(far.logp_M, torch.full((2,), -300.0 - np.log(2)))


def test_entropy_carries_no_gradient():
    hidden, weight, bias, target = inputs()
    out = token_logprobs(hidden.requires_grad_(), weight, bias, target, temperature=1.0)
    assert out.logp_M.requires_grad
    assert not out.entropy_M.requires_grad


def test_frozen_weights_get_no_gradient_and_cost_none():
    """Identity: the hidden states' gradient is the same whether the head learns or not."""
    grads = []
    for learns in (True, False):
        hidden, weight, bias, target = inputs()
        hidden.requires_grad_()
        weight.requires_grad_(learns)
        token_logprobs(hidden, weight, bias, target, temperature=0.7).logp_M.sum().backward()
        grads.append(hidden.grad)
        assert (weight.grad is not None) == learns
    assert torch.equal(*grads)


def test_bfloat16_gradients_do_not_drift_with_the_number_of_chunks():
    """Oracle: float64 autograd on the same rounded numbers, 512 tokens in 512 chunks.

    One rounding of a result costs 2**-9 of it; 512 roundings of a running sum would cost more
    than ten times that. The bound is three roundings (logits, slopes, the result).
    """
    g = torch.Generator().manual_seed(4)
    hidden = (torch.randn(512, 8, generator=g) + 1).bfloat16().requires_grad_()
    weight = (0.3 * torch.randn(16, 8, generator=g)).bfloat16().requires_grad_()
    bias = torch.zeros(16).bfloat16().requires_grad_()
    target = torch.zeros(512, dtype=torch.int64)
    upstream = torch.ones(512, dtype=torch.float64)
    _, _, grads = oracle(hidden, weight, bias, target, 1.0, upstream)
    token_logprobs(
        hidden, weight, bias, target, temperature=1.0, chunk_elements=16
    ).logp_M.sum().backward()
    for got, want in zip((hidden.grad, weight.grad, bias.grad), grads, strict=True):
        assert got.dtype == torch.bfloat16
        assert (got.double() - want).norm() <= 3 * 2**-9 * want.norm()


def test_the_logits_are_never_held_whole():
    """Largest tensor, forward and backward: one chunk; all logits would be 32 times that."""
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(1024, 8, generator=g, requires_grad=True)
    weight = torch.randn(2000, 8, generator=g, requires_grad=True)
    target = torch.randint(2000, (1024,), generator=g)
    with Sizes() as sizes:
        out = token_logprobs(
            hidden, weight, None, target, temperature=1.0, chunk_elements=32 * 2000
        )
        out.logp_M.sum().backward()
    assert sizes.largest == 32 * 2000


def test_a_chunk_is_at_least_a_row():
    """Identity: a vocabulary beyond the chunk size is scored row by row, not refused."""
    hidden, weight, bias, target = inputs()
    one = token_logprobs(hidden, weight, bias, target, temperature=1.0, chunk_elements=1)
    all_ = token_logprobs(hidden, weight, bias, target, temperature=1.0)
    torch.testing.assert_close(one.logp_M, all_.logp_M, rtol=0, atol=1e-6)
    assert CHUNK_ELEMENTS * 4 == 16 * 2**20  # the 16 MiB that the docs promise


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperature_must_be_positive(temperature):
    """Attack: 0 would divide by zero and train on NaN; a negative one would turn the policy over."""
    with pytest.raises(ShapeError, match="temperature > 0"):
        token_logprobs(*inputs(), temperature=temperature)
