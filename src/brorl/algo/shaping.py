"""Terms added to a reward for how long an answer is and whether it ended.

They come after filtering, which looks at raw scores, and before the baseline. The caller adds
them; nothing here decides whether a term is on, except the duty cycle that is asked for.

Axes:  B sequences
"""

import math

import torch
from torch import Tensor

from brorl.algo.checks import require_same_shape
from brorl.errors import ConfigError, ShapeError


def overlong_penalty(lengths_B: Tensor, *, max_length: int, buffer: int, factor: float) -> Tensor:
    """DAPO's soft limit: 0 up to max_length - buffer, then a straight line to -factor.

        min(0, -factor · (length - (max_length - buffer)) / buffer)

    Args:
        lengths_B: int64 [B], tokens of the answer, in [0, max_length].
        max_length: > 0, tokens: where generation is cut off.
        buffer: in [1, max_length], tokens.
        factor: >= 0, reward units.

    Returns:
        float64 [B], in [-factor, 0]; add it to the reward.

    Raises:
        ConfigError: a setting out of its range.
        ShapeError: a length out of its range.

    Source:
        Yu et al. 2025 (DAPO), arXiv:2503.14476, section 3.4.
    """
    _require_lengths(lengths_B, max_length)
    if not 1 <= buffer <= max_length or not 0 <= factor < math.inf:
        raise ConfigError(
            f"need 1 <= overlong.buffer <= {max_length} and overlong.factor >= 0, "
            f"got {buffer} and {factor}"
        )
    excess_B = (lengths_B.double() - (max_length - buffer)).clamp(min=0.0)
    return -factor * excess_B / buffer


def stop_properly(rewards_B: Tensor, truncated_B: Tensor, *, coefficient: float) -> Tensor:
    """Rewards in which an answer that was cut off is worth less, or a fixed negative amount.

        coefficient in [0, 1]   r · coefficient for truncated rows (0: nothing)
        coefficient < 0         the coefficient itself for truncated rows

    Args:
        rewards_B: float [B].
        truncated_B: bool [B]: generation hit its limit.
        coefficient: <= 1.

    Returns:
        float [B], dtype of `rewards_B`.

    Raises:
        ConfigError: coefficient above 1, or not finite.
        ShapeError: unequal shapes, or `truncated_B` isn't bool.

    Source:
        ProRL v2 as in NVIDIA-NeMo/RL (stop_properly_penalty_coef); the negative form: OpenRLHF.
    """
    require_same_shape(rewards=rewards_B, truncated=truncated_B)
    if truncated_B.dtype != torch.bool:
        raise ShapeError(f"truncated must be bool, got {truncated_B.dtype}")
    if not -math.inf < coefficient <= 1:
        raise ConfigError(f"stop-properly coefficient must be finite and <= 1, got {coefficient}")
    if coefficient < 0:
        return torch.where(truncated_B, coefficient, rewards_B)
    return torch.where(truncated_B, rewards_B * coefficient, rewards_B)


def cosine_length_term(
    lengths_B: Tensor, *, max_length: int, eta_min: float, eta_max: float
) -> Tensor:
    """ProRL v2's length term, from eta_max for an empty answer down to eta_min at the limit.

        eta_min + (eta_max - eta_min) · (1 + cos(pi · length / max_length)) / 2

    It is flat at both ends: the pull on length is strongest at half the limit. It is added to
    right and wrong answers alike, times a coefficient, while `length_term_active`. (OpenRLHF's
    ProRL v2 script calls a linear penalty by this name.)

    Args:
        lengths_B: int64 [B], tokens of the answer, in [0, max_length].
        max_length: > 0, tokens.
        eta_min: <= eta_max, finite.
        eta_max: finite.

    Returns:
        float64 [B], in [eta_min, eta_max].

    Raises:
        ConfigError: a setting out of its range.
        ShapeError: a length out of its range.

    Source:
        ProRL v2, the authors' page of August 2025. The values they used for eta are not public.
    """
    share_B = _length_share(lengths_B, max_length, eta_min, eta_max)
    return eta_min + 0.5 * (eta_max - eta_min) * (1 + torch.cos(math.pi * share_B))


def linear_length_term(
    lengths_B: Tensor, *, max_length: int, eta_min: float, eta_max: float
) -> Tensor:
    """The same two ends as `cosine_length_term`, with the same pull at every length.

        eta_max - (eta_max - eta_min) · length / max_length

    Args, Returns, Raises: as `cosine_length_term`.
    """
    share_B = _length_share(lengths_B, max_length, eta_min, eta_max)
    return eta_max - (eta_max - eta_min) * share_B


def length_term_active(step: int, *, on: int, off: int) -> bool:
    """Duty cycle of a length term: `on` steps with it, then `off` without, from step 0 on.

    Args:
        step: >= 0.
        on: >= 1.
        off: >= 0; 0 keeps it on.

    Raises:
        ConfigError: on < 1 or off < 0.

    Source:
        ProRL v2 gives 100 on, 500 off as an example.
    """
    if on < 1 or off < 0:
        raise ConfigError(f"need length_penalty on >= 1 and off >= 0 steps, got {on} and {off}")
    return step % (on + off) < on


def _length_share(lengths_B: Tensor, max_length: int, eta_min: float, eta_max: float) -> Tensor:
    """length / max_length in [0, 1], settings checked: float64 [B]."""
    _require_lengths(lengths_B, max_length)
    if not -math.inf < eta_min <= eta_max < math.inf:
        raise ConfigError(f"need finite eta_min <= eta_max, got {eta_min} and {eta_max}")
    return lengths_B.double() / max_length


def _require_lengths(lengths_B: Tensor, max_length: int) -> None:
    if max_length < 1:
        raise ConfigError(f"max_length must be >= 1 token, got {max_length}")
    if lengths_B.numel() and not 0 <= int(lengths_B.min()) <= int(lengths_B.max()) <= max_length:
        low, high = int(lengths_B.min()), int(lengths_B.max())
        raise ShapeError(f"lengths must lie in 0 ... {max_length}, got {low} ... {high}")
