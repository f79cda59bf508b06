"""The reference policy: a frozen copy that the KL term pulls towards, and when it is renewed."""

import copy
import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brorl.policy.model import Policy
from brorl.train.batch import Micro
from brorl.train.settings import RefSettings


class Reference:
    """A frozen copy of the policy as it was at `step`."""

    def __init__(self, policy: Policy, step: int) -> None:
        frozen = {id(p): p for p in policy.model.parameters() if not p.requires_grad}
        model = copy.deepcopy(policy.model, dict(frozen))  # beside an adapter the base is shared
        model.requires_grad_(False)
        self.policy = dataclasses.replace(policy, model=model)
        self.step = step

    @torch.no_grad()
    def reset(self, policy: Policy, step: int) -> None:
        """Become the current policy (a hard reset)."""
        self.policy.model.load_state_dict(policy.model.state_dict())
        self.step = step

    @torch.no_grad()
    def logp(self, micro: Micro, temperature: float) -> Tensor:
        """float32 [M], nats, at the sampling temperature."""
        return micro.score(self.policy, temperature).logp_M


@dataclass
class ResetRule:
    """When the reference is renewed: on a schedule, on a stall, on a KL spike.

    A stall is `stall_evals` held-out evaluations in a row that did not beat the best one since
    the last reset. A spike is a step whose mean KL to the reference exceeds `kl_spike` nats.

    Attributes:
        last: step of the last reset.
        best: best held-out pass@1 since then.
        stale_evals: evaluations since the best.
    """

    settings: RefSettings
    last: int = 0
    best: float = -math.inf
    stale_evals: int = 0

    def saw_eval(self, score: float) -> None:
        """Note a held-out evaluation."""
        if score > self.best:
            self.best, self.stale_evals = score, 0
        else:
            self.stale_evals += 1

    def reason(self, step: int, kl: float | None) -> str | None:
        """Why the reference is renewed after this many finished steps; None where it is not."""
        s = self.settings
        if s.reset_every is not None and step - self.last >= s.reset_every:
            return f"schedule of {s.reset_every} steps"
        if "stall" in s.reset_on and self.stale_evals >= s.stall_evals:
            return (
                f"stall: {self.stale_evals} evaluations without a better one than {self.best:.4f}"
            )
        if "kl_spike" in s.reset_on and kl is not None and kl > s.kl_spike:
            return f"KL spike: {kl:.4f} nats per token, limit {s.kl_spike}"
        return None

    def did(self, step: int) -> None:
        """Note a reset."""
        self.last, self.best, self.stale_evals = step, -math.inf, 0
