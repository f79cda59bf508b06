"""What is done about an engine that samples from slightly other probabilities than the trainer's.

rho = exp(old_logp - engine_logp) per token: the trainer over the engine, at the same weights.
It corrects for who sampled, and is separate from the ratio of new to old weights in the loss.
Measured over a whole step, before it is split: a rule that looks at a batch must see all of it.
"""

from typing import Literal, NamedTuple, assert_never

import torch
from torch import Tensor

from brorl.algo.checks import require_mask, require_same_shape
from brorl.errors import ConfigError

TisType = Literal["tis", "icepop", "seq-mask-tis"]

LOG_RHO_LIMIT = 20.0  # nats; verl's bound on the logarithm


class ImportanceWeights(NamedTuple):
    """The correction, and how much it took away."""

    weight: Tensor  # shape of the mask, >= 0, no gradient: multiplies the token's loss
    kept: Tensor  # bool, shape of the mask: masked in and not removed by the correction
    masked: int  # tokens that were masked in and got weight 0
    cut: int  # tokens whose weight was moved to `cap` or `min`


class Mismatch(NamedTuple):
    """How far trainer and engine disagree on the tokens that were sampled."""

    kl: float  # nats per token, mean of -log rho: KL(engine || trainer), either sign
    k3: float  # nats per token, mean of rho - 1 - log rho, >= 0: the same, less noisy
    ratio_mean: float  # mean of rho; 1 where the engine's probabilities are what it says
    ratio_max: float
    ess: float  # (sum rho)^2 / (n sum rho^2) in (0, 1]: effective share of the tokens
    tokens: int


def importance_weights(
    old_logp: Tensor,
    engine_logp: Tensor,
    mask: Tensor,
    sequence: Tensor,
    *,
    tis_type: TisType,
    cap: float,
    min: float,
) -> ImportanceWeights:
    """Weights for the policy loss of tokens that another engine sampled.

        tis           rho moved into [min, cap]
        icepop        rho where min <= rho <= cap, else 0
        seq-mask-tis  rho where min <= g <= cap, else 0, with g = exp(mean of log rho over the
                      sequence): whole sequences go, whatever their length

    The denominator of the loss stays what it was: a removed token counts as one with loss 0.

    Args:
        old_logp: float, any shape, nats: the trainer's, at the weights that sampled.
        engine_logp: float, that shape, nats: the engine's own, at the same temperature.
        mask: bool, that shape. What lies under False is never read.
        sequence: int64, that shape: names the sequence of a token; read by seq-mask-tis.
        tis_type: see above.
        cap: > 0. Usual: 2 (tis), 5 (icepop), 1.002 (seq-mask-tis).
        min: in [0, cap]. Usual: 0 (tis), 0.5 (icepop), 0.999 (seq-mask-tis).

    Raises:
        ShapeError: unequal shapes, or a mask that isn't bool.
        ConfigError: bounds out of their range.

    Source:
        verl rollout_corr_helper.py, NVIDIA-NeMo/RL loss functions, OpenRLHF loss.py.
    """
    require_same_shape(old_logp=old_logp, engine_logp=engine_logp, mask=mask, sequence=sequence)
    require_mask(mask)
    if not 0 <= min <= cap or cap <= 0:
        raise ConfigError(f"need 0 <= tis.min <= tis.cap and cap > 0, got {min} and {cap}")
    log_rho = _log_rho(old_logp, engine_logp, mask)
    rho = log_rho.exp()
    match tis_type:
        case "tis":
            inside = torch.ones_like(rho, dtype=torch.bool)
            value = rho.clamp(min, cap)
        case "icepop":
            inside = (rho >= min) & (rho <= cap)
            value = torch.where(inside, rho, 0.0)
        case "seq-mask-tis":
            geometric = _sequence_means(log_rho, sequence[mask]).exp()
            inside = (geometric >= min) & (geometric <= cap)
            value = torch.where(inside, rho, 0.0)
        case _:
            assert_never(tis_type)
    weight = torch.zeros(mask.shape, dtype=rho.dtype, device=mask.device)
    weight[mask] = value
    kept = torch.zeros_like(mask)
    kept[mask] = inside
    cut = int((inside & (value != rho)).sum())
    return ImportanceWeights(weight=weight, kept=kept, masked=int((~inside).sum()), cut=cut)


def mismatch(old_logp: Tensor, engine_logp: Tensor, mask: Tensor) -> Mismatch | None:
    """Engine against trainer over a mask; None where the mask is empty.

    Call it with the whole mask for the figure that says whether something is broken, and with
    `ImportanceWeights.kept` for what the update sees. Figures taken after the removal alone look
    healthy however wrong the engine is.

    Args:
        old_logp: float, any shape, nats.
        engine_logp: float, that shape, nats.
        mask: bool, that shape. What lies under False is never read.

    Raises:
        ShapeError: unequal shapes, or a mask that isn't bool.
    """
    require_same_shape(old_logp=old_logp, engine_logp=engine_logp, mask=mask)
    require_mask(mask)
    log_rho = _log_rho(old_logp, engine_logp, mask).double()
    if log_rho.numel() == 0:
        return None
    rho = log_rho.exp()
    n = rho.numel()
    return Mismatch(
        kl=float(-log_rho.mean()),
        k3=float((log_rho.expm1() - log_rho).mean()),
        ratio_mean=float(rho.mean()),
        ratio_max=float(rho.max()),
        ess=float(rho.sum().square() / (n * rho.square().sum())),
        tokens=n,
    )


def _log_rho(old_logp: Tensor, engine_logp: Tensor, mask: Tensor) -> Tensor:
    """log rho of the masked-in tokens: [M], cut at LOG_RHO_LIMIT either way."""
    raw = old_logp.detach()[mask] - engine_logp.detach()[mask]
    return raw.clamp(-LOG_RHO_LIMIT, LOG_RHO_LIMIT)


def _sequence_means(values_M: Tensor, sequence_M: Tensor) -> Tensor:
    """For each token the mean over its sequence: [M]."""
    _, row_M, length_P = sequence_M.unique(return_inverse=True, return_counts=True)
    total_P = torch.zeros(len(length_P), dtype=values_M.dtype, device=values_M.device)
    total_P.index_add_(0, row_M, values_M)
    mean_P: Tensor = total_P / length_P
    return mean_P[row_M]
