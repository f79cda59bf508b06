"""Rows of a step's update, split into mini-batches and micro-batches.

A mini-batch takes an equal slice of every group: each update sees every prompt of the step, and
two updates differ in answers, not in questions. A micro-batch is what fits a token budget; it
changes no gradient beyond float error.

Equal answers to one prompt are scored once: at N = 512 and short answers most are repeats. The
gradient is that of every row by itself, since each row's token reads the one score.

Axes:  G groups · R rows (answers) · U distinct answers · T answer tokens · M real tokens of rows
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
    group_U: Tensor
    tokens_UT: Tensor
    lengths_U: Tensor
    row_M: Tensor  # int64 [M]: the row of each token
    score_M: Tensor | None  # int64 [M]: its place among the tokens of U; None where U is R

    def score(self, policy: Policy, temperature: float) -> TokenLogprobs:
        """Log-probs of every real token; each prompt and each distinct answer is read once."""
        scored = policy.score(
            self.prompts, self.group_U, self.tokens_UT, self.lengths_U, temperature=temperature
        )
        if self.score_M is None:
            return scored
        return TokenLogprobs(scored.logp_M[self.score_M], scored.entropy_M[self.score_M])

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
    """Cut rows into parts of at most `budget` tokens, a prompt and an answer counted once a part.

    Tokens of a part = prompts of its groups + distinct answers · longest answer (padding counts).
    A single row beyond the budget is a part of its own. Rows of a group come sorted by length, so
    that little is padding, equal ones together; the longest part comes first, so that a shortage
    of memory shows at once.
    """
    answers = [(row, _answer(row)) for row in rows]
    answers.sort(key=lambda x: (x[0].group, x[0].length, x[1]))
    parts: list[list[Row]] = []
    costs: list[int] = []  # of each part: its distinct answers times the longest
    prompts = longest = distinct = 0  # of the open part: prompt tokens; answers
    last = None
    for row, answer in answers:
        opens = last is None or last[0] != row.group
        grown = prompts + opens * len(row.prompt)
        width, more = max(longest, row.length), distinct + (answer != last)
        if parts and grown + more * width <= budget:
            prompts, longest, distinct = grown, width, more
        else:
            parts.append([])
            costs.append(0)
            prompts, longest, distinct = len(row.prompt), row.length, 1
        parts[-1].append(row)
        costs[-1] = distinct * longest
        last = answer
    order = sorted(range(len(parts)), key=lambda i: -costs[i])
    return [parts[i] for i in order]


def tensors(rows: Sequence[Row], device: torch.device) -> Micro:
    """One micro-batch, ready to be scored."""
    groups = sorted({row.group for row in rows})
    place = {group: i for i, group in enumerate(groups)}
    prompts = {row.group: row.prompt for row in rows}
    kept, answer = _merged(rows)
    lengths = np.array([row.length for row in kept])
    tokens = np.zeros((len(kept), lengths.max()), dtype=np.int64)
    for i, row in enumerate(kept):
        tokens[i, : row.length] = row.sample.completion.tokens
    lengths_R = lengths[answer]
    starts_U = np.cumsum(lengths) - lengths
    steps_M = np.arange(lengths_R.sum()) - np.repeat(np.cumsum(lengths_R) - lengths_R, lengths_R)
    score_M = np.repeat(starts_U[answer], lengths_R) + steps_M
    return Micro(
        list(rows),
        [prompts[g] for g in groups],
        torch.tensor([place[row.group] for row in kept], device=device),
        torch.from_numpy(tokens).to(device),
        torch.from_numpy(lengths).to(device),
        torch.from_numpy(np.repeat(np.arange(len(rows)), lengths_R)).to(device),
        torch.from_numpy(score_M).to(device) if len(kept) < len(rows) else None,
    )


def _merged(rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """The first row of each distinct answer, and for every row which of them has its answer."""
    kept: list[Row] = []
    places: dict[tuple[int, bytes], int] = {}
    answer = []
    for row in rows:
        place = places.setdefault(_answer(row), len(kept))
        if place == len(kept):
            kept.append(row)
        answer.append(place)
    return kept, answer


def _answer(row: Row) -> tuple[int, bytes]:
    """Equal for equal answers to one prompt, and only for them."""
    return row.group, row.sample.completion.tokens.tobytes()
