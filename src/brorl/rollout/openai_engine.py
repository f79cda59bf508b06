"""A server as engine, for evaluation: OpenAI's `/completions` with prompts as token ids.

Token ids, not text and not messages: the server's model reads exactly the prompt that every other
engine reads, template included, and where the server says what it read, that is compared. vLLM,
SGLang and llama.cpp's server take ids.

It cannot train: the server's weights do not follow the updates. Log-probs are not asked for and
are NaN: servers tell them at a temperature of their own choice, and an evaluation needs none.

Left out: chat completions, streaming, stop strings.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np

from brorl.errors import ConfigError, EngineError
from brorl.policy.load import WithoutModel
from brorl.rollout.checks import completion_of
from brorl.rollout.engine import (
    Completion,
    EngineReport,
    OnFinished,
    Request,
    Sampling,
    Stop,
    check_counts,
)
from brorl.rollout.openai_client import Server
from brorl.rollout.options import NOT_FOR_TRAINING, OpenAIOptions
from brorl.seeds import derive_seed


class _Part(NamedTuple):
    """Answers offset ... offset + n - 1 of one request, asked for together."""

    request: int
    offset: int
    n: int


class OpenAIEngine:
    """Samples from the model of a server.

    Args:
        policy: tokenizer of that model, and the tokens that end an answer.
        options: where the server is, and how it is asked.

    Attributes:
        model: the name under which the server knows the model.
        max_tokens: prompt and answer together, where the server tells; else None.

    Raises:
        ConfigError: the server does not have the model, or has several and none is named.
        EngineError: it does not answer.
    """

    def __init__(self, policy: WithoutModel, options: OpenAIOptions) -> None:
        self._policy = policy
        self._options = options
        self._server = Server(options)
        entry = self._entry()
        self.model = str(entry["id"])
        limit = entry.get("max_model_len")  # vLLM's
        self.max_tokens = limit if isinstance(limit, int) else None

    def _entry(self) -> dict[str, Any]:
        """The model's entry in the server's list."""
        listed = self._server.get("/models").get("data")
        entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
        names = [str(e.get("id")) for e in entries]
        wanted = self._options.model or (names[0] if len(names) == 1 else None)
        if wanted not in names:
            raise ConfigError(
                f"{self._options.base_url} has the models {', '.join(names[:10]) or 'none'}; "
                + (f"not {wanted}" if wanted else "name one with model=NAME")
            )
        return entries[names.index(wanted)]

    def weights_changed(self, policy_version: int) -> None:
        raise EngineError(NOT_FOR_TRAINING)

    def forget(self, group_ids: Sequence[str] | None = None) -> None:
        """The server keeps what it likes; its weights do not change."""

    def report(self) -> EngineReport:
        return EngineReport(kv_cache=0, fingerprint=None)

    def close(self) -> None:
        self._server.close()

    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        groups: list[dict[int, Completion]] = [{} for _ in requests]
        server = self._server
        pool = ThreadPoolExecutor(self._options.concurrency)
        waiting: dict[Future[list[Completion]], _Part] = {}
        try:
            for part in self._parts(requests, sampling):
                request = requests[part.request]
                waiting[pool.submit(self._ask, server, request, part, sampling)] = part
            for future in as_completed(waiting):
                index, offset, _ = waiting[future]
                made = future.result()
                groups[index] |= dict(enumerate(made, start=offset))
                if on_finished is not None:
                    on_finished(index, offset, made)
        except BaseException:  # Ctrl-C too must not wait for answers that nobody reads
            server.close()
            self._server = Server(self._options)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        whole = [[group[i] for i in sorted(group)] for group in groups]
        check_counts(requests, whole)
        return whole

    def _parts(self, requests: Sequence[Request], sampling: Sampling) -> list[_Part]:
        parts = []
        for index, request in enumerate(requests):
            whole = sampling.temperature == 0  # equal answers: one is made for the whole request
            size = request.n if whole else self._options.samples_per_request
            for offset in range(0, request.n, size):
                parts.append(_Part(index, offset, min(size, request.n - offset)))
        return parts

    def _ask(
        self, server: Server, request: Request, part: _Part, sampling: Sampling
    ) -> list[Completion]:
        n = 1 if sampling.temperature == 0 else part.n
        body = {
            "model": self.model,
            "prompt": list(request.prompt),
            "n": n,
            "seed": sample_seed(request.seed, request.first + part.offset),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "stream": False,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k  # not OpenAI's own; vLLM, SGLang and llama.cpp know it
        if self._options.return_token_ids:
            body["return_token_ids"] = True
        try:
            found = server.post("/completions", body)
        except EngineError as error:
            raise EngineError(f"problem {request.problem_id}: {error}") from error
        choices = self._choices(found, n, request)
        made = [self._completion(choice, request) for choice in choices]
        return made * (part.n // n)

    def _choices(self, found: dict[str, Any], n: int, request: Request) -> list[dict[str, Any]]:
        try:
            choices = sorted(found["choices"], key=lambda c: int(c["index"]))
            indices = [int(c["index"]) for c in choices]
        except (KeyError, TypeError, ValueError) as error:
            raise self._nonsense(request, f"an answer without choices: {error!r:.100}") from error
        if indices != list(range(n)):
            raise self._nonsense(request, f"asked for {n} answers, got numbers {indices[:20]}")
        read = choices[0].get("prompt_token_ids")
        if read is not None and list(read) != list(request.prompt):
            raise self._nonsense(request, "it read another prompt than it was sent")
        return choices

    def _completion(self, choice: dict[str, Any], request: Request) -> Completion:
        stops = {"stop": Stop.EOS, "length": Stop.LENGTH}
        reason = choice.get("finish_reason")
        if reason not in stops:
            raise self._nonsense(request, f"an answer ended with {reason!r}")
        tokens = self._tokens(choice, request)
        if reason == "stop" and (not tokens or tokens[-1] not in self._policy.eos_ids):
            tokens.append(int(self._policy.speech.tokenizer.eos_token_id))
        if not tokens:
            raise self._nonsense(request, "an answer without a token")
        unknown = np.full(len(tokens), np.nan, dtype=np.float32)
        return completion_of(tokens, unknown, stops[reason], 0)

    def _tokens(self, choice: dict[str, Any], request: Request) -> list[int]:
        """The answer's ids: as the server says, else those of its text, if they spell it."""
        ids = choice.get("token_ids")
        if ids is not None:
            return [int(i) for i in ids]
        text = str(choice.get("text") or "")
        speech = self._policy.speech
        found: list[int] = speech.tokenizer(text, add_special_tokens=False).input_ids
        if speech.decode(found).strip() != text.strip():
            raise self._nonsense(
                request, f"no token ids came, and this tokenizer does not spell {text[:40]!r}"
            )
        return found

    def _nonsense(self, request: Request, what: str) -> EngineError:
        return EngineError(f"{self._options.base_url}, problem {request.problem_id}: {what}")


def sample_seed(group_seed: int, index: int) -> int:
    """Seed of one answer, below 2^31: some servers keep no more of it."""
    return (derive_seed(group_seed, "openai") >> 33) + index
