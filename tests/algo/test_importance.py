"""Importance correction: by hand, by enumeration, and what is masked never being read."""

import math

import pytest
import torch

from brorl.algo.importance import importance_weights, mismatch
from brorl.errors import ConfigError, ShapeError

# rho of five tokens in two sequences, and one token that isn't the policy's.
RHO = torch.tensor([0.25, 4.0, 1.0, 3.0, 3.0, 99.0], dtype=torch.float64)
SEQUENCE = torch.tensor([5, 5, 5, 8, 8, 8])
MASK = torch.tensor([True] * 5 + [False])


def weights(tis_type, cap, min, rho=RHO):
    engine = torch.full_like(rho, -2.0)
    return importance_weights(
        engine + rho.log(), engine, MASK, SEQUENCE, tis_type=tis_type, cap=cap, min=min
    )


@pytest.mark.parametrize(
    ("tis_type", "cap", "low", "want", "kept", "masked", "cut"),
    [
        ("tis", 2.0, 0.0, [0.25, 2, 1, 2, 2, 0], [1, 1, 1, 1, 1, 0], 0, 3),
        ("tis", 2.0, 0.5, [0.5, 2, 1, 2, 2, 0], [1, 1, 1, 1, 1, 0], 0, 4),
        ("icepop", 3.5, 0.5, [0, 0, 1, 3, 3, 0], [0, 0, 1, 1, 1, 0], 2, 0),
        # geometric means: (1/4 · 4 · 1)^(1/3) = 1 and (3 · 3)^(1/2) = 3
        ("seq-mask-tis", 1.002, 0.999, [0.25, 4, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], 2, 0),
        ("seq-mask-tis", 3.1, 2.9, [0, 0, 0, 3, 3, 0], [0, 0, 0, 1, 1, 0], 3, 0),
    ],
)
def test_by_hand(tis_type, cap, low, want, kept, masked, cut):
    """Hand-computed."""
    got = weights(tis_type, cap, low)
    assert got.weight.tolist() == pytest.approx(want, rel=1e-12)
    assert got.kept.tolist() == [bool(k) for k in kept]
    assert (got.masked, got.cut) == (masked, cut)


def test_sequence_mask_does_not_depend_on_length():
    """Identity: the same token ratio over 1 or 1000 tokens is kept or removed alike."""
    for n in (1, 1000):
        engine, mask = torch.full((n,), -1.0), torch.ones(n, dtype=torch.bool)
        for gap, kept in ((0.0005, n), (0.005, 0)):
            got = importance_weights(
                engine + gap, engine, mask, mask.long(), tis_type="seq-mask-tis", cap=1.002, min=0.0
            )
            assert int(got.kept.sum()) == kept


def test_uncapped_weights_undo_a_wrong_engine():
    """Enumeration: sum over tokens of engine(x) · rho(x) · f(x) is the trainer's mean of f."""
    g = torch.Generator().manual_seed(0)
    trainer, engine = torch.randn(2, 7, generator=g, dtype=torch.float64).log_softmax(1)
    f = torch.randn(7, generator=g, dtype=torch.float64)
    mask = torch.ones(7, dtype=torch.bool)
    got = importance_weights(
        trainer, engine, mask, mask.long(), tis_type="tis", cap=math.inf, min=0.0
    )
    want = (trainer.exp() * f).sum()
    torch.testing.assert_close((engine.exp() * got.weight * f).sum(), want)


def test_mismatch_by_enumeration():
    """Tokens in the engine's own proportions, 1/2, 1/4, 1/4, against a trainer of 1/4, 1/4, 1/2.

    KL(engine || trainer) = 1/2 ln 2 - 1/4 ln 2 = ln(2) / 4, which k3 finds too since the mean of
    rho is 1; rho = 1/2, 1/2, 1, 2: ess = 4^2 / (4 · (1/4 + 1/4 + 1 + 4)) = 16 / 22.
    """
    engine = torch.tensor([1 / 2, 1 / 2, 1 / 4, 1 / 4, 0.3], dtype=torch.float64).log()
    trainer = torch.tensor([1 / 4, 1 / 4, 1 / 4, 1 / 2, 0.9], dtype=torch.float64).log()
    mask = torch.tensor([True, True, True, True, False])
    got = mismatch(trainer, engine, mask)
    want = (math.log(2) / 4, math.log(2) / 4, 1.0, 2.0, 16 / 22, 4)
    assert got == pytest.approx(want, rel=1e-12)


def test_before_and_after_the_mask():
    """Hand-computed: the removed token shows in the figure before, and is gone after."""
    engine = torch.full_like(RHO, -2.0)
    trainer = engine + RHO.log()
    kept = weights("icepop", 3.5, 0.5).kept
    before, after = mismatch(trainer, engine, MASK), mismatch(trainer, engine, kept)
    assert (before.ratio_max, before.ratio_mean) == pytest.approx((4.0, 11.25 / 5))
    assert (after.ratio_max, after.ratio_mean, after.tokens) == pytest.approx((3.0, 7 / 3, 3))


def test_an_exact_engine_leaves_everything_as_it_is():
    """Identity: rho = 1 gives weight 1 in every type, and a mismatch of nothing."""
    for tis_type in ("tis", "icepop", "seq-mask-tis"):
        got = weights(tis_type, 1.0, 1.0, rho=torch.ones_like(RHO))
        assert got.weight.tolist() == [1, 1, 1, 1, 1, 0]
        assert (got.masked, got.cut) == (0, 0)
    x = torch.full_like(RHO, -2.0)
    assert mismatch(x, x, MASK) == (0.0, 0.0, 1.0, 1.0, 1.0, 5)


@pytest.mark.parametrize("tis_type", ["tis", "icepop", "seq-mask-tis"])
def test_padding_is_never_read_and_nothing_is_nothing(tis_type):
    """Attack: NaN under the mask; then a mask with nothing in it."""
    clean = weights(tis_type, 2.0, 0.5)
    poisoned = weights(tis_type, 2.0, 0.5, rho=torch.where(MASK, RHO, torch.nan))
    assert clean.weight.tolist() == poisoned.weight.tolist()
    x, none = torch.full_like(RHO, math.nan), MASK & False
    got = importance_weights(x, x, none, SEQUENCE, tis_type=tis_type, cap=2.0, min=0.5)
    assert (got.weight.tolist(), got.masked, got.cut) == ([0.0] * 6, 0, 0)
    assert not got.kept.any()
    assert mismatch(x, x, none) is None


@pytest.mark.parametrize("tis_type", ["tis", "icepop", "seq-mask-tis"])
def test_a_ratio_that_overflows_stays_finite(tis_type):
    """exp(800) is inf in any float; the weight is cut at exp(20) at the latest."""
    trainer = torch.tensor([-1.0, -801.0, -1.0])
    engine = torch.tensor([-801.0, -1.0, -1.0])
    mask = torch.ones(3, dtype=torch.bool)
    got = importance_weights(
        trainer, engine, mask, mask.long(), tis_type=tis_type, cap=math.inf, min=0.0
    )
    want = [math.exp(20), math.exp(-20), 1.0]
    assert got.weight.tolist() == pytest.approx(want, rel=1e-5)
    assert mismatch(trainer, engine, mask).ratio_max == pytest.approx(math.exp(20))


def test_weights_carry_no_gradient():
    trainer, engine = RHO.log().requires_grad_(), (-RHO).requires_grad_()
    got = importance_weights(trainer, engine, MASK, SEQUENCE, tis_type="tis", cap=9.0, min=0.0)
    assert not got.weight.requires_grad


def test_a_small_mismatch_is_not_rounded_away():
    """Hand-computed: log rho = 2^-12 in float32 has k3 = x^2 / 2 + x^3 / 6; exp(x) - 1 - x has 0."""
    x = 2.0**-12
    trainer, engine = torch.tensor([-1.0 + x]), torch.tensor([-1.0])
    got = mismatch(trainer, engine, torch.tensor([True]))
    assert got.k3 == pytest.approx(x**2 / 2 + x**3 / 6, rel=1e-7)


def test_says_what_is_wrong():
    for cap, low in ((0.0, 0.0), (1.0, 2.0), (1.0, -1.0), (math.nan, 0.0)):
        with pytest.raises(ConfigError, match=r"need 0 <= tis\.min <= tis\.cap"):
            weights("tis", cap, low)
    x = torch.zeros(2)
    with pytest.raises(ShapeError, match=r"mask must be bool, got torch\.float32"):
        mismatch(x, x, x)
    with pytest.raises(ShapeError, match=r"equal shapes, got .*'engine_logp': \[1\]"):
        mismatch(x, x[:1], x > 0)
    knobs = {"tis_type": "tis", "cap": 1.0, "min": 0.0}
    with pytest.raises(ShapeError, match=r"equal shapes, got .*'sequence': \[1\]"):
        importance_weights(x, x, x > 0, SEQUENCE[:1], **knobs)
    with pytest.raises(ShapeError, match=r"mask must be bool, got torch\.int64"):
        importance_weights(x, x, SEQUENCE[:2], SEQUENCE[:2], **knobs)
