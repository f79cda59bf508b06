"""What engines check of a request before they sample, and of completions after."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from brorl.errors import EngineError, PolicyError
from brorl.policy.load import check_length
from brorl.policy.model import Policy
from brorl.rollout.engine import Completion, Request, Stop


def check_request(policy: Policy, request: Request, new_tokens: int) -> None:
    """Refuse a prompt that the policy cannot read. Raises EngineError naming the problem."""
    low, high = min(request.prompt), max(request.prompt)
    if low < 0 or high >= policy.vocabulary:
        raise EngineError(
            f"problem {request.problem_id}: prompt ids must be in "
            f"[0, {policy.vocabulary}), got {low} ... {high}"
        )
    try:
        check_length(policy, len(request.prompt) + new_tokens)
    except PolicyError as error:
        raise EngineError(f"problem {request.problem_id}: {error}") from error


def completion_of(
    tokens: Sequence[int], logprobs: NDArray[np.float32], stop: Stop, version: int
) -> Completion:
    """A completion of plain values, its arrays read-only, every token the policy's choice."""
    ids = np.array(tokens, dtype=np.int32)
    mask = np.ones(len(ids), dtype=bool)
    for array in (ids, logprobs, mask):
        array.flags.writeable = False
    return Completion(ids, logprobs, mask, stop, version)
