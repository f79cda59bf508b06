"""What verl imports in each of its processes: VERL_USE_EXTERNAL_MODULES=brorl.verl.plugin.

Everything goes through verl's public registries: advantage estimators, policy losses, the
reward manager, the agent loop and the trainer, which is a subclass of verl's synchronous one.
"""

from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

from brorl.verl.estimators import estimator
from brorl.verl.losses import policy_loss
from brorl.verl.names import CLIP, DUAL_CLIP, estimators

for _name in estimators():
    register_adv_est(_name)(estimator(_name))
register_policy_loss(CLIP)(policy_loss(CLIP, dual=False))
register_policy_loss(DUAL_CLIP)(policy_loss(DUAL_CLIP, dual=True))

from brorl.verl import agent_loop, reward, trainer  # noqa: E402

__all__ = ["agent_loop", "reward", "trainer"]
