"""verl's rollouts as one of our engines: prompts into its queue, whole groups out, or an error.

`train.collect.Collector` asks an engine for N answers of each prompt. Here the prompts go to
verl's agent-loop workers, which ask its inference servers and have its reward workers grade; the
answers lie in verl's TransferQueue under a key each, and stay there for the update.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import ray
import torch
import transfer_queue as tq
from verl.utils import tensordict_utils as tu

from brorl.errors import EngineError
from brorl.rollout.engine import (
    Completion,
    EngineReport,
    OnFinished,
    Request,
    Sampling,
    Stop,
    check_counts,
)
from brorl.tasks.problem import Problem
from brorl.train.grading import GradingDesk
from brorl.train.groups import Group, Sample
from brorl.verify.verdict import Kind, Verdict
from brorl.verl.agent_loop import ASK

POLL_S = 0.5
ALIVE_S = 5.0  # between two looks at the workers
TRAIN, EVAL = "train", "val"  # partitions of verl's queue


@dataclass(frozen=True, slots=True, eq=False)
class Graded(Completion):
    """A completion that verl's reward workers have judged, and where it lies in the queue."""

    key: str
    text: str
    verdict: Verdict
    raw: float
    rewarded: bool


class VerlDesk(GradingDesk):
    """Stands where the embedded trainer grades: the verdicts have come with the answers."""

    def __init__(self) -> None:  # no pool here: verl's reward workers have one each
        self.waited_s = 0.0

    def take(self, group: Group, first: int, completions: Sequence[Completion]) -> None:
        """Append samples first, first + 1, ... to their group."""
        for offset, c in enumerate(completions):
            assert isinstance(c, Graded)
            sample = Sample(first + offset, c, c.text, c.verdict, c.raw, rewarded=c.rewarded)
            group.samples.append(sample)

    def finish(self) -> None:
        """Nothing is outstanding."""


class VerlEngine:
    """Implements brorl.rollout.engine.Engine on verl's agent-loop manager.

    Args:
        manager: verl's; its workers are looked after while answers are awaited.
        problems: every problem that may be asked for, by id.
        eos_ids: tokens that end an answer.
        step: the step under way, which verl stamps on its rows.
    """

    def __init__(
        self,
        manager: Any,
        problems: Mapping[str, Problem],
        eos_ids: frozenset[int],
        step: Callable[[], int],
        policy_version: int,
    ) -> None:
        self._manager = manager
        self._problems = problems
        self._eos_ids = eos_ids
        self._step = step
        self._version = policy_version

    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """n judged completions for each request, at verl's training temperature.

        Raises:
            EngineError: one that does not come.
        """
        groups = self._groups(requests, sampling, TRAIN)
        for index, group in enumerate(groups):
            if on_finished is not None:
                on_finished(index, 0, list(group))
        return [list(group) for group in groups]

    def evaluate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Graded]]:
        """The same under the val_kwargs of verl's configuration; nothing stays in the queue."""
        groups = self._groups(requests, sampling, EVAL)
        tq.kv_clear(keys=[c.key for group in groups for c in group], partition_id=EVAL)
        return groups

    def _groups(
        self, requests: Sequence[Request], sampling: Sampling, partition: str
    ) -> list[list[Graded]]:
        uids = [uuid4().hex for _ in requests]
        self._submit(uids, requests, sampling, partition)
        self._wait(uids, requests, partition)
        groups = [
            self._fetch(uid, request, partition)
            for uid, request in zip(uids, requests, strict=True)
        ]
        check_counts(requests, groups)
        tq.kv_clear(keys=uids, partition_id=partition)
        return groups

    def forget(self, group_ids: Sequence[str] | None = None) -> None:
        """verl's servers drop their caches when they get new weights."""

    def weights_changed(self, policy_version: int) -> None:
        """Stamp what follows with the new version; the trainer sends the weights."""
        self._version = policy_version

    def report(self) -> EngineReport:
        """Nothing is measured here: verl's servers keep their own counts."""
        return EngineReport(kv_cache=0, fingerprint=None)

    def close(self) -> None:
        """verl owns its workers."""

    def _submit(
        self, uids: list[str], requests: Sequence[Request], sampling: Sampling, partition: str
    ) -> None:
        step = self._step()
        tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in uids]
        tq.kv_batch_put(keys=uids, partition_id=partition, tags=tags)
        batch = tu.get_tensordict(
            {
                "uid": uids,
                "index": torch.arange(len(uids)),
                "raw_prompt": [_chat(self._problems[r.problem_id].prompt) for r in requests],
                "__rollout_n__": [r.n for r in requests],
                ASK: [
                    ask_for(r, self._problems[r.problem_id], sampling.max_new_tokens)
                    for r in requests
                ],
            }
        )
        tu.assign_non_tensor_data(batch, "global_steps", step)
        if partition == EVAL:
            tu.assign_non_tensor_data(batch, "validate", True)
        self._call("hand out prompts", lambda: self._manager.generate_sequences(batch))

    def _wait(self, uids: Sequence[str], requests: Sequence[Request], partition: str) -> None:
        """Until every group is whole. A failed session or a lost worker ends the step."""
        looked = time.monotonic()
        while True:
            tags = tq.kv_list(partition).get(partition, {})
            states = [tags.get(uid, {}).get("status") for uid in uids]
            failed = [r.problem_id for r, s in zip(requests, states, strict=True) if s == "failure"]
            if failed:
                raise EngineError(
                    f"step {self._step()}: {len(failed)} of {len(uids)} groups lost answers, the "
                    f"first of problem {failed[0]}: a rollout worker failed, its error is above"
                )
            if all(s == "finished" for s in states):
                return
            if time.monotonic() - looked > ALIVE_S:
                looked = time.monotonic()
                self._call("look after the workers", self._ping)
            time.sleep(POLL_S)

    def _ping(self) -> None:
        ray.get([w.__ray_ready__.remote() for w in self._manager.agent_loop_workers], timeout=600)

    def _call(self, doing: str, what: Callable[[], Any]) -> None:
        try:
            what()
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            line = str(error).splitlines()[0]
            raise EngineError(
                f"step {self._step()}: a rollout worker is lost ({doing}): {line}"
            ) from error

    def _fetch(self, uid: str, request: Request, partition: str) -> list[Graded]:
        keys = [f"{uid}_{i}_0" for i in range(request.n)]
        data = tq.kv_batch_get(
            keys=keys,
            partition_id=partition,
            select_fields=["responses", "rollout_log_probs", "extra_fields"],
        )
        rows = zip(
            keys, data["responses"], data["rollout_log_probs"], data["extra_fields"], strict=True
        )
        return [self._graded(*row) for row in rows]

    def _graded(self, key: str, tokens: Any, logprobs: Any, extra: Any) -> Graded:
        extra = getattr(extra, "data", extra)
        info = extra["reward_extra_info"]
        ids = tokens.numpy().astype(np.int32)
        return Graded(
            tokens=ids,
            logprobs=logprobs.float().numpy(),
            mask=np.ones(len(ids), dtype=np.bool_),
            stop=self._stop(ids, bool(extra.get("aborted"))),
            policy_version=self._version,
            key=key,
            text=info["text"],
            verdict=Verdict(Kind(info["kind"]), info["score"], info["extracted"], info["reason"]),
            raw=float(info["raw"]),
            rewarded=bool(info["rewarded"]),
        )

    def _stop(self, ids: Any, aborted: bool) -> Stop:
        if aborted:
            return Stop.ABORTED
        return Stop.EOS if int(ids[-1]) in self._eos_ids else Stop.LENGTH


def ask_for(request: Request, problem: Problem, limit: int) -> dict[str, Any]:
    """What our agent loop and our reward manager need to know of a prompt: plain values."""
    return {
        "prompt_ids": list(request.prompt),
        "limit": limit,
        "group_id": request.group_id,
        "first": request.first,
        "problem": {
            "id": problem.id,
            "prompt": problem.prompt,
            "gold": problem.gold,
            "row": dict(problem.row),
            "task": problem.task,
        },
    }


def _chat(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]
