"""Rows of a step's update, split into mini-batches and micro-batches.

A mini-batch takes an equal slice of every group: each update sees every prompt of the step, and
two updates differ in answers, not in questions. A micro-batch is what fits a token budget; it
changes no gradient beyond float error.

Axes:  G groups · R rows (answers) · T answer tokens · M real answer tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brorl.policy.model import Policy
from brorl.policy.token_logprobs import TokenLogprobs
from brorl.seeds import generator
from brorl.train.groups import Group, Sample


@dataclass(slots=True)
class Row:
    """One answer on its way through the update.

    Attributes:
        group: index of its group among the kept ones.
        group_id: of that group; names its stream.
        prompt: token ids of the group's prompt.
        sample: the answer and its record.
        old_logp: float32 [T], nats: under the policy before this step's updates.
        correction: float32 [T], >= 0: engine against trainer, 1 without a correction.
    """

    group: int
    group_id: str
    prompt: tuple[int, ...]
    sample: Sample
    old_logp: NDArray[np.float32]
    correction: NDArray[np.float32] | None = None

    @property
    def length(self) -> int:
        return len(self.sample.completion.tokens)


class Micro(NamedTuple):
    """A micro-batch as tensors; rows sorted by group, tokens flat in row order."""

    rows: list[Row]
    prompts: list[tuple[int, ...]]
    group_R: Tensor
    tokens_RT: Tensor
    lengths_R: Tensor
    row_M: Tensor  # int64 [M]: the row of each token

    def score(self, policy: Policy, temperature: float) -> TokenLogprobs:
        """Log-probs of every real token, the prompt of each group read once."""
        return policy.score(
            self.prompts, self.group_R, self.tokens_RT, self.lengths_R, temperature=temperature
        )

    def flat(self, per_row: Sequence[NDArray[np.float32]]) -> Tensor:
        """float32 [M] from one array a row, on the device."""
        whole = np.concatenate(per_row) if per_row else np.zeros(0, np.float32)
        if len(whole) != len(self.row_M):
            raise AssertionError(f"{len(self.row_M)} tokens but {len(whole)} values")
        return torch.from_numpy(whole).to(self.row_M.device)

    def per_token(self, per_row: Sequence[float]) -> Tensor:
        """float32 [M] that repeats one number a row over its tokens."""
        return torch.tensor(per_row, dtype=torch.float32, device=self.row_M.device)[self.row_M]


def rows_of(groups: Sequence[Group]) -> list[Row]:
    """A row for each answer that is trained on (it has an advantage), in order of groups."""
    return [
        Row(i, group.id, group.prompt, sample, sample.completion.logprobs)
        for i, group in enumerate(groups)
        for sample in group.samples
        if sample.advantage is not None
    ]


def minibatches(rows: Sequence[Row], count: int, seed: int, step: int) -> list[list[Row]]:
    """Deal the rows of each group, shuffled, over `count` mini-batches; each keeps group order.

    Sizes differ by at most one in all. Fewer rows than mini-batches: as many as there are rows.
    The order of a group's rows depends on (seed, step, group id) alone.
    """
    by_group: dict[int, list[Row]] = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    dealt: list[list[Row]] = [[] for _ in range(min(count, len(rows)))]
    turn = 0
    for _, members in sorted(by_group.items()):
        stream = generator(seed, "minibatch", step, members[0].group_id)
        for i in stream.permutation(len(members)).tolist():
            dealt[turn % len(dealt)].append(members[i])
            turn += 1
    return dealt


def micro_batches(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Cut rows into parts of at most `budget` tokens, a prompt counted once a part.

    Tokens of a part = prompts of its groups + rows · longest answer (padding counts). A single
    row beyond the budget is a part of its own. Rows of a group come sorted by length, so that
    little is padding; the longest part comes first, so that a shortage of memory shows at once.
    """
    parts: list[list[Row]] = []
    prompts = longest = 0  # tokens of the open part's prompts; its longest answer
    for row in sorted(rows, key=lambda r: (r.group, r.length)):
        opens = not parts or parts[-1][-1].group != row.group
        grown = prompts + opens * len(row.prompt)
        width = max(longest, row.length)
        if parts and grown + (len(parts[-1]) + 1) * width <= budget:
            parts[-1].append(row)
            prompts, longest = grown, width
        else:
            parts.append([row])
            prompts, longest = len(row.prompt), row.length
    return sorted(parts, key=lambda part: -len(part) * max(r.length for r in part))


def tensors(rows: Sequence[Row], device: torch.device) -> Micro:
    """One micro-batch, ready to be scored."""
    groups = sorted({row.group for row in rows})
    place = {group: i for i, group in enumerate(groups)}
    prompts = {row.group: row.prompt for row in rows}
    lengths = [row.length for row in rows]
    tokens = np.zeros((len(rows), max(lengths)), dtype=np.int64)
    for i, row in enumerate(rows):
        tokens[i, : row.length] = row.sample.completion.tokens
    lengths_R = torch.tensor(lengths, device=device)
    return Micro(
        list(rows),
        [prompts[g] for g in groups],
        torch.tensor([place[row.group] for row in rows], device=device),
        torch.from_numpy(tokens).to(device),
        lengths_R,
        torch.repeat_interleave(torch.arange(len(rows), device=device), lengths_R),
    )
