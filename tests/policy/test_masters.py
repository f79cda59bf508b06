"""AdamW on float32 masters of bfloat16 weights: what rounding would have lost is kept."""

import copy

import pytest
import torch
from torch import nn

from brorl.errors import DataError
from brorl.policy.masters import MasterAdamW

KNOBS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def weights(dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(4, 3, generator=g).to(dtype)) for _ in range(2)]


def gradients(steps, seed=1):
    g = torch.Generator().manual_seed(seed)
    return [[torch.randn(4, 3, generator=g) for _ in range(2)] for _ in range(steps)]


def give(parameters, grads):
    """As backward does: each gradient in the parameter's own dtype."""
    sum((p * g.to(p.dtype)).sum() for p, g in zip(parameters, grads, strict=True)).backward()


def test_with_float32_weights_it_is_adamw_to_the_last_bit():
    """Identity: masters of float32 weights are the weights."""
    ours, theirs = weights(torch.float32), weights(torch.float32)
    a, b = MasterAdamW(ours, **KNOBS), torch.optim.AdamW(theirs, **KNOBS)
    for grads in gradients(5):
        for optimizer, parameters in ((a, ours), (b, theirs)):
            optimizer.zero_grad(set_to_none=True)
            give(parameters, grads)
            optimizer.step()
    assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))


def test_bfloat16_weights_are_rounded_masters_of_a_float32_run():
    """Oracle: AdamW in float32 on the same rounded gradients, from the same rounded start."""
    ours = weights(torch.bfloat16)
    exact = [nn.Parameter(p.detach().float()) for p in ours]
    a, b = MasterAdamW(ours, **KNOBS), torch.optim.AdamW(exact, **KNOBS)
    for grads in gradients(20):
        a.zero_grad(set_to_none=True)
        b.zero_grad(set_to_none=True)
        give(ours, grads)
        give(exact, [g.bfloat16().float() for g in grads])
        a.step()
        b.step()
    for x, y in zip(ours, exact, strict=True):
        assert x.dtype == torch.bfloat16
        assert torch.equal(x, y.bfloat16())


def test_small_steps_add_up():
    """By hand: AdamW moves a weight by lr a step under a steady gradient. Steps of 1e-4 from 1 are
    below half of bfloat16's spacing there (2**-8 below 1), so without masters nothing ever moves;
    200 of them are 0.02."""
    knobs = KNOBS | {"lr": 1e-4, "weight_decay": 0.0}
    kept, lost = (nn.Parameter(torch.ones(1, dtype=torch.bfloat16)) for _ in "ab")
    a, b = MasterAdamW([kept], **knobs), torch.optim.AdamW([lost], **knobs)
    for _ in range(200):
        for optimizer, p in ((a, kept), (b, lost)):
            optimizer.zero_grad(set_to_none=True)
            p.sum().backward()
            optimizer.step()
    assert lost.item() == 1.0
    assert kept.item() == pytest.approx(0.98, abs=2**-8)


def test_micro_batches_are_summed_in_float32():
    """By hand: 1 and 256 times 1/256. In bfloat16 1 + 1/256 is 1 again; the sum is 2."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    optimizer = MasterAdamW([p], **KNOBS)
    for part in [1.0, *[1 / 256] * 256]:
        (p * part).sum().backward()
    (master,) = optimizer.param_groups[0]["params"]
    assert master.grad.dtype == torch.float32
    assert master.grad.item() == 2.0
    assert p.grad is None
    optimizer.zero_grad()
    assert master.grad is None


def test_a_saved_state_goes_on_where_it_was():
    """Identity: saved and loaded into rounded weights, the rest is the same to the last bit; without
    the masters it would not be."""
    steps = gradients(6)

    def run(optimizer, parameters, part):
        for grads in part:
            optimizer.zero_grad()
            give(parameters, grads)
            optimizer.step()

    whole = weights(torch.bfloat16)
    a = MasterAdamW(whole, **KNOBS)
    run(a, whole, steps[:3])
    saved = copy.deepcopy(a.state_dict())
    copies = [nn.Parameter(p.detach().clone()) for p in whole]
    b = MasterAdamW(copies, **KNOBS)
    b.load_state_dict(saved)
    assert any(not torch.equal(m, p.float()) for m, p in zip(saved["masters"], whole, strict=True))
    run(a, whole, steps[3:])
    run(b, copies, steps[3:])
    for x, y in zip(a.param_groups[0]["params"], b.param_groups[0]["params"], strict=True):
        assert torch.equal(x, y)


def test_a_state_of_another_kind_is_refused():
    plain = torch.optim.AdamW(weights(torch.float32), **KNOBS).state_dict()
    with pytest.raises(DataError, match="holds no float32 masters of this model"):
        MasterAdamW(weights(torch.bfloat16), **KNOBS).load_state_dict(plain)
    other = MasterAdamW([nn.Parameter(torch.zeros(2))] * 1, **KNOBS).state_dict()
    with pytest.raises(DataError, match="holds no float32 masters"):
        MasterAdamW(weights(torch.bfloat16), **KNOBS).load_state_dict(other)
