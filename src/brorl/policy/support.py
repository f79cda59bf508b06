"""Which models can share a prompt: refused by name where it would not be exact."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brorl.errors import PolicyError
from brorl.policy.model import Policy

_SHARING = {"full_attention", "sliding_attention"}  # kinds of layers, as model configs name them
_TOLERANCE = {torch.float32: 1e-3}  # nats; other dtypes below
_COARSE = 0.1  # nats: bfloat16 keeps 8 bits, and logits of a trained model reach tens


def plain_logprobs(policy: Policy, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
    """The slow, obvious way: float32 [T] log-probs of one answer by one ordinary full forward.

    The oracle of the start-up check and of the tests; temperature 1.
    """
    ids = torch.tensor([[*prompt, *answer]], device=policy.device)
    logits = policy.model(input_ids=ids, use_cache=False).logits[0].float()
    logp = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return logp.gather(-1, ids[0, len(prompt) :, None])[:, 0]  # type: ignore[no-any-return]


def check_shared_prefix(policy: Policy) -> None:
    """Refuse a model on which a shared prompt is not exact: by its config, then by a probe.

    The config names layers that carry a state instead of keys and values, and a cap on the
    logits, which small random weights would not show. The probe scores fixed tokens both ways:
    it rules out an architecture that does not hand our attention its keys and values, a head
    that is more than a linear map, position schemes of their own.

    Raises:
        PolicyError: naming the architecture and what stands against it, in one line.
    """
    config = policy.model.config
    name = f"{type(policy.model).__name__} ({config.model_type})"
    other = sorted(set(getattr(config, "layer_types", None) or ()) - _SHARING)
    if other:
        raise PolicyError(f"{name} cannot share prompts: it has {', '.join(other)} layers")
    if getattr(config, "final_logit_softcapping", None):
        raise PolicyError(f"{name} is not supported: its logits are soft-capped")
    try:
        gap = _probe(policy)
    except (
        PolicyError,
        TypeError,
        AttributeError,
        ValueError,
        RuntimeError,
        LookupError,
    ) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise PolicyError(f"{name} cannot share prompts: {first}") from error
    tolerance = _TOLERANCE.get(policy.model.dtype, _COARSE)
    if not gap <= tolerance:
        raise PolicyError(
            f"{name} is not supported: log-probs with a shared prompt differ from a plain "
            f"forward by {gap:.2g} nats, need at most {tolerance}"
        )


@torch.no_grad()
def _probe(policy: Policy) -> float:
    """Largest difference, in nats, between the two ways to score two short answers."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(policy.vocabulary, (2, 9), generator=generator).tolist()
    prompts, answers = [ids[0][:5], ids[1][:3]], [ids[0][5:], ids[1][3:7]]
    layers, used = policy.model.config.num_hidden_layers, policy.read_prompts(prompts).reader
    if len(used.keys_LGKCD) != layers:
        raise PolicyError(
            f"{len(used.keys_LGKCD)} of its {layers} layers hand over their keys and values"
        )
    got = policy.score(
        prompts,
        torch.tensor([0, 1], device=policy.device),
        torch.tensor(answers, device=policy.device),
        torch.tensor([4, 4], device=policy.device),
        temperature=1.0,
    ).logp_M
    want = [plain_logprobs(policy, p, a) for p, a in zip(prompts, answers, strict=True)]
    return float((got - torch.cat(want)).abs().max())
