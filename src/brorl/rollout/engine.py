"""What a rollout is, and what an engine must promise. No engine lives here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from brorl.errors import ConfigError, EngineError

_COMPLETION_DTYPES = (np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.bool_))


class Stop(StrEnum):
    """Why generation ended."""

    EOS = "eos"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """One sampled answer. It carries all that is known of its sampling; arrays are read-only.

    Attributes:
        tokens: int32 [T], T >= 1, without the prompt, with the EOS if it was sampled.
        logprobs: float32 [T], nats, at the sampling temperature over the full vocabulary. NaN
            where an engine cannot tell them so, never in training: a server's, and vLLM's where
            top_p or top_k left only a part to draw from.
        mask: bool [T], True where the policy chose the token (always, without tools).
        stop: why it ended.
        policy_version: optimiser updates applied to the weights that sampled it.
    """

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    mask: NDArray[np.bool_]
    stop: Stop
    policy_version: int

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.logprobs) == len(self.mask) >= 1:
            raise EngineError(
                f"a completion needs equally many tokens, log-probs and mask entries, at least "
                f"one, got {len(self.tokens)}, {len(self.logprobs)}, {len(self.mask)}"
            )
        kinds = (self.tokens.dtype, self.logprobs.dtype, self.mask.dtype)
        if kinds != _COMPLETION_DTYPES:
            raise EngineError(
                f"a completion needs int32 tokens, float32 log-probs and a bool mask, got "
                f"{', '.join(map(str, kinds))}"
            )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. Temperature 0 is greedy and only for evaluation."""

    temperature: float
    top_p: float  # in (0, 1]; 1: no limit
    top_k: int  # 0: no limit
    max_new_tokens: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature must be finite and >= 0, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ConfigError(f"top_k must be >= 0 (0: no limit), got {self.top_k}")
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens must be >= 1, got {self.max_new_tokens}")


@dataclass(frozen=True, slots=True)
class Request:
    """Samples `first` ... `first + n - 1` of one group.

    Attributes:
        group_id: of the group; requests of the same group share its encoded prompt.
        problem_id: for messages.
        prompt: token ids, at least one.
        first: index of the first sample wanted, >= 0: a group may grow in waves.
        n: how many, >= 1.
        seed: of the group's random stream (brorl.seeds); sample i depends on (seed, i) alone.
    """

    group_id: str
    problem_id: str
    prompt: tuple[int, ...]
    first: int
    n: int
    seed: int

    def __post_init__(self) -> None:
        if not self.prompt:
            raise EngineError(f"problem {self.problem_id}: the prompt has no token")
        if self.first < 0 or self.n < 1:
            raise EngineError(
                f"problem {self.problem_id}: need first >= 0 and n >= 1, "
                f"got first={self.first}, n={self.n}"
            )


OnFinished = Callable[[int, int, list[Completion]], None]
"""Called with (request index, offset in the request, completions) as parts finish."""


class EngineReport(NamedTuple):
    """What an engine did since it was last asked."""

    kv_cache: int  # bytes of keys and values at their most; 0 where they lie elsewhere
    fingerprint: float | None
    """Nats: mean difference of a probe's log-probs from the trainer's, the worst after any update.

    None for an engine that samples from the trainer's own weights, or had no update.
    """


class Engine(Protocol):
    """Samples completions. Implementations: embedded, vllm, openai, scripted."""

    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """n completions for each request, in the order given: result[i] has requests[i].n.

        Same weights and request give the same tokens, however the engine batches them, up to
        the float error of its kernels. A prompt that it cannot serve raises EngineError; it
        never returns fewer than n, because a short group silently changes the baseline.
        """
        ...

    def forget(self, group_ids: Sequence[str] | None = None) -> None:
        """Drop the encoded prompts of these groups, or of all."""
        ...

    def weights_changed(self, policy_version: int) -> None:
        """The policy was updated: drop every cache, stamp what follows with the new version."""
        ...

    def report(self) -> EngineReport:
        """What was measured since the last report; measuring begins anew."""
        ...

    def close(self) -> None:
        """Give back what is held; the engine is not used after it. Twice is once."""
        ...


def check_counts(requests: Sequence[Request], groups: Sequence[Sequence[Completion]]) -> None:
    """Every prompt got exactly its N. Raises EngineError naming the first that did not."""
    if len(groups) != len(requests):
        raise EngineError(f"asked for {len(requests)} groups, the engine gave {len(groups)}")
    for request, group in zip(requests, groups, strict=True):
        if len(group) != request.n:
            raise EngineError(
                f"problem {request.problem_id}: asked for {request.n} samples, got {len(group)}"
            )
