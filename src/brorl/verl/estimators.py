"""Advantage estimators in the form verl registers: padded tensors in, padded tensors out.

The arithmetic is `brorl.algo.advantages`; only shapes change here. verl itself is not imported.

Axes:  B sequences · T response tokens, padded
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from brorl.algo.advantages import Estimator, Normalise, advantages
from brorl.errors import ShapeError
from brorl.verl.names import require_known

AdvantageFn = Callable[..., tuple[Tensor, Tensor]]


def estimator(name: str) -> AdvantageFn:
    """The function to register under a name of ours: (advantages_BT, returns_BT), both equal.

    verl calls it with the keywords token_level_rewards, response_mask, index and config. Rows
    with an empty mask are verl's padding: they get 0 and join no group.

    Raises:
        ConfigError: no such name.
    """
    parts = require_known(name)

    def registered(
        token_level_rewards: Tensor,
        response_mask: Tensor,
        index: Sequence[Any] | None = None,
        config: Any = None,
        **unused: Any,
    ) -> tuple[Tensor, Tensor]:
        if index is None or len(index) != len(token_level_rewards):
            came = "none" if index is None else f"{len(index)} for {len(token_level_rewards)} rows"
            raise ShapeError(f"{name} needs the group (uid) of each row, got {came}")
        lengths_B = response_mask.long().sum(-1)
        real_B = lengths_B > 0
        out_B = torch.zeros(len(lengths_B), dtype=torch.float64, device=lengths_B.device)
        if bool(real_B.any()):
            groups: dict[Any, int] = {}
            real = real_B.tolist()
            group = [
                groups.setdefault(i, len(groups)) for i, r in zip(index, real, strict=True) if r
            ]
            out_B[real_B] = advantages(
                token_level_rewards.sum(-1)[real_B].double(),
                torch.tensor(group, device=lengths_B.device),
                lengths_B[real_B],
                estimator=cast(Estimator, parts.estimator),
                normalise=cast(Normalise, parts.normalise),
                baseline_P=None,
            )
        values_BT = out_B.to(torch.float32)[:, None] * response_mask
        return values_BT, values_BT.clone()

    registered.__name__ = registered.__qualname__ = name
    return registered
