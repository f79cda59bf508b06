"""Replays fixed completions: the fake for tests of everything downstream of an engine."""

from collections.abc import Callable, Sequence

from brorl.rollout.engine import (
    Completion,
    EngineReport,
    OnFinished,
    Request,
    Sampling,
    check_counts,
)


class ScriptedEngine:
    """Answers each request from a function of (request, sample index).

    Attributes:
        calls: every request that was asked for, in order.
    """

    def __init__(self, script: Callable[[Request, int], Completion]) -> None:
        self._script = script
        self.calls: list[Request] = []
        self.version = 0

    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        groups = []
        for index, request in enumerate(requests):
            self.calls.append(request)
            group = [
                self._script(request, i) for i in range(request.first, request.first + request.n)
            ]
            if on_finished is not None:
                on_finished(index, 0, group)
            groups.append(group)
        check_counts(requests, groups)
        return groups

    def forget(self, group_ids: Sequence[str] | None = None) -> None:
        """Nothing is kept."""

    def weights_changed(self, policy_version: int) -> None:
        self.version = policy_version

    def report(self) -> EngineReport:
        return EngineReport(kv_cache=0, fingerprint=None)

    def close(self) -> None:
        """Nothing is held."""
