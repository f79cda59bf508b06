"""The trainer's weights into vLLM, and the proof that they arrived: a probe scored by both.

The trap: with tied embeddings vLLM's CPU build keeps a packed copy of the output embedding, which
`reload_weights` leaves as it was. Bodies follow the updates, the head does not, nothing is raised,
greedy answers may even agree. Here every embedding is packed again, and the probe would show a
head that was not.

Axes:  R rows of the probe · T tokens
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from brorl.errors import EngineError
from brorl.policy.model import Policy
from brorl.seeds import generator

ROWS, TOKENS = 8, 32


def copy_weights(engine: Any, policy: Policy) -> None:
    """Hand over every parameter, a tied one once, then drop prompts encoded by the old ones.

    Raises:
        EngineError: answers are still being sampled.
    """
    parameters = [(name, p.detach()) for name, p in policy.model.named_parameters()]

    def load(worker: Any) -> None:
        worker.model_runner.reload_weights(weights_iterator=iter(parameters))
        repack_embeddings(worker.model_runner.get_model())

    engine.collective_rpc(load)
    if not engine.reset_prefix_cache():
        raise EngineError("vLLM kept prompts of the old weights: answers are still being sampled")


def repack_embeddings(model: torch.nn.Module) -> None:
    """Let each embedding make its packed copy anew; without one (CUDA) nothing happens."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding):
            module.quant_method.process_weights_after_loading(module)


class Probe:
    """Fixed token sequences, random ones: they reach every layer, and a softmax the whole head.

    Args:
        vocabulary: ids are drawn below it.
        length: tokens of a sequence, at most TOKENS; one is context, the rest is scored.
    """

    def __init__(self, vocabulary: int, length: int) -> None:
        width = max(2, min(length, TOKENS))
        self.ids_RT = generator(0, "fingerprint").integers(vocabulary, size=(ROWS, width))

    def difference(self, engine: Any, policy: Policy) -> float:
        """Mean |log-prob by vLLM - log-prob by the trainer| over the probe's tokens, nats.

        NaN where either is not a number.
        """
        trainer_RT = self.by_trainer(policy)
        return float(np.abs(self.by_vllm(engine) - trainer_RT).mean())

    @torch.no_grad()
    def by_trainer(self, policy: Policy) -> NDArray[np.float64]:
        """[R, T - 1], at temperature 1."""
        rows, width = self.ids_RT.shape
        scored = policy.score(
            [(int(first),) for first in self.ids_RT[:, 0]],
            torch.arange(rows, device=policy.device),
            torch.from_numpy(self.ids_RT[:, 1:]).to(policy.device),
            torch.full((rows,), width - 1, device=policy.device),
            temperature=1.0,
        )
        return scored.logp_M.double().cpu().numpy().reshape(rows, width - 1)

    def by_vllm(self, engine: Any) -> NDArray[np.float64]:
        """[R, T - 1], at temperature 1, read as prompts; the answer of one token is dropped."""
        from vllm import SamplingParams
        from vllm.inputs import tokens_input

        how = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        for row, ids in enumerate(self.ids_RT.tolist()):
            engine.add_request(f"probe-{row}", tokens_input(ids), how)
        found = np.full((len(self.ids_RT), self.ids_RT.shape[1] - 1), np.nan)
        while engine.has_unfinished_requests():
            for output in engine.step():
                row = int(output.request_id.removeprefix("probe-"))
                ids = self.ids_RT[row, 1:].tolist()
                entries = output.prompt_logprobs[1:]
                found[row] = [entry[i].logprob for i, entry in zip(ids, entries, strict=True)]
        return found
