"""How much each token counts in the loss, decided once for the whole optimiser step.

A loss here is sum(weight * per-token loss). The weight holds the aggregation and the *global*
denominator, so gradients of any split into micro-batches of whole sequences add up to the
gradient of the whole, and the mask above the line is the mask below it.

Tokens may be flat [M] (packed) or padded [B, T]: any shape, the same for every argument.
"""

from typing import Literal, assert_never

import torch
from torch import Tensor

from brorl.algo.checks import require_mask, require_same_shape
from brorl.errors import ShapeError

LossAggMode = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]


def loss_denominator(lengths_B: Tensor, *, loss_agg_mode: LossAggMode) -> int:
    """What the loss of one optimiser step is divided by; 0 where there is nothing to learn from.

    token-mean: the masked-in tokens. Both others: the sequences with at least one of them. A
    sequence that is masked out whole counts in neither.

    Args:
        lengths_B: int64 [B], >= 0: masked-in tokens per sequence, of the whole step.
        loss_agg_mode: see `token_weights`.
    """
    match loss_agg_mode:
        case "token-mean":
            return int(lengths_B.sum())
        case "seq-mean-token-mean" | "seq-mean-token-sum":
            return int((lengths_B > 0).sum())
        case _:
            assert_never(loss_agg_mode)


def token_weights(
    mask: Tensor,
    sequence: Tensor,
    *,
    loss_agg_mode: LossAggMode,
    denominator: float,
    dtype: torch.dtype,
) -> Tensor:
    """The factor of each token's loss; 0 outside the mask.

    With D the denominator and L the masked-in tokens of the token's own sequence,

        token-mean           1 / D          every token alike: long answers weigh more
        seq-mean-token-mean  1 / (D L)      every answer alike
        seq-mean-token-sum   1 / D          D counts answers; with a constant length times their
                                            number instead it is Dr. GRPO's

    On-policy the loss is -sum(weight * advantage). It is 0 for a centred group in
    seq-mean-token-mean only; in the others answers of unequal length leave a rest.

    Args:
        mask: bool. True where the policy chose the token.
        sequence: int64, shape of `mask`: any number that names the sequence of a token. A
            micro-batch holds whole sequences.
        loss_agg_mode: see above.
        denominator: of the whole step, from `loss_denominator`. 0 only where the mask is empty.
        dtype: of the result: that of the log-probs.

    Returns:
        Tensor of the shape of `mask`; multiply it by importance and cut weights as needed.

    Raises:
        ShapeError: shapes differ, a mask that isn't bool, or a denominator <= 0 with tokens.

    Source:
        Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.3; names as in verl's agg_loss.
    """
    require_same_shape(mask=mask, sequence=sequence)
    require_mask(mask)
    weight = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    tokens = int(mask.sum())
    if tokens == 0:
        return weight
    if denominator <= 0:
        raise ShapeError(f"denominator must be > 0 for {tokens} tokens, got {denominator}")
    match loss_agg_mode:
        case "token-mean" | "seq-mean-token-sum":
            weight[mask] = 1.0 / denominator
        case "seq-mean-token-mean":
            _, row_M, length_P = sequence[mask].unique(return_inverse=True, return_counts=True)
            weight[mask] = (1.0 / (denominator * length_P.to(dtype)))[row_M]
        case _:
            assert_never(loss_agg_mode)
    return weight
