"""From the rewards of ragged groups to one advantage per sequence.

A group is the set of answers to one draw of one prompt. Groups are told apart by `group_B`
alone, never by position, so they may differ in size and their rows may be interleaved.
In every estimator a group of one and a group without spread get advantage exactly 0.
Arithmetic is float64 whatever the dtype of the rewards, and variances are sums of squared
deviations, never E[x^2] - E[x]^2. Left out: value functions and per-token rewards.

Axes:  P groups · B sequences
"""

import math
from typing import Literal, assert_never

import torch
from torch import Tensor

from brorl.algo.checks import (
    group_count,
    group_means,
    group_sizes,
    group_sums,
    has_spread,
    require_rows,
)
from brorl.errors import ConfigError, ShapeError

Estimator = Literal["reinforce_plus_plus_baseline", "grpo", "dr_grpo", "rloo"]
Normalise = Literal["trajectory", "trajectory_unbiased", "token", "token_unbiased", "none"]

GRPO_EPSILON = 1e-6  # verl core_algos.py: added to the standard deviation
TOKEN_VARIANCE_FLOOR = 1e-8  # NeMo-RL and OpenRLHF: lower bound; verl masked_whiten: added


def advantages(
    rewards_B: Tensor,
    group_B: Tensor,
    lengths_B: Tensor,
    *,
    estimator: Estimator,
    normalise: Normalise,
    baseline_P: Tensor | None,
) -> Tensor:
    """The estimator that a recipe names. See the function of the same name for the formula.

    Args:
        rewards_B: float [B], finite: what the update is to raise, shaped or not.
        group_B: int64 [B], >= 0: the group of each row.
        lengths_B: int64 [B], >= 0: tokens the policy chose; read by the token forms only.
        estimator: see `Estimator`.
        normalise: only "none" goes with grpo, dr_grpo and rloo, which say themselves what they
            divide by.
        baseline_P: float [P] to subtract in place of the group's mean, or None. Only for
            reinforce_plus_plus_baseline and dr_grpo; `stopping.unbiased_baseline` computes it.

    Returns:
        float [B], dtype of `rewards_B`.

    Raises:
        ConfigError: a combination that one of the parts would ignore.
        ShapeError: shapes, dtypes, a value that isn't finite, an index below 0.
    """
    if estimator != "reinforce_plus_plus_baseline" and normalise != "none":
        raise ConfigError(
            f"advantage.normalise must be none for {estimator}, got {normalise}; batch "
            "normalisation belongs to reinforce_plus_plus_baseline"
        )
    if baseline_P is not None and estimator in ("grpo", "rloo"):
        raise ConfigError(f"{estimator} has a baseline of its own, got another one beside it")
    match estimator:
        case "reinforce_plus_plus_baseline":
            return reinforce_plus_plus_baseline(
                rewards_B, group_B, lengths_B, normalise=normalise, baseline_P=baseline_P
            )
        case "grpo":
            return grpo(rewards_B, group_B)
        case "dr_grpo":
            return dr_grpo(rewards_B, group_B, baseline_P=baseline_P)
        case "rloo":
            return rloo(rewards_B, group_B)
        case _:
            assert_never(estimator)


def dr_grpo(rewards_B: Tensor, group_B: Tensor, *, baseline_P: Tensor | None) -> Tensor:
    """A_i = r_i - mean of the group, not divided by anything.

    The mean holds r_i itself, so the expected update is (N - 1) / N of the true gradient: 6 %
    less at N = 16 than at N = 512. Two widths compared at one learning rate differ by this much.

    Args:
        rewards_B: float [B], finite.
        group_B: int64 [B], >= 0.
        baseline_P: float [P] subtracted instead of the mean, or None for the mean.

    Returns:
        float [B], dtype of `rewards_B`; with the mean, each group sums to 0.

    Raises:
        ShapeError: see `checks.require_rows`; a baseline shorter than the groups.

    Source:
        Liu et al. 2025, arXiv:2503.20783 (no division by the standard deviation).
    """
    return _centred(rewards_B, group_B, baseline_P).to(rewards_B.dtype)


def grpo(rewards_B: Tensor, group_B: Tensor) -> Tensor:
    """A_i = (r_i - mean) / (std + 1e-6), both of the group, std with divisor N - 1.

    The group's size enters the step: the one right answer among N gets about sqrt(N), 3.9 at
    N = 16 and 22.6 at N = 512.

    Args:
        rewards_B: float [B], finite.
        group_B: int64 [B], >= 0.

    Returns:
        float [B], dtype of `rewards_B`.

    Raises:
        ShapeError: see `checks.require_rows`.

    Source:
        Shao et al. 2024, arXiv:2402.03300, section 4.1; epsilon and divisor as in verl.
    """
    centred_B = _centred(rewards_B, group_B, None)
    n_groups = group_count(group_B)
    freedom_P = (group_sizes(group_B, n_groups) - 1).clamp(min=1)
    std_P = (group_sums(centred_B.square(), group_B, n_groups) / freedom_P).sqrt()
    return (centred_B / (std_P[group_B] + GRPO_EPSILON)).to(rewards_B.dtype)


def rloo(rewards_B: Tensor, group_B: Tensor) -> Tensor:
    """A_i = r_i - mean of the others in the group = N / (N - 1) · (r_i - mean of the group).

    Args:
        rewards_B: float [B], finite.
        group_B: int64 [B], >= 0.

    Returns:
        float [B], dtype of `rewards_B`.

    Raises:
        ShapeError: see `checks.require_rows`.

    Source:
        Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!";
        Ahmadian et al. 2024, arXiv:2402.14740.
    """
    centred_B = _centred(rewards_B, group_B, None)
    size_P = group_sizes(group_B, group_count(group_B)).double()
    factor_P = size_P / (size_P - 1).clamp(min=1)
    return (centred_B * factor_P[group_B]).to(rewards_B.dtype)


def reinforce_plus_plus_baseline(
    rewards_B: Tensor,
    group_B: Tensor,
    lengths_B: Tensor,
    *,
    normalise: Normalise,
    baseline_P: Tensor | None,
) -> Tensor:
    """Reward minus the group's mean, then scaled by the spread of the whole batch.

    Centring is per group, scaling is over all rows of all groups with spread: call it with every
    kept group of the step, before any split into mini-batches.

    Args:
        rewards_B: float [B], finite.
        group_B: int64 [B], >= 0.
        lengths_B: int64 [B], >= 0: tokens the policy chose; read by the token forms only.
        normalise: see `normalised`.
        baseline_P: float [P] subtracted instead of the group's mean, or None for the mean.

    Returns:
        float [B], dtype of `rewards_B`.

    Raises:
        ShapeError: see `checks.require_rows`; lengths of another shape.

    Source:
        Hu et al. 2025, arXiv:2501.03262 (REINFORCE++); Hu et al. 2025 (BroRL),
        arXiv:2510.01180v1, section 3.
    """
    centred_B = _centred(rewards_B, group_B, baseline_P)
    spread_B = has_spread(rewards_B, group_B, group_count(group_B))[group_B]
    return normalised(centred_B, spread_B, lengths_B, normalise=normalise).to(rewards_B.dtype)


def normalised(
    advantage_B: Tensor, counts_B: Tensor, lengths_B: Tensor, *, normalise: Normalise
) -> Tensor:
    """Advantages divided by their spread over the rows that count; the other rows get exactly 0.

    With w_i = 1 (trajectory forms) or the length of row i (token forms), W = sum of w and
    mu = sum(w A) / W over the rows that count,

        trajectory           A / sigma           sigma^2 = sum((A - mu)^2) / W
        trajectory_unbiased  A / sigma           sigma^2 = sum((A - mu)^2) / (W - 1)
        token                (A - mu) / sigma    sigma^2 = max(sum(w (A - mu)^2) / W, 1e-8)
        token_unbiased       (A - mu) / sigma    sigma^2 = sum(w (A - mu)^2) / (W - 1) + 1e-8
        none                 A

    The trajectory forms don't subtract mu: with group means as baseline it is 0 by construction,
    and with another baseline subtracting it would bring the bias back. The token forms weigh a
    long answer more, so a group no longer sums to 0; they are here for comparison with peers.

    Args:
        advantage_B: float [B].
        counts_B: bool [B]. True for rows of groups with spread.
        lengths_B: int64 [B], >= 0: tokens the policy chose.
        normalise: see above.

    Returns:
        float64 [B]. All zeros where no row counts, or none of those that count has a token.

    Raises:
        ShapeError: shapes differ, or `counts_B` isn't bool.

    Source:
        token: NVIDIA-NeMo/RL advantage_estimator.py and OpenRLHF; token_unbiased: verl
        masked_whiten; trajectory: the text of arXiv:2510.01180v1, section 3.
    """
    if not (advantage_B.shape == counts_B.shape == lengths_B.shape and advantage_B.ndim == 1):
        shapes = [list(x.shape) for x in (advantage_B, counts_B, lengths_B)]
        raise ShapeError(f"advantage, counts and lengths must be equally long [B], got {shapes}")
    if counts_B.dtype != torch.bool:
        raise ShapeError(f"counts must be bool, got {counts_B.dtype}")
    advantage_B = torch.where(counts_B, advantage_B.double(), 0.0)
    if normalise == "none":
        return advantage_B
    by_token = normalise in ("token", "token_unbiased")
    weight_B = lengths_B.double() if by_token else torch.ones_like(advantage_B)
    weight_B = torch.where(counts_B, weight_B, 0.0)
    total = float(weight_B.sum())
    scale = float(advantage_B.abs().max()) if advantage_B.numel() else 0.0
    if total <= 1 or scale == 0.0:  # fewer than two: no spread to divide by
        return torch.zeros_like(advantage_B)
    unit_B = advantage_B / scale  # so that squares of tiny rewards don't underflow
    mean = float((weight_B * unit_B).sum()) / total
    squares = float((weight_B * (unit_B - mean).square()).sum())
    match normalise:
        case "trajectory":
            return unit_B / math.sqrt(squares / total)
        case "trajectory_unbiased":
            return unit_B / math.sqrt(squares / (total - 1))
        case "token":
            floor = TOKEN_VARIANCE_FLOOR / scale**2
            sigma = math.sqrt(max(squares / total, floor))
        case "token_unbiased":
            sigma = math.sqrt(squares / (total - 1) + TOKEN_VARIANCE_FLOOR / scale**2)
        case _:
            assert_never(normalise)
    return torch.where(counts_B, (unit_B - mean) / sigma, 0.0)


def _centred(rewards_B: Tensor, group_B: Tensor, baseline_P: Tensor | None) -> Tensor:
    """Reward minus baseline in float64, exactly 0 in groups of one and groups without spread."""
    require_rows("rewards", rewards_B, group_B)
    n_groups = group_count(group_B)
    if baseline_P is None:
        baseline_P = group_means(rewards_B.double(), group_B, n_groups)
    elif baseline_P.ndim != 1 or len(baseline_P) < n_groups:
        raise ShapeError(f"need a baseline for {n_groups} groups, got {list(baseline_P.shape)}")
    spread_P = has_spread(rewards_B, group_B, n_groups)
    centred_B = rewards_B.double() - baseline_P.double()[group_B]
    return torch.where(spread_P[group_B], centred_B, 0.0)
