"""vLLM as the engine: its scheduler and block pool sample, with the trainer's weights.

A group is one request for n answers; vLLM reads the prompt once and shares it in whole blocks.
Answer i of a group is sampled with the seed base + i, where base comes from the group's stream,
so a group may grow in waves. Weights are handed over before the first answer after an update,
not after each of a step's updates, and each time a probe is scored by vLLM and by the trainer:
where they differ, sampling stops.

Its kernels are not the trainer's: log-probs agree up to float error, so the trainer scores
answers again before the update unless told otherwise, and `mismatch/*` says by how much.

Left out: several processes or GPUs (that is what verl is for), LoRA, stop strings.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from brorl.errors import EngineError, PolicyError
from brorl.policy.model import Policy
from brorl.rollout.checks import check_request, completion_of
from brorl.rollout.engine import (
    Completion,
    EngineReport,
    OnFinished,
    Request,
    Sampling,
    Stop,
    check_counts,
)
from brorl.rollout.options import DEFAULT_TOLERANCE, LOWEST_VLLM_TEMPERATURE, VllmOptions
from brorl.rollout.vllm_process import first_line, pool_bytes, start, stop
from brorl.rollout.vllm_weights import Probe, copy_weights
from brorl.seeds import derive_seed


class VllmEngine:
    """Samples from copies of a Policy's weights.

    Args:
        policy: the trainer's; read at each update, never written.
        options: see VllmOptions.
        memory_budget: bytes of the block pool.
        max_tokens: of the longest prompt with its answer.
        policy_version: of the weights as they are now.

    Raises:
        ConfigError: vLLM is missing, or the pool too small.
        PolicyError: a model that vLLM cannot run, or does not compute as the trainer does.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        options: VllmOptions,
        memory_budget: int,
        max_tokens: int,
        policy_version: int = 0,
    ) -> None:
        self._policy = policy
        self._version = policy_version
        self._stale = True
        self._fingerprint: float | None = None
        self._names = count()
        named = str(policy.model.dtype).removeprefix("torch.")
        self._tolerance = options.tolerance or DEFAULT_TOLERANCE[named]
        self._probe = Probe(policy.vocabulary, max_tokens - 1)
        self._llm: Any = start(policy, options, memory_budget=memory_budget, max_tokens=max_tokens)
        try:
            self._pool = pool_bytes(self._llm)
            self._follow()
        except EngineError as error:  # before any sampling: the model and vLLM do not fit
            self.close()
            raise PolicyError(
                f"rollout.engine=vllm does not fit {policy.source}: {error}"
            ) from error

    def weights_changed(self, policy_version: int) -> None:
        self._version = policy_version
        self._stale = True

    def forget(self, group_ids: Sequence[str] | None = None) -> None:
        """All at once or not at all: single groups leave the pool when others need the room."""
        if group_ids is None and self._llm is not None:
            self._llm.reset_prefix_cache()

    def report(self) -> EngineReport:
        worst, self._fingerprint = self._fingerprint, None
        return EngineReport(kv_cache=self._pool, fingerprint=worst)

    def close(self) -> None:
        if self._llm is not None:
            engine, self._llm = self._llm, None
            stop(engine)

    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        for request in requests:
            check_request(self._policy, request, sampling.max_new_tokens)
        if 0 < sampling.temperature < LOWEST_VLLM_TEMPERATURE:
            raise EngineError(
                f"vLLM would sample at {LOWEST_VLLM_TEMPERATURE} instead of temperature "
                f"{sampling.temperature}; take 0 (greedy) or more"
            )
        if self._llm is None:
            raise EngineError("vLLM is not running any more")
        self._follow()
        groups: list[list[Completion]] = [[] for _ in requests]
        for index, output in self._run(requests, sampling):
            groups[index] = self._group(requests[index], sampling, output)
            if on_finished is not None:
                on_finished(index, 0, groups[index])
        check_counts(requests, groups)
        return groups

    def _run(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Any]]:
        """(request index, its finished output), in the order in which they finish."""
        waiting: dict[str, int] = {}
        try:
            with _told("while sampling"):
                for index, request in enumerate(requests):
                    name = f"group-{next(self._names)}"
                    self._llm.add_request(name, *self._asked(request, sampling))
                    waiting[name] = index
            while waiting:
                with _told("while sampling"):
                    outputs = self._llm.step()
                for output in outputs:
                    if output.finished:
                        yield waiting.pop(output.request_id), output
        finally:
            if waiting:  # an error on the way: nothing of this call may run on in the next
                self._llm.abort_request(list(waiting))

    def _asked(self, request: Request, sampling: Sampling) -> tuple[Any, Any]:
        """A request in vLLM's words: the prompt, and how to sample its answers."""
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        greedy = sampling.temperature == 0
        how = SamplingParams(
            n=1 if greedy else request.n,  # greedy answers are equal, and vLLM makes one
            seed=sample_seed(request.seed, request.first),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_new_tokens,
            logprobs=0,  # of the sampled token alone
            ignore_eos=True,  # the policy's own, all of them, instead of the checkpoint's
            stop_token_ids=sorted(self._policy.eos_ids),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        return tokens_input(list(request.prompt)), how

    def _group(self, request: Request, sampling: Sampling, output: Any) -> list[Completion]:
        made = [self._completion(request, sampling, answer) for answer in output.outputs]
        return made * request.n if sampling.temperature == 0 else made

    def _completion(self, request: Request, sampling: Sampling, answer: Any) -> Completion:
        tokens = list(answer.token_ids)
        if answer.finish_reason not in ("stop", "length"):
            raise EngineError(
                f"problem {request.problem_id}: vLLM ended an answer with {answer.finish_reason!r}"
            )
        stop = Stop.LENGTH if answer.finish_reason == "length" else Stop.EOS
        if tokens and (stop is Stop.EOS) != (tokens[-1] in self._policy.eos_ids):
            raise EngineError(
                f"problem {request.problem_id}: vLLM ended an answer with {stop} on token "
                f"{tokens[-1]}; the policy ends with {sorted(self._policy.eos_ids)}"
            )
        logprobs = np.array(
            [entry[token].logprob for token, entry in zip(tokens, answer.logprobs, strict=True)],
            dtype=np.float32,
        )
        broken = ~np.isfinite(logprobs)
        if broken.any():
            raise EngineError(
                f"problem {request.problem_id}: the policy gave a non-finite log-prob at answer "
                f"token {int(broken.argmax())}"
            )
        if sampling.temperature > 0 and (sampling.top_p < 1 or sampling.top_k > 0):
            logprobs[:] = np.nan  # vLLM knows them over what was left to draw from only
        return completion_of(tokens, logprobs, stop, self._version)

    def _follow(self) -> None:
        """Hand the trainer's weights over where they changed, and see that they arrived."""
        if not self._stale:
            return
        with _told("while it took over the weights"):
            copy_weights(self._llm, self._policy)
            found = self._probe.difference(self._llm, self._policy)
        self._fingerprint = max(found, self._fingerprint or 0.0)
        if not found <= self._tolerance:  # NaN too
            raise EngineError(
                f"vLLM does not sample from the trained weights of update {self._version}: its "
                f"log-probs of a fixed probe differ from the trainer's by {found:.2e} nats on "
                f"average, rollout.vllm.tolerance allows {self._tolerance:.0e}; the last "
                "checkpoint is intact"
            )
        self._stale = False


def sample_seed(group_seed: int, index: int) -> int:
    """vLLM's seed for one answer of a group: those of a request are its own, + 1, + 2 ...

    62 bits named by the group's stream, so that no two groups overlap. vLLM's CPU sampler draws
    from the lower 32 of them (torch's generator there has no more).
    """
    return (derive_seed(group_seed, "vllm") >> 1) + index


@contextmanager
def _told(when: str) -> Iterator[None]:
    """Whatever vLLM raises becomes one line of ours: an engine lost is no fault of the settings."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:  # a foreign engine raises many kinds
        raise EngineError(
            f"vLLM failed {when}: {type(error).__name__}: {first_line(error)}; the last "
            "checkpoint is intact"
        ) from error
