"""The loss against a scalar re-derivation, and against identities it must obey."""

import math

import pytest
import torch

from brorl.algo.aggregation import loss_denominator, token_weights
from brorl.algo.losses import clipped_policy_loss
from brorl.errors import ConfigError, ShapeError

CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": None}
DUAL = CLIP | {"clip_ratio_c": 3.0}
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


def oracle(logp, old, adv, weight, mask, clip_ratio_low, clip_ratio_high, clip_ratio_c):
    """The formula once more, one token at a time, by cases instead of min and clamp, no torch."""
    total = 0.0
    for row in range(len(logp)):
        for t in range(len(logp[row])):
            if not mask[row][t]:
                continue
            ratio, a = math.exp(logp[row][t] - old[row][t]), adv[row][t]
            if a > 0 and ratio > 1 + clip_ratio_high:
                ratio = 1 + clip_ratio_high
            elif a < 0 and ratio < 1 - clip_ratio_low:
                ratio = 1 - clip_ratio_low
            elif a < 0 and clip_ratio_c is not None and ratio > clip_ratio_c:
                ratio = clip_ratio_c
            total -= weight[row][t] * ratio * a
    return total


def batch(seed, B=8, T=5):
    """Rows of unequal length; row 2 has no token of its own, row 3 advantage 0."""
    g = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(B, T, generator=g, dtype=torch.float64)
    logp = old + 0.9 * torch.randn(B, T, generator=g, dtype=torch.float64)
    adv = torch.randn(B, 1, generator=g, dtype=torch.float64).expand(B, T).clone()
    adv[3] = 0.0
    weight = torch.rand(B, T, generator=g, dtype=torch.float64)
    mask = torch.rand(B, T, generator=g) < 0.7
    mask[2] = False
    return logp, old, adv, weight, mask


@pytest.mark.parametrize("clip", [CLIP, DUAL], ids=["two bounds", "dual clip"])
@pytest.mark.parametrize("seed", range(10))
def test_matches_scalar_oracle(seed, clip):
    tensors = batch(seed)
    want = oracle(*(x.tolist() for x in tensors), **clip)
    assert clipped_policy_loss(*tensors, **clip).loss.item() == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("clip", [CLIP, DUAL], ids=["two bounds", "dual clip"])
def test_gradient_is_that_of_the_oracle(clip):
    """Oracle: central differences of the scalar loss. No ratio of batch 0 lies at a bound."""
    logp, old, adv, weight, mask = batch(0)
    x = logp.clone().requires_grad_()
    clipped_policy_loss(x, old, adv, weight, mask, **clip).loss.backward()
    rest = [t.tolist() for t in (old, adv, weight, mask)]
    for i in range(logp.numel()):
        sides = []
        for h in (1e-6, -1e-6):
            moved = logp.clone()
            moved.view(-1)[i] += h
            sides.append(oracle(moved.tolist(), *rest, **clip))
        assert x.grad.view(-1)[i].item() == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("clip", [CLIP, DUAL], ids=["two bounds", "dual clip"])
def test_on_policy_gradient_is_reinforce(clip):
    """Identity: at ratio 1 the gradient of each token is -weight · advantage, clip or no clip."""
    _, old, adv, weight, mask = batch(0)
    logp = old.clone().requires_grad_()
    out = clipped_policy_loss(logp, old, adv, weight, mask, **clip)
    out.loss.backward()
    want = torch.where(mask, -adv * weight, 0.0)
    torch.testing.assert_close(logp.grad, want, rtol=0, atol=1e-15)
    assert [int(x) for x in out[2:]] == [0, 0, 0, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("split", [[8], [4, 4], [1] * 8, [1, 5, 2]], ids=str)
def test_micro_batches_add_up_to_the_whole(mode, split):
    """Identity: for every aggregation, loss, gradient and counts don't depend on the split."""
    logp, old, adv, _, mask = batch(1)
    row = torch.arange(8)[:, None].expand(8, 5)
    denominator = loss_denominator(mask.sum(1), loss_agg_mode=mode)

    def total(sizes):
        x, out, start = logp.clone().requires_grad_(), [], 0
        for size in sizes:
            part = slice(start, start + size)
            weight = token_weights(
                mask[part],
                row[part],
                loss_agg_mode=mode,
                denominator=denominator,
                dtype=torch.float64,
            )
            args = (x[part], old[part], adv[part], weight, mask[part])
            out.append(clipped_policy_loss(*args, **DUAL))
            out[-1].loss.backward()
            start += size
        return x.grad, [sum(float(o[i].detach()) for o in out) for i in range(6)]

    (grad, sums), (want_grad, want_sums) = total(split), total([8])
    torch.testing.assert_close(grad, want_grad, rtol=1e-12, atol=0)
    assert sums == pytest.approx(want_sums, rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_flat_and_padded_are_the_same(mode):
    """Identity: packing the masked-in tokens into [M] changes neither loss nor gradient."""
    logp, old, adv, _, mask = batch(2)
    row = torch.arange(8)[:, None].expand(8, 5)
    n = loss_denominator(mask.sum(1), loss_agg_mode=mode)
    grads = []
    for pick in (torch.ones_like(mask), mask):
        x = logp.clone().requires_grad_()
        m, r = mask[pick], row[pick]
        w = token_weights(m, r, loss_agg_mode=mode, denominator=n, dtype=torch.float64)
        clipped_policy_loss(x[pick], old[pick], adv[pick], w, m, **CLIP).loss.backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-14, atol=0)


def test_padding_is_never_read():
    """Attack: NaN under the mask reaches neither loss, gradient nor counts."""
    tensors = batch(3)
    mask = tensors[-1]
    results = []
    for poison in (False, True):
        logp, old, adv, weight = (
            torch.where(mask, x, torch.nan) if poison else x.clone() for x in tensors[:-1]
        )
        logp.requires_grad_()
        out = clipped_policy_loss(logp, old, adv, weight, mask, **DUAL)
        out.loss.backward()
        results.append(([float(x.detach()) for x in out], logp.grad.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("shape", [(0,), (0, 5), (4, 5)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_empty_mask_is_loss_zero_with_gradient_zero(shape, mode):
    """All truncated and masked out, values NaN: 0, a gradient of zeros, and a count of 0."""
    logp = torch.full(shape, math.nan, requires_grad=True)
    mask = torch.zeros(shape, dtype=torch.bool)
    n = loss_denominator(mask.long().sum(-1), loss_agg_mode=mode)
    row = torch.zeros(shape, dtype=torch.int64)
    weight = token_weights(mask, row, loss_agg_mode=mode, denominator=n, dtype=torch.float32)
    out = clipped_policy_loss(logp, logp.detach(), logp.detach(), weight, mask, **CLIP)
    out.loss.backward()
    assert n == 0
    assert [float(x.detach()) for x in out] == [0.0] * 6
    assert not logp.grad.any()


@pytest.mark.parametrize("advantage", [0.0, 22.6, -22.6])
@pytest.mark.parametrize("gap", [1000.0, -1000.0, math.inf, -math.inf])
def test_a_ratio_that_overflows(advantage, gap):
    """exp(1000) is inf in any float: finite loss and gradient, exactly 0 where the advantage is."""
    logp = torch.tensor([gap - 1.0, -1.0], requires_grad=True)
    old, adv = torch.tensor([-1.0, -1.0]), torch.tensor([advantage, 1.0])
    out = clipped_policy_loss(logp, old, adv, torch.ones(2), torch.tensor([True, True]), **CLIP)
    out.loss.backward()
    assert math.isfinite(out.loss.item())
    assert logp.grad.tolist() == [0.0, -1.0]
    assert int(out.overflowed) == (advantage != 0)
    if advantage == 0:
        assert out.loss.item() == -1.0


def test_a_token_of_weight_zero_is_not_looked_at():
    """Attack: what the importance correction removed may hold NaN."""
    logp = torch.tensor([math.nan, -1.0], requires_grad=True)
    args = (torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0]))
    out = clipped_policy_loss(logp, *args, torch.tensor([True, True]), **CLIP)
    out.loss.backward()
    assert out.loss.item() == -1.0
    assert logp.grad.tolist() == [0.0, -1.0]
    assert int(out.tokens) == 2


def test_counts_by_hand():
    """Hand-computed. A token per case; the ones with no gradient are those that are counted.

    ratio      2     2     1/2   1/2   1     4     4     e^30  e^30
    advantage  1/2   -1    -1    1/2   1     -1    1/2   -1    0
    counted    high        low               c     high  c, overflowed
    """
    log_ratio = torch.tensor([2.0, 2.0, 0.5, 0.5, 1.0, 4.0, 4.0, math.exp(30), math.exp(30)]).log()
    adv = torch.tensor([0.5, -1.0, -1.0, 0.5, 1.0, -1.0, 0.5, -1.0, 0.0])
    logp, mask = log_ratio.clone().requires_grad_(), torch.ones(9, dtype=torch.bool)
    out = clipped_policy_loss(logp, torch.zeros(9), adv, torch.ones(9), mask, **DUAL)
    out.loss.backward()
    counts = (out.tokens, out.clipped_low, out.clipped_high, out.clipped_c, out.overflowed)
    assert [int(x) for x in counts] == [9, 1, 2, 2, 1]
    assert logp.grad.tolist() == pytest.approx([0, 2, 0, -0.25, -1, 0, 0, 0, 0])
    assert out.loss.item() == pytest.approx(-(0.64 - 2 - 0.8 + 0.25 + 1 - 3 + 0.64 - 3))


def test_at_the_bounds_nothing_is_clipped():
    """Hand-computed: ratios of 2, 1/2 and e^20 with bounds there keep their gradient.

    The fourth, half a nat beyond the last, doesn't.
    """
    log_ratio = torch.tensor([math.log(2), -math.log(2), 20.0, 20.5], dtype=torch.float64)
    logp = log_ratio.clone().requires_grad_()
    adv, one = torch.tensor([1.0, -1.0, -1.0, -1.0]).double(), torch.ones(4).double()
    bounds = {"clip_ratio_low": 0.5, "clip_ratio_high": 1.0, "clip_ratio_c": None}
    out = clipped_policy_loss(logp, torch.zeros(4).double(), adv, one, one > 0, **bounds)
    out.loss.backward()
    assert [int(x) for x in out[1:]] == [4, 0, 0, 0, 1]
    assert logp.grad.tolist() == pytest.approx([-2.0, 0.5, math.exp(20), 0.0], rel=1e-12)


def test_the_widest_bounds_are_allowed():
    """Identity: no lower room at all, or no clip above that anything reaches."""
    tensors = batch(6)
    for bounds in ((0.0, 0.0, 1.5), (0.0, 1e6, None)):
        clip = dict(zip(CLIP, bounds, strict=True))
        want = oracle(*(x.tolist() for x in tensors), **clip)
        assert clipped_policy_loss(*tensors, **clip).loss.item() == pytest.approx(want, rel=1e-12)


def test_constants_carry_no_gradient():
    """Identity: only logp is trained, whatever the other arguments hang on."""
    logp, old, adv, weight, mask = batch(4)
    leaves = [x.requires_grad_() for x in (logp, old, adv, weight)]
    clipped_policy_loss(*leaves, mask, **CLIP).loss.backward()
    assert logp.grad is not None
    assert [x.grad for x in leaves[1:]] == [None, None, None]


def test_says_what_is_wrong():
    logp, old, adv, weight, mask = batch(5)
    with pytest.raises(ShapeError, match=r"mask must be bool, got torch\.float64"):
        clipped_policy_loss(logp, old, adv, weight, mask.double(), **CLIP)
    with pytest.raises(ShapeError, match=r"equal shapes, got .*'advantage': \[8, 1\]"):
        clipped_policy_loss(logp, old, adv[:, :1], weight, mask, **CLIP)
    for bad in ({"clip_ratio_low": 1.0}, {"clip_ratio_high": -0.1}, {"clip_ratio_high": math.inf}):
        with pytest.raises(ConfigError, match="need 0 <= clip_ratio_low < 1"):
            clipped_policy_loss(logp, old, adv, weight, mask, **CLIP | bad)
    with pytest.raises(ConfigError, match=r"clip_ratio_c must be > 1, got 1\.0"):
        clipped_policy_loss(logp, old, adv, weight, mask, **CLIP | {"clip_ratio_c": 1.0})
