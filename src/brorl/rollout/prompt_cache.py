"""Encoded prompts, kept while their groups grow, so that a group's prompt is encoded once.

Left out: sharing between groups that begin alike.

Axes:  G groups · C prompt tokens · K key-value heads · D width
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from brorl.errors import EngineError
from brorl.policy.model import Policy, Prompts
from brorl.policy.shared_prefix import PromptReader
from brorl.rollout.engine import Request


class _Encoded(NamedTuple):
    """One group's prompt: per layer keys and values [C, K, D], and the last hidden state."""

    prompt: tuple[int, ...]
    keys: list[Tensor]
    values: list[Tensor]
    last_hidden_D: Tensor

    @property
    def bytes(self) -> int:
        return sum(x.nbytes for x in (*self.keys, *self.values, self.last_hidden_D))


class PromptCache:
    """Keeps the keys and values of groups' prompts under the current weights.

    What is kept beyond the groups in use stays below `budget` bytes; the group that was not
    used for longest goes first, and is encoded again when it grows.

    Args:
        policy: encodes.
        budget: bytes, for what is kept and for the activations of one forward.

    Attributes:
        encoded: prompts encoded so far.
    """

    def __init__(self, policy: Policy, budget: int) -> None:
        self._policy = policy
        self._budget = budget
        self._held: dict[str, _Encoded] = {}  # least recently used first
        self.encoded = 0

    @property
    def nbytes(self) -> int:
        """Of what is held."""
        return sum(e.bytes for e in self._held.values())

    def clear(self) -> None:
        """Drop everything: the weights changed."""
        self._held.clear()

    def forget(self, group_ids: Iterable[str]) -> None:
        """Drop these groups."""
        for group_id in group_ids:
            self._held.pop(group_id, None)

    def get(self, requests: Sequence[Request]) -> Prompts:
        """The prompts of these requests, in their order; a group may be named more than once.

        Raises:
            EngineError: one group with two prompts.
        """
        wanted: dict[str, Request] = {}
        for request in requests:
            known = self._held.get(request.group_id) or wanted.get(request.group_id)
            if known is not None and known.prompt != request.prompt:
                raise EngineError(
                    f"problem {request.problem_id}: group {request.group_id} came with two "
                    f"prompts, of {len(known.prompt)} and {len(request.prompt)} tokens"
                )
            wanted[request.group_id] = request
        held = {g: self._held.pop(g) for g in wanted if g in self._held}
        held |= self._read({g: r.prompt for g, r in wanted.items() if g not in held})
        self._held |= held
        self._shrink(len(held))
        return _joined([held[r.group_id] for r in requests], self._policy.device)

    def _read(self, missing: Mapping[str, tuple[int, ...]]) -> dict[str, _Encoded]:
        read: dict[str, _Encoded] = {}
        for part in self._parts(missing):
            out = self._policy.read_prompts([missing[g] for g in part])
            for g, group_id in enumerate(part):
                c = len(missing[group_id])
                read[group_id] = _Encoded(  # copies: a view would keep the whole part alive
                    missing[group_id],
                    [k[g, :, :c].transpose(0, 1).clone() for k in out.reader.keys_LGKCD],
                    [v[g, :, :c].transpose(0, 1).clone() for v in out.reader.values_LGKCD],
                    out.last_hidden_GD[g].clone(),
                )
        self.encoded += len(read)
        return read

    def _parts(self, missing: Mapping[str, tuple[int, ...]]) -> Iterator[list[str]]:
        """Groups to encode in one forward: its activations fit the budget."""
        longest = max((len(p) for p in missing.values()), default=1)
        size = max(1, self._budget // (longest * _bytes_per_token(self._policy)))
        names = list(missing)
        for start in range(0, len(names), size):
            yield names[start : start + size]

    def _shrink(self, in_use: int) -> None:
        total = self.nbytes
        for group_id in list(self._held)[: len(self._held) - in_use]:
            if total <= self._budget:
                break
            total -= self._held.pop(group_id).bytes


def _joined(encoded: Sequence[_Encoded], device: torch.device) -> Prompts:
    """Prompts side by side, padded on the right."""
    reader = PromptReader()
    for layer in range(len(encoded[0].keys)):
        for held, parts in (
            (reader.keys_LGKCD, [e.keys[layer] for e in encoded]),
            (reader.values_LGKCD, [e.values[layer] for e in encoded]),
        ):
            held.append(pad_sequence(parts, batch_first=True).transpose(1, 2).contiguous())
    lengths = torch.tensor([len(e.prompt) for e in encoded], device=device)
    return Prompts(reader, lengths, torch.stack([e.last_hidden_D for e in encoded]))


def _bytes_per_token(policy: Policy) -> int:
    """Of one prompt token while it is encoded: its keys and values, and one layer's activations."""
    config = policy.model.config
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    kept = 2 * config.num_hidden_layers * kv_heads * width
    return int((kept + 4 * config.hidden_size + 3 * inner) * policy.model.dtype.itemsize)
