"""What a token counts for, by hand and in closed form."""

import pytest
import torch

from brorl.algo.aggregation import loss_denominator, token_weights
from brorl.errors import ShapeError

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")
# Three sequences with 3, 1 and 0 tokens of the policy's own, under arbitrary names.
MASK = torch.tensor([[True, True, False, True], [False, True, False, False], [False] * 4])
ROW = torch.tensor([[7] * 4, [2] * 4, [9] * 4])
LENGTHS = MASK.sum(1)


@pytest.mark.parametrize(
    ("mode", "denominator", "first", "second"),
    [
        ("token-mean", 4, 1 / 4, 1 / 4),
        ("seq-mean-token-mean", 2, 1 / 2 / 3, 1 / 2),
        ("seq-mean-token-sum", 2, 1 / 2, 1 / 2),
    ],
)
def test_by_hand(mode, denominator, first, second):
    """Hand-computed. The third sequence is masked out whole, and counts in no denominator."""
    assert loss_denominator(LENGTHS, loss_agg_mode=mode) == denominator
    got = token_weights(MASK, ROW, loss_agg_mode=mode, denominator=denominator, dtype=torch.float64)
    want = torch.zeros(3, 4, dtype=torch.float64)
    want[0, [0, 1, 3]], want[1, 1] = first, second
    torch.testing.assert_close(got, want, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        # advantages +1/2 on 3 tokens, -1/2 on 1 token
        ("token-mean", (3 - 1) / 2 / 4),
        ("seq-mean-token-mean", 0.0),
        ("seq-mean-token-sum", (3 - 1) / 2 / 2),
    ],
)
def test_on_policy_loss_of_a_centred_group(mode, want):
    """Closed form: only the mean of means is 0 when answers differ in length."""
    n = loss_denominator(LENGTHS, loss_agg_mode=mode)
    weight = token_weights(MASK, ROW, loss_agg_mode=mode, denominator=n, dtype=torch.float64)
    advantage = torch.tensor([0.5, -0.5, 0.0], dtype=torch.float64)[:, None]
    assert (weight * advantage).sum().item() == pytest.approx(want, abs=1e-15)


def test_a_constant_length_makes_it_dr_grpo():
    """Hand-computed: sum over tokens / (4 answers · 8 tokens), whatever their lengths."""
    got = token_weights(
        MASK, ROW, loss_agg_mode="seq-mean-token-sum", denominator=4 * 8, dtype=torch.float32
    )
    assert got[MASK].tolist() == [1 / 32] * 4
    assert got.dtype == torch.float32


@pytest.mark.parametrize("mode", MODES)
def test_a_micro_batch_of_one_token(mode):
    """Hand-computed: its share of a step of 4, and of a step that is nothing else."""
    one = torch.tensor([True])
    for n in (4, 1):
        got = token_weights(one, one.long(), loss_agg_mode=mode, denominator=n, dtype=torch.float64)
        assert got.tolist() == [1 / n]


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_the_whole_step_add_up(mode):
    """Identity: sum of weights is 1 for both means, tokens per answer for the sum."""
    n = loss_denominator(LENGTHS, loss_agg_mode=mode)
    got = token_weights(MASK, ROW, loss_agg_mode=mode, denominator=n, dtype=torch.float64)
    want = 4 / 2 if mode == "seq-mean-token-sum" else 1.0
    assert got.sum().item() == pytest.approx(want, rel=1e-15)


def test_says_what_is_wrong():
    knobs = {"loss_agg_mode": "token-mean", "dtype": torch.float32}
    with pytest.raises(ShapeError, match="denominator must be > 0 for 4 tokens, got 0"):
        token_weights(MASK, ROW, denominator=0, **knobs)
    with pytest.raises(ShapeError, match=r"mask must be bool, got torch\.int64"):
        token_weights(MASK.long(), ROW, denominator=1, **knobs)
    with pytest.raises(ShapeError, match=r"equal shapes, got .*'sequence': \[3\]"):
        token_weights(MASK, ROW[:, 0], denominator=1, **knobs)
