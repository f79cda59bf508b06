"""What our part of a verl run remembers between steps, and how verl's checkpoints carry it.

verl saves the state of its data loader with each checkpoint and gives it back on resume; this
object stands in that place. Prompts are drawn by our PromptSource, so there is no other loader.
"""

from dataclasses import dataclass, field
from typing import Any

from brorl.errors import DataError
from brorl.train.collect import PassRate
from brorl.train.prompts import PromptSource
from brorl.train.reference import ResetRule


@dataclass
class RunState:
    """Counters, the position in the data, and the reference policy's age.

    Attributes:
        fingerprint: of settings and data; a checkpoint of another run is refused.
        updates: optimizer steps so far.
        kl: nats a token to the reference in the last step; None before the first.
        reference_step: the step the reference dates from; 0: the policy that training began with.
        empty_steps: steps in a row without an update.
    """

    source: PromptSource
    pass_rate: PassRate
    reset_rule: ResetRule
    fingerprint: str
    updates: int = 0
    kl: float | None = None
    reference_step: int = 0
    empty_steps: int = 0
    restored: bool = field(default=False, repr=False)

    def state_dict(self) -> dict[str, Any]:
        """Plain values; verl writes them to data.pt."""
        rule = self.reset_rule
        return {
            "fingerprint": self.fingerprint,
            "updates": self.updates,
            "kl": self.kl,
            "reference_step": self.reference_step,
            "empty_steps": self.empty_steps,
            "source": self.source.state(),
            "pass_rate": {"kept": self.pass_rate.kept, "generated": self.pass_rate.generated},
            "reset": {"last": rule.last, "best": rule.best, "stale_evals": rule.stale_evals},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse. Raises DataError for a checkpoint of other data."""
        if state.get("fingerprint") != self.fingerprint:
            raise DataError("the checkpoint was saved by a run on other data; name another --out")
        self.updates, self.kl = int(state["updates"]), state["kl"]
        self.reference_step = int(state["reference_step"])
        self.empty_steps = int(state["empty_steps"])
        self.source.restore(state["source"])
        self.pass_rate.kept = float(state["pass_rate"]["kept"])
        self.pass_rate.generated = float(state["pass_rate"]["generated"])
        reset = state["reset"]
        self.reset_rule.last = int(reset["last"])
        self.reset_rule.best = float(reset["best"])
        self.reset_rule.stale_evals = int(reset["stale_evals"])
        self.restored = True
