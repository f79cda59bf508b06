"""Distance to the reference policy: three estimates of its value, one gradient.

Left out: KL inside the reward, and the influence of a token on the states after it.
"""

from typing import Literal, NamedTuple, assert_never

from torch import Tensor

from brorl.algo.checks import require_mask, require_same_shape

KlEstimator = Literal["k1", "k2", "k3"]

KL_LOG_RATIO_LIMIT = 10.0  # nats; ProRL v2's clamp


class KlPenalty(NamedTuple):
    """0-d tensors; only `loss` carries gradient. `total` and `tokens` add up over a step."""

    loss: Tensor  # nats: sum of weight * estimate; multiply by kl_coef and minimise
    total: Tensor  # nats: plain sum of the estimate over the mask; over `tokens` it is the metric
    tokens: Tensor  # int64: masked in


def kl_estimates(logp: Tensor, ref_logp: Tensor, *, kl_estimator: KlEstimator) -> Tensor:
    """KL(policy || reference) per sampled token, in nats.

    With d = logp - ref_logp, cut at 10 nats either way,

        k1 = d                   unbiased, either sign, the noisiest
        k2 = d^2 / 2             biased, >= 0
        k3 = exp(-d) - 1 + d     unbiased, >= 0

    Unbiased means over tokens sampled from the policy itself, and where the cut does not bite.

    Args:
        logp: float, any shape, nats.
        ref_logp: float, the same shape, nats.
        kl_estimator: see above.

    Source:
        Schulman 2020, "Approximating KL divergence" (joschu.net/blog/kl-approx.html).
    """
    d = (logp - ref_logp).clamp(-KL_LOG_RATIO_LIMIT, KL_LOG_RATIO_LIMIT)
    match kl_estimator:
        case "k1":
            return d
        case "k2":
            return 0.5 * d.square()
        case "k3":
            return (-d).expm1() + d
        case _:
            assert_never(kl_estimator)


def kl_penalty(
    logp: Tensor, ref_logp: Tensor, weight: Tensor, mask: Tensor, *, kl_estimator: KlEstimator
) -> KlPenalty:
    """A loss with the value of the chosen estimate and the gradient of KL(policy || reference).

    Differentiating the estimates themselves gives three different things. In expectation over
    tokens from the policy, with s = grad logp:

        grad k1 = s                 E = 0: no pull at all, only noise
        grad k2 = d s               E = grad KL(policy || reference): what is meant
        grad k3 = (1 - exp(-d)) s   E = grad KL(reference || policy): another divergence

    So the gradient is d s whichever estimate is chosen; `kl_estimator` decides the value alone.
    (verl's "k3+" is this for k3.) Where d is cut at 10 nats the pull stays at 10: it does not end.
    It is the gradient of the per-token KL with the states held fixed, and unbiased on-policy;
    after the first of several updates a caller can multiply `weight` by the ratio.

    Args:
        logp: float, any shape, nats: sampled tokens under the policy being trained.
        ref_logp: float, that shape, nats: the same under the reference. Constant.
        weight: float, that shape: from `aggregation.token_weights`. Constant.
        mask: bool, that shape. What lies under False is never read.
        kl_estimator: which value is reported; see `kl_estimates`.

    Returns:
        KlPenalty. An empty mask gives 0 with gradient 0.

    Raises:
        ShapeError: unequal shapes, or a mask that isn't bool.
    """
    require_same_shape(logp=logp, ref_logp=ref_logp, weight=weight, mask=mask)
    require_mask(mask)
    live, w = logp[mask], weight.detach()[mask]
    reference = ref_logp.detach()[mask]
    value = kl_estimates(live.detach(), reference, kl_estimator=kl_estimator)
    pull = kl_estimates(live.detach(), reference, kl_estimator="k1")
    # The bracket is 0 and its gradient is the score: this adds pull * score to the gradient only.
    loss = (w * (value + pull * (live - live.detach()))).sum()
    return KlPenalty(loss=loss, total=value.sum(), tokens=mask.sum())
