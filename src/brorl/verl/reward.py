"""Our graders as verl's reward: typed verdicts through the pool, with its deadlines.

verl wants one number an answer; the verdict travels beside it, so that an answer whose grading
failed on our side can leave its group (`engine.Graded`) and every other is recorded.
"""

import asyncio
from pathlib import Path
from typing import Any

from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from brorl.tasks.build import build_task, build_verifier
from brorl.tasks.problem import Problem
from brorl.tasks.reward_sources import RewardSource
from brorl.tasks.rewards import build_reward
from brorl.train.recipe import load_settings
from brorl.train.settings import TrainSettings
from brorl.verify.pool import GraderPool
from brorl.verify.protocol import Verifier
from brorl.verify.verdict import Verdict
from brorl.verl.agent_loop import ASK
from brorl.verl.data_files import FOLDER, TRAIN, read_problems
from brorl.verl.names import TRAINER
from brorl.verl.reader import reader


@register(TRAINER)
class BrorlRewardManager(RewardManagerBase):
    """One grader process for each of verl's reward workers; none for a verifier that compares."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **unused: Any):
        super().__init__(config, tokenizer, compute_score)
        run = Path(config.brorl.run)
        self._settings = load_settings(run / "config.yaml", {}, may_change=())
        self._verifier = verifier_of(self._settings)
        self._reward = reward_of(self._settings, self._verifier, run)
        self._policy = reader(tokenizer, str(config.actor_rollout_ref.model.path))
        light = bool(getattr(self._verifier, "in_process", False))
        workers = 0 if light or self._settings.grading.workers == 0 else 1
        self._pool = GraderPool(workers, self._settings.grading.deadline_s)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """{"reward_score": raw score, "reward_extra_info": the verdict and the text}."""
        item = data[-1:][0]
        ask = item.non_tensor_batch[ASK]
        width = item.batch["responses"].shape[-1]
        length = int(item.batch["attention_mask"][-width:].sum())
        tokens = item.batch["responses"][:length].tolist()
        index = int(ask["first"]) + int(item.non_tensor_batch["session_id"])
        problem = Problem(**ask["problem"])
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            None, self._judge, problem, ask["group_id"], index, tokens
        )
        return {"reward_score": found["raw"], "reward_extra_info": found}

    def _judge(
        self, problem: Problem, group_id: str, index: int, tokens: list[int]
    ) -> dict[str, Any]:
        text = self._policy.decode(tokens)
        true = self._grade(self._verifier, problem, text, problem.gold)
        asked = self._reward.extra(problem)
        extra = None
        if asked is not None:
            extra = self._grade(asked.verifier, problem, text, asked.gold)
        rewarded = extra is None or extra.counts
        raw = 0.0
        if true.counts and rewarded:
            raw = self._reward.score(problem, group_id, index, true, extra)
        return {
            "raw": raw,
            "rewarded": rewarded,
            "text": text,
            "kind": str(true.kind),
            "score": true.score,
            "extracted": true.extracted,
            "reason": true.reason,
        }

    def _grade(self, verifier: Verifier, problem: Problem, text: str, gold: str | None) -> Verdict:
        ticket = self._pool.submit(
            verifier, problem_id=problem.id, text=text, gold=gold, row=problem.row
        )
        return self._pool.gather([ticket])[0]


def verifier_of(settings: TrainSettings) -> Verifier:
    """The task's verifier, without its data: a file need not be seen by every node."""
    if settings.task is None:
        return build_verifier(settings.data.verifier)
    return build_task(settings.task, {}).verifier


def reward_of(settings: TrainSettings, verifier: Verifier, run: Path) -> RewardSource:
    """The configured reward source; the training problems are read where it draws labels."""
    source = settings.reward.source
    problems = read_problems(run / FOLDER / TRAIN) if source == "incorrect" else []
    return build_reward(
        source,
        settings.reward.options,
        seed=settings.seed,
        verifier=verifier,
        problems=problems,
        labels=None,
    )
