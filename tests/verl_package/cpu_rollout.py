"""Hugging Face sampling in a Ray actor as a rollout engine of verl 0.9.1, for tests alone."""

import asyncio
import os
import time

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput


class HFServer:
    """Samples equal prompts together. BRORL_TEST_SLOW_S makes it slow from a step on, to be killed."""

    def __init__(self, path):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.eos = AutoTokenizer.from_pretrained(path).eos_token_id
        self.step = 0
        self.waiting = []
        self.draining = None
        torch.manual_seed(0)

    def pid(self):
        return os.getpid()

    async def generate(self, prompt_ids, sampling_params, request_id=None, **unused):
        if float(os.environ.get("BRORL_TEST_SLOW_S", 0)) and self.step >= 1:
            await asyncio.sleep(float(os.environ["BRORL_TEST_SLOW_S"]))
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((tuple(prompt_ids), sampling_params, future))
        if self.draining is None:
            self.draining = asyncio.create_task(self._drain())
        tokens, logprobs = await future
        return TokenOutput(
            token_ids=tokens,
            log_probs=logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )

    async def _drain(self):
        await asyncio.sleep(0.05)  # let the other answers of the group arrive
        taken, self.waiting, self.draining = self.waiting, [], None
        together = {}
        for prompt, params, future in taken:
            key = (prompt, params["max_tokens"], params["temperature"])
            together.setdefault(key, []).append(future)
        for (prompt, limit, temperature), futures in together.items():
            rows = self._sample(prompt, len(futures), limit, temperature)
            for future, row in zip(futures, rows, strict=True):
                future.set_result(row)
            await asyncio.sleep(0)

    @torch.inference_mode()
    def _sample(self, prompt, n, limit, temperature):
        ids = torch.tensor([prompt]).expand(n, -1)
        cache, tokens, logps = None, [], []
        done = torch.zeros(n, dtype=torch.bool)
        while len(tokens) < limit and not bool(done.all()):
            out = self.model(ids, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logp = (out.logits[:, -1].float() / (temperature or 1.0)).log_softmax(-1)
            ids = logp.exp().multinomial(1) if temperature else logp.argmax(-1, keepdim=True)
            tokens.append(ids[:, 0])
            logps.append(logp.gather(-1, ids)[:, 0])
            done |= ids[:, 0] == self.eos
        return [
            self._cut(t, p)
            for t, p in zip(torch.stack(tokens, 1), torch.stack(logps, 1), strict=True)
        ]

    def _cut(self, tokens, logprobs):
        ends = (tokens == self.eos).nonzero()
        length = int(ends[0]) + 1 if len(ends) else len(tokens)
        return tokens[:length].tolist(), logprobs[:length].tolist()

    async def load(self, state):
        missing = self.model.load_state_dict(state, strict=False)
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        assert set(missing.missing_keys) <= tied, missing
        assert not missing.unexpected_keys, missing

    async def set_global_steps(self, step):
        self.step = step

    async def sleep(self, *args, **kwargs):
        pass

    wake_up = abort_all_requests = resume_generation = clear_kv_cache = sleep
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = sleep
    wait_for_requests_to_drain = sleep


class HFReplica(RolloutReplica):
    """One server a replica."""

    async def launch_servers(self):
        path = self.model_config.get("path")
        server = (
            ray.remote(HFServer)
            .options(name=f"hf_server_{self.replica_rank}", num_cpus=0, max_concurrency=10000)
            .remote(path)
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"127.0.0.1:{9000 + self.replica_rank}"


class HFAdapter(BaseRollout):
    """Sends a rank's full weights to its server."""

    def __init__(self, config, model_config, device_mesh, replica_rank=-1):
        super().__init__(config, model_config, device_mesh)
        self.rank = int(os.environ.get("RANK", 0)) if replica_rank == -1 else replica_rank
        self.sleep_level = 2

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, wire_format="named_tensors", **given):
        state = {}
        for name, value in weights:
            full = value.full_tensor() if hasattr(value, "full_tensor") else value
            state[name] = full.detach().cpu().float().clone()
        server = ray.get_actor(f"hf_server_{self.rank}")
        deadline = time.monotonic() + 120
        await server.load.remote(state)
        assert time.monotonic() < deadline
        if given.get("global_steps") is not None:
            await server.set_global_steps.remote(given["global_steps"])
