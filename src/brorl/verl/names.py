"""Names under which this package's pieces are found in verl, and what they stand for. No torch.

verl finds registered functions by a string in its configuration. All of ours begin with
`brorl_`, so that none takes the place of one of verl's own.
"""

from typing import NamedTuple, get_args

from brorl.errors import ConfigError
from brorl.train.settings import AdvantageSettings, Normalise, TrainSettings

VERL = "0.9.1"
"""The version of verl that the tests ran on, and the only one that is started."""

TRAINER = "brorl"
"""trainer.v1.trainer_mode, agent loop and reward manager."""

PLUGIN = "brorl.verl.plugin"
"""The module that verl imports in each of its processes (VERL_USE_EXTERNAL_MODULES)."""

CLIP, DUAL_CLIP = "brorl_clip", "brorl_dual_clip"
"""Policy losses: two bounds; two bounds and the third, clip_ratio_c."""


class EstimatorName(NamedTuple):
    """What a registered advantage estimator computes; see brorl.algo.advantages."""

    estimator: str
    normalise: str


def estimator_name(advantage: AdvantageSettings) -> str:
    """algorithm.adv_estimator for the settings of a recipe.

    verl hands an estimator its own `algorithm` section, which has no room for ours: the
    normalisation is part of the name.
    """
    if advantage.estimator != "reinforce_plus_plus_baseline":
        return f"brorl_{advantage.estimator}"
    return f"brorl_{advantage.estimator}_{advantage.scaling}"


def estimators() -> dict[str, EstimatorName]:
    """Every registered name."""
    found = {}
    for estimator in get_args(AdvantageSettings.model_fields["estimator"].annotation):
        own = estimator == "reinforce_plus_plus_baseline"
        for normalise in get_args(Normalise) if own else ("none",):
            name = f"brorl_{estimator}_{normalise}" if own else f"brorl_{estimator}"
            found[name] = EstimatorName(estimator, normalise)
    return found


def loss_name(settings: TrainSettings) -> str:
    """actor.policy_loss.loss_mode: verl's own losses clip at clip_ratio_c = 3 unasked."""
    return CLIP if settings.clip_ratio_c is None else DUAL_CLIP


def kl_loss_type(settings: TrainSettings) -> str:
    """actor.kl_loss_type: with `+` verl, as we do, takes the gradient of k2 whatever the value."""
    return {"k1": "k1+", "k2": "k2", "k3": "k3+"}[settings.kl_estimator]


def require_known(name: str) -> EstimatorName:
    """The parts of a registered estimator's name. Raises ConfigError."""
    if name not in estimators():
        raise ConfigError(f"need one of {', '.join(estimators())}, got {name}")
    return estimators()[name]
