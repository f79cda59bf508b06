"""One answer to one prompt, in verl's agent-loop workers: our token ids in, the engine's out.

verl's own single-turn loop encodes the prompt anew through a chat template; here the trainer has
encoded it as the embedded trainer would, and each request says how long its answer may be.
"""

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)

from brorl.errors import EngineError
from brorl.verl.names import TRAINER

ASK = "brorl"
"""The field of a prompt that holds what our code needs: see `engine.ask_for`."""


@register(TRAINER)
class BrorlAgentLoop(AgentLoopBase):
    """Asks the engine once and hands its tokens and log-probs on."""

    def __init__(self, server_manager: Any, **unused: Any) -> None:
        # Not the base's: it builds tokenisation for turns and tools, from a chat template.
        self.server_manager = server_manager

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> AgentLoopOutput:
        """Raises EngineError where no token came, or no log-prob for each."""
        ask = fields[ASK]
        output = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=list(ask["prompt_ids"]),
            sampling_params={**sampling_params, "max_tokens": ask["limit"]},
        )
        tokens = [int(t) for t in output.token_ids[: ask["limit"]]]
        logprobs = list(output.log_probs or [])[: ask["limit"]]
        if not tokens or len(tokens) != len(logprobs):
            raise EngineError(
                f"problem {ask['problem']['id']}: needs tokens with a log-prob each, got "
                f"{len(tokens)} and {len(logprobs)} ({output.stop_reason})"
            )
        return AgentLoopOutput(
            prompt_ids=list(ask["prompt_ids"]),
            response_ids=tokens,
            response_mask=[1] * len(tokens),
            response_logprobs=logprobs,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={
                **output.extra_fields,
                "aborted": output.stop_reason == "aborted",
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
