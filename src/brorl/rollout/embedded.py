"""The engine in this process: the trained model itself samples, wave by wave.

A wave is a set of rows small enough for the memory budget; the budget and the lengths fix it,
never free memory, so a run repeats. Each group's prompt is encoded once and read by all of its
rows, over all of its waves. A finished row leaves the batch.

Left out: paged caches, continuous refill of a wave, stop strings.

Axes:  G groups · R rows · T answer tokens · V vocabulary
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.errors import EngineError
from brorl.policy.model import Policy, Prompts
from brorl.policy.shared_prefix import NextReader, OwnCache, shared_attention
from brorl.rollout.checks import check_request
from brorl.rollout.engine import (
    Completion,
    EngineReport,
    OnFinished,
    Request,
    Sampling,
    Stop,
    check_counts,
)
from brorl.rollout.prompt_cache import PromptCache
from brorl.rollout.sampler import draw
from brorl.rollout.stems import Stems
from brorl.rollout.wave import Wave
from brorl.seeds import sample_keys, uniforms

_AHEAD = 16  # tokens for which random numbers are made at once
_COMPACT_BELOW = 0.85  # of the rows still unfinished: below it, finished rows are moved out


class _Part(NamedTuple):
    """Some samples of one request, run in one wave."""

    request: int
    offset: int
    n: int


class _NonFinite(Exception):
    """A log-prob that is not a number: in which group of the wave, at which answer token."""

    def __init__(self, group: int, at: int) -> None:
        self.group, self.at = group, at


class EmbeddedEngine:
    """Samples from a Policy in place.

    Args:
        policy: shared with the trainer; `weights_changed` must be called after every update.
        memory_budget: bytes for what one wave adds: own keys and values, scores, logits; as
            much again for prompts kept beyond the wave.
        policy_version: of the weights as they are now.

    Attributes:
        prompts_encoded: once a group, unless its prompt had to make room.
    """

    def __init__(self, policy: Policy, *, memory_budget: int, policy_version: int = 0) -> None:
        self._policy = policy
        self._budget = memory_budget
        self._version = policy_version
        self._cache = PromptCache(policy, memory_budget)
        self._kv_cache = 0  # bytes, the most since the last report

    @property
    def prompts_encoded(self) -> int:
        return self._cache.encoded

    def weights_changed(self, policy_version: int) -> None:
        self._version = policy_version
        self._cache.clear()

    def forget(self, group_ids: Sequence[str] | None = None) -> None:
        if group_ids is None:
            self._cache.clear()
        else:
            self._cache.forget(group_ids)

    def report(self) -> EngineReport:
        most, self._kv_cache = self._kv_cache, 0
        return EngineReport(kv_cache=most, fingerprint=None)

    def close(self) -> None:
        self._cache.clear()

    @torch.inference_mode()
    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        for request in requests:
            check_request(self._policy, request, sampling.max_new_tokens)
        groups: list[list[Completion]] = [[] for _ in requests]
        longest = max((len(r.prompt) for r in requests), default=0)
        rows = rows_per_wave(self._policy, self._budget, longest, sampling.max_new_tokens)
        for parts in _waves(requests, rows):
            for part, completions in zip(parts, self._run(requests, parts, sampling), strict=True):
                groups[part.request].extend(completions)
                if on_finished is not None:
                    on_finished(part.request, part.offset, completions)
        check_counts(requests, groups)
        return groups

    def _run(
        self, requests: Sequence[Request], parts: Sequence[_Part], sampling: Sampling
    ) -> list[list[Completion]]:
        prompts = self._cache.get([requests[p.request] for p in parts])
        device = self._policy.device
        count = torch.tensor([p.n for p in parts], device=device)
        group_R = torch.repeat_interleave(torch.arange(len(parts), device=device), count)
        keys_R = np.concatenate(
            [
                sample_keys(requests[p.request].seed, requests[p.request].first + p.offset, p.n)
                for p in parts
            ]
        )
        try:
            with shared_attention(self._policy.model):
                drawn = self._decode(prompts, group_R, keys_R, sampling)
        except _NonFinite as bad:
            problem = requests[parts[bad.group].request].problem_id
            raise EngineError(
                f"problem {problem}: the policy gave a non-finite log-prob at answer token {bad.at}"
            ) from None
        return [drawn[start : start + p.n] for p, start in zip(parts, _starts(parts), strict=True)]

    def _decode(
        self, prompts: Prompts, group_R: Tensor, keys_R: NDArray[np.uint64], sampling: Sampling
    ) -> list[Completion]:
        policy, limit, device = self._policy, sampling.max_new_tokens, group_R.device
        wave = Wave(len(group_R), limit, policy.eos_ids, device)
        own = OwnCache(limit)
        group_B, keys_B = group_R, keys_R
        stems = Stems(group_B, len(prompts.lengths_G))
        reader = None
        logits_S = policy.logits(prompts.last_hidden_GD)
        ahead: list[Tensor] = []  # random numbers of the next tokens, the last first
        for t in range(limit):
            if not ahead:
                ahead = self._uniforms(keys_B, range(t, min(t + _AHEAD, limit)), device)
            token, logp = draw(logits_S[stems.of_B], ahead.pop(), sampling)
            left = wave.put(t, token, logp)
            if left is None:
                broken = ~torch.isfinite(logp)
                raise _NonFinite(int(group_B[broken][0]), t)
            if t + 1 == limit or left == 0:
                break
            stay = None
            if left < _COMPACT_BELOW * len(token):
                stay = wave.compact()
                token, group_B, keys_B = token[stay], group_B[stay], keys_B[stay.cpu().numpy()]
                ahead = []
            parents = stems.grow(wave.onward(token), policy.vocabulary, stay)
            if parents is not None:
                if reader is not None:
                    self._note_kv_cache(reader)
                own.keep(parents)
                reader = None
            if reader is None:
                reader = NextReader(prompts.reader, prompts.lengths_G, stems.group_S, own)
            hidden = policy.read_next(prompts, stems.group_S, reader, own, stems.token_S)
            logits_S = policy.logits(hidden)
        if reader is not None:
            self._note_kv_cache(reader)
        return self._completions(wave)

    @staticmethod
    def _uniforms(keys_B: NDArray[np.uint64], tokens: range, device: torch.device) -> list[Tensor]:
        """float64 [B] for each of these tokens, the last first."""
        drawn_UB = uniforms(keys_B[None], np.array(tokens, dtype=np.uint64)[::-1, None])
        return list(torch.from_numpy(drawn_UB).to(device))

    def _note_kv_cache(self, reader: NextReader) -> None:
        """Keys and values held at once: prompts kept, and what the wave reads."""
        self._kv_cache = max(self._kv_cache, self._cache.nbytes + reader.nbytes)

    def _completions(self, wave: Wave) -> list[Completion]:
        wave.settle()
        tokens = wave.tokens_RT.to("cpu", torch.int32).numpy()
        logps = wave.logp_RT.cpu().numpy()
        full = np.ones(tokens.shape[1], dtype=bool)
        for array in (tokens, logps, full):
            array.flags.writeable = False
        return [
            Completion(
                tokens[row, :n],
                logps[row, :n],
                full[:n],
                Stop.EOS if ended else Stop.LENGTH,
                self._version,
            )
            for row, (n, ended) in enumerate(
                zip(wave.length_R.tolist(), wave.ended_R.tolist(), strict=True)
            )
        ]


def rows_per_wave(policy: Policy, budget: int, prompt_tokens: int, new_tokens: int) -> int:
    """How many answers fit the memory budget at once; at least one.

    bytes per row = 2 · layers · K · D · new_tokens · dtype        own keys and values
                  + 3 · 4 · H · (prompt_tokens + new_tokens)       attention scores and weights
                  + 32 · V                                         logits, probabilities, their sum
    """
    config = policy.model.config
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    own = 2 * config.num_hidden_layers * kv_heads * width * new_tokens * policy.model.dtype.itemsize
    scores = 3 * 4 * heads * (prompt_tokens + new_tokens)
    return max(1, budget // int(own + scores + 32 * policy.vocabulary))


def _waves(requests: Sequence[Request], rows: int) -> list[list[_Part]]:
    """Cut requests into waves of at most `rows`; one that fits a wave is not cut."""
    waves: list[list[_Part]] = []
    room = 0
    for index, request in enumerate(requests):
        done = 0
        while done < request.n:
            if room == 0 or (done == 0 and room < request.n <= rows):
                waves.append([])
                room = rows
            n = min(room, request.n - done)
            waves[-1].append(_Part(index, done, n))
            done, room = done + n, room - n
    return waves


def _starts(parts: Sequence[_Part]) -> list[int]:
    return list(accumulate((p.n for p in parts[:-1]), initial=0))
