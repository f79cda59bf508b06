"""What every function here asks of its arguments, and the reductions over ragged groups.

Axes:  P groups · B sequences (any number per group) · M tokens, of any shape, under a mask
"""

import torch
from torch import Tensor

from brorl.errors import ShapeError


def require_same_shape(**tensors: Tensor) -> None:
    """Refuse tensors whose shapes differ, naming each.

    Raises:
        ShapeError: two of them differ.
    """
    shapes = {name: list(x.shape) for name, x in tensors.items()}
    if len({tuple(s) for s in shapes.values()}) > 1:
        raise ShapeError(f"need equal shapes, got {shapes}")


def require_mask(mask: Tensor) -> None:
    """Refuse a mask that isn't bool: `values[mask]` would index instead of select.

    Raises:
        ShapeError: another dtype.
    """
    if mask.dtype != torch.bool:
        raise ShapeError(f"mask must be bool, got {mask.dtype}")


def require_rows(name: str, values_B: Tensor, group_B: Tensor) -> None:
    """Refuse anything but one finite float and one non-negative group index per row.

    Raises:
        ShapeError: not 1-d, unequal lengths, no float, no int64, NaN or infinity, an index < 0.
    """
    if values_B.ndim != 1 or values_B.shape != group_B.shape:
        shapes = f"{list(values_B.shape)} and {list(group_B.shape)}"
        raise ShapeError(f"{name} and group must be 1-d and equally long, got {shapes}")
    if not values_B.is_floating_point():
        raise ShapeError(f"{name} must be a float tensor, got {values_B.dtype}")
    if group_B.dtype != torch.int64:
        raise ShapeError(f"group must be int64, got {group_B.dtype}")
    if values_B.numel() and not bool(torch.isfinite(values_B).all()):
        row = int((~torch.isfinite(values_B)).nonzero()[0])
        raise ShapeError(f"{name} must be finite, got {values_B[row].item()} in row {row}")
    if group_B.numel() and int(group_B.min()) < 0:
        raise ShapeError(f"group indices must be >= 0, got {int(group_B.min())}")


def group_count(group_B: Tensor) -> int:
    """The smallest P that holds every index: largest index + 1, 0 for no rows."""
    return int(group_B.max()) + 1 if group_B.numel() else 0


def group_sums(values_B: Tensor, group_B: Tensor, n_groups: int) -> Tensor:
    """Sum of each group: [P], dtype of `values_B`. An empty group has sum 0."""
    out = torch.zeros(n_groups, dtype=values_B.dtype, device=values_B.device)
    return out.index_add_(0, group_B, values_B)


def group_sizes(group_B: Tensor, n_groups: int) -> Tensor:
    """Rows of each group: int64 [P]."""
    return torch.bincount(group_B, minlength=n_groups)


def group_means(values_B: Tensor, group_B: Tensor, n_groups: int) -> Tensor:
    """Mean of each group: [P], dtype of `values_B`. An empty group has mean 0."""
    sizes = group_sizes(group_B, n_groups).clamp(min=1)
    return group_sums(values_B, group_B, n_groups) / sizes


def has_spread(values_B: Tensor, group_B: Tensor, n_groups: int) -> Tensor:
    """Whether a group holds two different values: bool [P]. Decided by equality, with no tolerance.

    Why not a small standard deviation: rounding gives seven equal 0.95 a deviation of 1e-8, and
    a division by it turns nothing into an advantage of thousands.
    """
    low = torch.zeros(n_groups, dtype=values_B.dtype, device=values_B.device)
    high = low.clone()
    low.scatter_reduce_(0, group_B, values_B, "amin", include_self=False)
    high.scatter_reduce_(0, group_B, values_B, "amax", include_self=False)
    return low < high


def quotient(total: float, count: float) -> float:
    """total / count for a metric, with nothing over nothing = 0. The one guarded divisor.

    Raises:
        ShapeError: count is 0 or less while there is something to divide, or is below 0.
    """
    if count < 0 or (count == 0 and total != 0):
        raise ShapeError(f"need a positive count to divide {total} by, got {count}")
    return total / count if count else 0.0
