"""A pool of grader processes: extraction of every text, one grading of each distinct answer.

    with GraderPool(workers=2, deadline_s=5.0) as pool:
        tickets = pool.submit_many(verifier, problem_id="p7", texts=texts, gold="42", row=row)
        ...  # go on sampling
        verdicts = pool.gather(tickets)

Submitting returns at once; a thread of the pool feeds the processes, owns the deadlines, kills
and replaces. What a verdict says does not depend on the number of workers or on which answers
shared a batch; only a timeout and a grader error depend on the clock, as they must.
"""

import pickle
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self

from brorl.errors import ConfigError, VerifierError
from brorl.verify.pool_ledger import Context, Ledger, PoolStats, Ticket
from brorl.verify.pool_supervisor import Supervisor
from brorl.verify.pool_worker import describe, judge
from brorl.verify.protocol import Verifier
from brorl.verify.verdict import Verdict


class GraderPool:
    """Judges texts in child processes; a context manager. Methods may be called by any thread."""

    def __init__(
        self,
        workers: int,
        deadline_s: float,
        *,
        retries: int = 1,
        memory_bytes: int = 4 << 30,
        cache_bytes: int = 256 << 20,
    ) -> None:
        """Start the processes.

        Args:
            workers: processes. 0 judges in the calling thread, at once and without a deadline:
                only for verifiers that are total and cheap on every text.
            deadline_s: seconds, > 0, that one extraction or one grading may take. A verifier
                with a larger `deadline_s` of its own (one that runs programs) gets that.
            retries: how often an item is tried again after its process died, its verifier
                raised, or its time ran out while it was given next to no processor.
            memory_bytes: address space of a process; an answer whose grading wants more is
                "ungradable".
            cache_bytes: answers and verdicts kept to serve equal answers of later submissions.

        Raises:
            ConfigError: a negative count or a deadline that is not positive.
        """
        if workers < 0 or retries < 0 or not deadline_s > 0:
            raise ConfigError(
                "a grader pool needs workers >= 0, retries >= 0 and deadline_s > 0, "
                f"got {workers}, {retries} and {deadline_s}"
            )
        self._deadline_s = deadline_s
        self._changed = threading.Condition()  # guards the ledger and the flag
        self._ledger = Ledger(retries, cache_bytes)
        self._closed = False
        self._supervisor: Supervisor | None = None
        if workers:
            self._supervisor = Supervisor(
                self._ledger, self._changed, workers=workers, memory_bytes=memory_bytes
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(
        self,
        verifier: Verifier,
        *,
        problem_id: str,
        text: str,
        gold: str | None,
        row: Mapping[str, Any],
    ) -> Ticket:
        """Hand over one text: `submit_many` with a single one."""
        return self.submit_many(verifier, problem_id=problem_id, texts=[text], gold=gold, row=row)[
            0
        ]

    def submit_many(
        self,
        verifier: Verifier,
        *,
        problem_id: str,
        texts: Sequence[str],
        gold: str | None,
        row: Mapping[str, Any],
    ) -> list[Ticket]:
        """Hand over texts that answer one problem; one ticket each, in order.

        Args:
            verifier: picklable. Equal extracted answers under an equal (verifier, problem_id,
                gold, row) are graded once, in this submission and in later ones. Its method
                `prepare()`, where it has one, is called in each process before the first item,
                outside of the deadline.
            problem_id: of the row of data.
            texts: completions, decoded.
            gold: see Verifier.grade.
            row: plain types.

        Raises:
            VerifierError: the pool is closed, or verifier and row cannot be pickled.
        """
        row = dict(row)
        try:
            pickled = pickle.dumps((verifier, gold, row), protocol=5)
        except Exception as error:  # pickle raises whatever the object's own hooks raise
            raise VerifierError(
                f"verifier and row must be picklable for a grader process, got {describe(error)} "
                f"from {type(verifier).__qualname__} on problem {problem_id!r}"
            ) from error
        own = getattr(verifier, "deadline_s", None)
        budget = max(self._deadline_s, own) if isinstance(own, int | float) else self._deadline_s
        digest = blake2b(pickled, digest_size=16).digest()
        with self._changed:
            self._refuse_if_down()
            tickets = self._ledger.submit(Context(problem_id, pickled, digest, budget), texts)
            if self._supervisor is None:
                while batch := self._ledger.take(workers=1):
                    for item in batch:
                        outcome = judge(verifier, item.phase, item.text, gold, row)
                        self._ledger.settle(item, *outcome)
            else:
                self._supervisor.wake()
        return tickets

    def gather(self, tickets: Sequence[Ticket]) -> list[Verdict]:
        """Wait for the verdicts of tickets of this pool; in the order of the tickets.

        Raises:
            VerifierError: the pool was closed or broke before all were judged.
        """
        verdicts: list[Verdict] = []
        with self._changed:
            for ticket in tickets:
                while ticket.verdict is None:
                    self._refuse_if_down()
                    self._changed.wait()
                verdicts.append(ticket.verdict)
        return verdicts

    def stats(self) -> PoolStats:
        """Counts so far."""
        with self._changed:
            return self._ledger.stats()

    def close(self) -> None:
        """End the processes, whatever they are doing. Tickets not judged stay unjudged."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.stop()

    def _refuse_if_down(self) -> None:
        if self._closed:
            raise VerifierError("the grader pool is closed; submit and gather before closing it")
        if self._supervisor is not None and self._supervisor.failure is not None:
            raise VerifierError(f"the grader pool broke: {describe(self._supervisor.failure)}")
