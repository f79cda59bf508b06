"""What a recipe asks of each GPU under verl, and how long a step might take: counted, not measured.

Memory: FSDP2 shards float32 weights, gradients and two moments over all GPUs; vLLM keeps a copy
of its own and a share of the card for keys and values. Time: arithmetic alone, at an assumed
utilisation; sampling is bound by memory traffic and is not estimated.
"""

from typing import NamedTuple

from brorl.train.plan import model_shape, parameters
from brorl.train.settings import TrainSettings

H100_FLOPS = 989e12  # bfloat16, dense: NVIDIA H100 SXM data sheet
UTILISATION = 0.4  # assumed
UPDATE_PASSES = 12  # FLOPs per weight and token: 2 old log-probs, 2 reference, 8 update (with
# activations made again in the backward pass)


class Need(NamedTuple):
    """Bytes a GPU, and seconds a step."""

    parameters: int
    sharded: int  # weights, gradients, moments; float32
    reference: int  # float32 shards, in host memory between its passes
    engine_weights: int
    kv_token: int  # keys and values of one token
    kv_answer: int  # of one answer as long as the limit
    tokens: int  # of a step's update, prompt and answer at their limits
    update_s: float


def estimate(s: TrainSettings, *, gpus: int, max_prompt_tokens: int) -> Need:
    """Count a recipe on a number of GPUs.

    Raises:
        ConfigError: the model's shape is not known.
    """
    shape = model_shape(s)
    weights = parameters(shape)
    width = shape.hidden // shape.heads
    half = 4 if s.model.dtype == "float32" else 2
    kv_token = 2 * shape.layers * shape.kv_heads * width * half
    tokens = s.samples_per_step * (max_prompt_tokens + s.rollout.max_new_tokens)
    passes = UPDATE_PASSES - (0 if s.kl_coef else 2)
    return Need(
        parameters=weights,
        sharded=weights * 16 // gpus,
        reference=weights * 4 // gpus if s.kl_coef else 0,
        engine_weights=weights * half,
        kv_token=kv_token,
        kv_answer=kv_token * s.rollout.max_new_tokens,
        tokens=tokens,
        update_s=passes * weights * tokens / (gpus * H100_FLOPS * UTILISATION),
    )
