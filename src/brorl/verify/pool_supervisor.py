"""The thread of a grader pool: feeds the processes, owns the deadlines, kills and replaces."""

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field

from brorl.verify.pool_ledger import Item, Ledger
from brorl.verify.pool_process import PREPARE_S, GraderProcess
from brorl.verify.verdict import grader_error, timed_out

_GOODBYE_S = 1.0
_TICK_S = 0.05  # how often processes at work are looked at


@dataclass(slots=True)
class _Worker:
    process: GraderProcess | None = None
    batch: list[Item] = field(default_factory=list)
    done: int = 0  # of the batch

    def pull(self, position: int) -> Item:
        """Take the item at a position of the batch out of it, or the nearest one not done."""
        return self.batch.pop(min(max(position, self.done), len(self.batch) - 1))

    def clear(self) -> list[Item]:
        """End the batch; the items not done."""
        rest, self.batch, self.done = self.batch[self.done :], [], 0
        return rest


class Supervisor:
    """Drives grader processes from one thread, which alone touches them."""

    def __init__(
        self, ledger: Ledger, changed: threading.Condition, *, workers: int, memory_bytes: int
    ) -> None:
        """Start the thread, which starts the processes.

        Args:
            ledger: what to judge.
            changed: guards the ledger; notified when verdicts have come in.
            workers: processes, >= 1.
            memory_bytes: address space of each.
        """
        self.failure: BaseException | None = None
        self._ledger = ledger
        self._changed = changed
        self._memory_bytes = memory_bytes
        self._stopping = False
        self._workers = [_Worker() for _ in range(workers)]
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        # The processes ask to be killed when the thread that started them ends: this one.
        self._thread = threading.Thread(target=self._run, name="grader-pool", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something new in the ledger."""
        with contextlib.suppress(BlockingIOError):  # raised when it has been woken often enough
            self._waker.send(b"x")

    def stop(self) -> None:
        """Kill the processes, whatever they are doing, and end the thread."""
        self._stopping = True
        self.wake()
        self._thread.join()
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def _run(self) -> None:
        try:
            self._selector.register(self._woken, selectors.EVENT_READ)
            for worker in self._workers:
                self._start(worker)
            while not self._stopping:
                self._turn()
        except BaseException as error:  # the thread's boundary: gather raises it
            self.failure = error
        finally:
            self._dismiss()
            with self._changed:
                self._changed.notify_all()

    def _dismiss(self) -> None:
        """Idle processes get a moment to clean up; then all that are left are killed."""
        processes = [w.process for w in self._workers if w.process is not None]
        idle = [w.process for w in self._workers if w.process is not None and not w.batch]
        for process in idle:
            process.dismiss()
        end = time.monotonic() + _GOODBYE_S
        for process in idle:
            process.gone(max(0.0, end - time.monotonic()))
        for process in processes:
            process.kill()

    def _turn(self) -> None:
        for worker in self._workers:
            self._feed(worker)
        busy = any(worker.batch for worker in self._workers)
        for key, events in self._selector.select(_TICK_S if busy else None):
            if key.data is None:
                self._woken.recv(4096)
            else:
                self._attend(key.data, events)
        for worker in self._workers:
            self._watch(worker)

    def _start(self, worker: _Worker) -> GraderProcess:
        process = worker.process = GraderProcess(self._memory_bytes)
        self._selector.register(process.sock, selectors.EVENT_READ, worker)
        self._flush(worker)
        return process

    def _feed(self, worker: _Worker) -> None:
        """Give an idle worker its next batch, and a process first where it has lost its own."""
        if worker.batch:
            return
        with self._changed:
            worker.batch = self._ledger.take(len(self._workers))
        if worker.batch:
            process = worker.process or self._start(worker)
            context, phase = worker.batch[0].context, worker.batch[0].phase
            texts = [item.text for item in worker.batch]
            process.send(context.digest, context.pickled, phase, texts)
            self._flush(worker)

    def _flush(self, worker: _Worker) -> None:
        assert worker.process is not None
        worker.process.flush()  # a child that is gone is noticed when it is read from
        wanted = selectors.EVENT_READ
        if worker.process.has_outgoing:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(worker.process.sock, wanted, worker)

    def _attend(self, worker: _Worker, events: int) -> None:
        assert worker.process is not None
        if events & selectors.EVENT_WRITE:
            self._flush(worker)
        results, is_open = worker.process.receive()
        with self._changed:
            for outcome, value in results:
                self._ledger.settle(worker.batch[worker.done], outcome, value)
                worker.done += 1
            if worker.done == len(worker.batch):
                worker.clear()
            self._changed.notify_all()
        if any(outcome == "full" for outcome, _ in results):
            self._kill(worker)
            self._release(worker)
        elif not is_open:
            at = worker.process.position()
            ended = self._kill(worker)
            with self._changed:
                self._ledger.counts["deaths"] += 1
                if worker.batch:
                    last = grader_error(f"the grader process died: {ended}")
                    self._ledger.lost(worker.pull(at), last)
            self._release(worker)

    def _watch(self, worker: _Worker) -> None:
        if not worker.batch:
            return
        assert worker.process is not None
        budget = worker.batch[0].context.budget_s
        overdue = worker.process.overdue(budget)
        if overdue is None:
            return
        self._kill(worker)
        with self._changed:
            self._ledger.counts["kills"] += 1
            item = worker.pull(overdue.position)
            extracted = item.text if item.phase == "grade" else None
            if not overdue.judging:
                unready = f"the verifier was not ready to {item.phase} in {PREPARE_S:g} s"
                self._ledger.lost(item, grader_error(unready))
            else:
                late = timed_out(extracted, f"{item.phase} took longer than {budget:g} s")
                (self._ledger.finish if overdue.working else self._ledger.lost)(item, late)
        self._release(worker)

    def _kill(self, worker: _Worker) -> str:
        """End the process, whatever it is doing; how it ended. `_feed` starts another."""
        assert worker.process is not None
        self._selector.unregister(worker.process.sock)
        ended = worker.process.kill()
        worker.process = None
        return ended

    def _release(self, worker: _Worker) -> None:
        """What the process had not judged goes back to the queue."""
        with self._changed:
            self._ledger.put_back(worker.clear())
            self._changed.notify_all()
