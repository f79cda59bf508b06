"""What a grader pool owes: items to judge, tickets waiting for them, verdicts already known.

A plain data structure, without processes, clocks or locks; `pool` guards and drives it.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from brorl.verify.verdict import Kind, Verdict, grader_error, no_answer

BATCH = {"extract": 64, "grade": 16}  # most items in one message
_ENTRY_BYTES = 400  # of a cache entry beside its text, about
_NO_ANSWER = no_answer("no answer found in the text")


class PoolStats(NamedTuple):
    """What the pool has done since it was opened; `queued` is what it has still to do."""

    texts: int  # submitted
    distinct: int  # gradings asked of a verifier: one per (verifier, row, problem, answer)
    hits: int  # answers served by the grading of an equal one
    kills: int  # processes ended because an item ran out of its time
    deaths: int  # processes that ended by themselves
    retries: int  # items tried again
    timeouts: int  # distinct items that ended as "timeout"
    errors: int  # distinct items that ended as "grader_error"
    queued: int  # items waiting or in progress


@dataclass(slots=True)
class Ticket:
    """A claim on one verdict; `GraderPool.gather` redeems it."""

    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What the texts of one submission share.

    Attributes:
        problem_id: of the row of data.
        pickled: (verifier, gold, row).
        digest: of `pickled`; stands for it.
        budget_s: seconds that one item may take.
    """

    problem_id: str
    pickled: bytes
    digest: bytes
    budget_s: float


@dataclass(slots=True)
class Item:
    """One thing to judge.

    Attributes:
        phase: "extract", where `text` is a completion, or "grade", where it is an answer.
        tickets: all that wait for it.
        attempts: how often it has been tried and lost.
    """

    context: Context
    phase: str
    text: str
    tickets: list[Ticket]
    attempts: int = 0


class Ledger:
    """Hands out items, takes outcomes in, and grades no (problem, answer) twice."""

    def __init__(self, retries: int, cache_bytes: int) -> None:
        self._retries = retries
        self._cache_bytes = cache_bytes
        self._queue: deque[Item] = deque()
        self._known: OrderedDict[tuple[bytes, str, str], Verdict] = OrderedDict()
        self._known_bytes = 0
        self._pending: dict[tuple[bytes, str, str], Item] = {}
        self._out = 0
        self.counts = dict.fromkeys(PoolStats._fields, 0)

    def submit(self, context: Context, texts: Sequence[str]) -> list[Ticket]:
        """Queue the extraction of each text."""
        tickets = [Ticket() for _ in texts]
        self.counts["texts"] += len(texts)
        self._queue.extend(
            Item(context, "extract", text, [ticket])
            for text, ticket in zip(texts, tickets, strict=True)
        )
        return tickets

    def take(self, workers: int) -> list[Item]:
        """The next batch: items of one context and phase, fewer as the queue runs dry.

        An item that was lost before goes alone, so that it can take no other with it.
        """
        if not self._queue:
            return []
        size = math.ceil(len(self._queue) / (2 * workers))
        batch = [self._queue.popleft()]
        first = batch[0]
        size = min(size, BATCH[first.phase]) if first.attempts == 0 else 1
        while len(batch) < size and self._queue:
            item = self._queue[0]
            if item.context is not first.context or item.phase != first.phase or item.attempts:
                break
            batch.append(self._queue.popleft())
        self._out += len(batch)
        return batch

    def put_back(self, items: Iterable[Item]) -> None:
        """Items that were taken but, through no doing of theirs, not judged."""
        rest = list(items)
        self._out -= len(rest)
        self._queue.extendleft(reversed(rest))

    def settle(self, item: Item, outcome: str, value: Any) -> None:
        """An outcome of `pool_worker.judge` for an item that was taken."""
        if outcome == "failed":
            self.lost(item, grader_error(value))
        elif outcome == "extracted":
            self._out -= 1
            (ticket,) = item.tickets
            if value is None:
                ticket.verdict = _NO_ANSWER
            else:
                self._grade_once(item.context, value, ticket)
        else:
            self.finish(item, value)

    def lost(self, item: Item, last: Verdict) -> None:
        """An item that was taken and lost: once more, or `last` when it has had its tries."""
        item.attempts += 1
        if item.attempts > self._retries:
            self.finish(item, last)
        else:
            self.counts["retries"] += 1
            self.put_back([item])

    def finish(self, item: Item, verdict: Verdict) -> None:
        """The verdict on an item that was taken, for all who wait for it."""
        self._out -= 1
        self.counts["timeouts"] += verdict.kind is Kind.TIMEOUT
        self.counts["errors"] += verdict.kind is Kind.GRADER_ERROR
        for ticket in item.tickets:
            ticket.verdict = verdict
        if item.phase == "grade":
            key = (item.context.digest, item.context.problem_id, item.text)
            del self._pending[key]
            if verdict.counts:  # our own failures may pass: an equal answer is tried anew
                self._remember(key, verdict)

    def stats(self) -> PoolStats:
        """Counts so far."""
        return PoolStats(**(self.counts | {"queued": len(self._queue) + self._out}))

    def _grade_once(self, context: Context, answer: str, ticket: Ticket) -> None:
        key = (context.digest, context.problem_id, answer)
        if known := self._known.get(key):
            self._known.move_to_end(key)
            self.counts["hits"] += 1
            ticket.verdict = known
        elif pending := self._pending.get(key):
            self.counts["hits"] += 1
            pending.tickets.append(ticket)
        else:
            self.counts["distinct"] += 1
            item = Item(context, "grade", answer, [ticket])
            self._pending[key] = item
            self._queue.append(item)

    def _remember(self, key: tuple[bytes, str, str], verdict: Verdict) -> None:
        self._known[key] = verdict
        self._known_bytes += _ENTRY_BYTES + len(key[2])
        while self._known_bytes > self._cache_bytes:
            old, _ = self._known.popitem(last=False)
            self._known_bytes -= _ENTRY_BYTES + len(old[2])
