"""brorl's side: a whole step, generation, the update, and what this machine's products reach."""

import dataclasses
import random
import sys
import time
from pathlib import Path

import torch
from serve import NO_TOKEN, TINY, booked, case, prompt_text, serve
from torch.nn import functional as F
from without import take_out

from brorl.policy.load import load_policy, tiny_policy
from brorl.policy.tiny import TinyShape
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling
from brorl.verify.verdict import correct, wrong


class Digits:
    """The share of digits, as the peer's reward; it costs next to nothing on both sides."""

    def extract(self, text, row):
        return text

    def grade(self, extracted, *, gold, row):
        share = sum(ch.isdigit() for ch in extracted) / max(1, len(extracted))
        return correct(extracted, "") if share == 1 else wrong(extracted, "", share)


def policy_of(c):
    """The tiny policy, or the model of a folder; no answer ends before its limit."""
    length = c["prompt"] + c["answer"]
    if c.get("model"):
        made = load_policy(
            c["model"], revision=None, dtype="float32", device="cpu", trained_length=length
        )
    else:
        shape = TinyShape("llama", *TINY.values(), 1024, True)
        made = tiny_policy(shape, seed=0, device="cpu", trained_length=length)
    return dataclasses.replace(made, eos_ids=frozenset({NO_TOKEN}))


def prompt_of(policy, c):
    return tuple(policy.encode(prompt_text(4 * c["prompt"]))[: c["prompt"]])


def generation(c):
    policy = policy_of(c)
    engine = EmbeddedEngine(policy, memory_budget=c.get("budget", 1 << 30))
    prompt, how = prompt_of(policy, c), Sampling(1.0, 1.0, 0, c["answer"])
    seeds = iter(range(1 << 30))

    groups = c["n"] if c.get("lonely") else 1  # lonely: every answer reads a prompt of its own
    of_group = c["n"] // groups

    def work():
        engine.weights_changed(0)  # as after an update: the prompt is encoded again
        engine.sample(
            [Request(f"g{i}", "p", prompt, 0, of_group, next(seeds)) for i in range(groups)], how
        )

    return work


def rollouts(policy, c):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, policy.vocabulary, (c["n"], c["answer"]), generator=generator)


def updates(c):
    """Forward and backward of the log-probs of N answers, in micro-batches of `rows`."""
    policy = policy_of(c)
    prompt, tokens = prompt_of(policy, c), rollouts(policy, c)

    def work():
        policy.model.zero_grad(set_to_none=True)
        for part in tokens.split(c["rows"]):
            # lonely: every answer reads a prompt of its own
            group = torch.arange(len(part)) if c.get("lonely") else torch.zeros(len(part)).long()
            lengths = torch.full((len(part),), c["answer"])
            prompts = [prompt] * (int(group[-1]) + 1)
            scored = policy.score(prompts, group, part, lengths, temperature=1.0)
            scored.logp_M.sum().backward()

    return work


def steps(c):
    """The trainer's own step: sample, grade, filter, centre, update; one prompt a step."""
    from brorl.tasks.problem import Problem
    from brorl.tasks.reward_sources import GroundTruth
    from brorl.train.collect import Collector
    from brorl.train.grading import GradingDesk
    from brorl.train.prompts import PromptSource
    from brorl.train.recipe import settings_from
    from brorl.train.step import Learner, train_step
    from brorl.verify.pool import GraderPool

    policy = policy_of(c)
    s = settings_from(
        {
            "rollout": {
                "n": c["n"],
                "max_new_tokens": c["answer"],
                "memory_budget": c.get("budget", 1 << 30),
            },
            "prompts_per_step": 1,
            "num_minibatches": 1,
            "dynamic_sampling": {"enable": False},
            "micro_batch_tokens": c["prompt"] + c["rows"] * c["answer"],
            "lr": 1e-3,
            "steps": 1,
        },
        "benchmark",
    )
    text = prompt_text(c["prompt"] - 2)
    problems = [Problem(f"p{i}", f"{text}{i:02d}", "x", row={}, task="b") for i in range(64)]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=s.lr)
    engine = EmbeddedEngine(policy, memory_budget=s.rollout.memory_budget)
    pool = GraderPool(workers=0, deadline_s=10.0)
    desk = GradingDesk(policy, pool, Digits(), GroundTruth())
    collector = Collector(s, PromptSource(problems, 0, 1.0), engine, desk, policy)
    learner = Learner(policy, optimizer, engine, None)
    numbers = iter(range(1, 1 << 30))
    inside = {"s": 0.0}

    if c.get("overhead"):
        # Calls of the model, its backward pass and its optimizer.
        for owner, method in (
            (type(policy), "read_prompts"),
            (type(policy), "read_next"),
            (type(policy), "logits"),
            (type(policy), "score"),
            (torch.Tensor, "backward"),
            (type(optimizer), "step"),
        ):
            booked(owner, method, inside, "s")

    def work():
        inside["s"] = 0.0
        result = train_step(next(numbers), collector, learner, s, lambda _: s.lr)
        return {"seconds": result.seconds, "model": inside["s"]}

    return work


def products(c):
    """The layers' matrix products alone: `tokens` tokens forward, and backward where asked."""
    h, f = TINY["hidden"], TINY["mlp"]
    kv = h * TINY["kv_heads"] // TINY["heads"]
    shapes = [(h, h), (kv, h), (kv, h), (h, h), (f, h), (f, h), (h, f)] * TINY["layers"]
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(s, generator=generator) for s in shapes]
    m = c["tokens"]
    x = {width: torch.randn(m, width, generator=generator) for width in {h, f, kv}}

    def work():
        for _ in range(c["times"]):
            for w in weights:
                F.linear(x[w.shape[1]], w)
                if c["backward"]:
                    g = x[w.shape[0]]
                    g @ w
                    g.t() @ x[w.shape[1]]
        flops = (6 if c["backward"] else 2) * m * sum(a * b for a, b in shapes) * c["times"]
        return {"flops": flops}

    return work


def copies(c):
    """Bytes read plus written by copying blocks beyond the caches."""
    source = torch.randn(c["bytes"] // 4)
    target = torch.empty_like(source)

    def work():
        for _ in range(8):
            target.copy_(source)
        return {"bytes": 2 * 8 * c["bytes"]}

    return work


def logprobs(c):
    """Log-probs of tokens from hidden states, forward and backward; `whole`: in one chunk."""
    from brorl.policy.token_logprobs import token_logprobs

    hidden = torch.randn(c["tokens"], c["hidden"], requires_grad=True)
    weight = torch.randn(c["vocabulary"], c["hidden"], requires_grad=True)
    target = torch.randint(c["vocabulary"], (c["tokens"],))

    chunk = {"chunk_elements": weight.shape[0] * len(target)} if c.get("whole") else {}

    def work():
        hidden.grad = weight.grad = None
        found = token_logprobs(hidden, weight, None, target, temperature=1.0, **chunk)
        found.logp_M.sum().backward()

    return work


def grades(c):
    """Ordinary math answers to one problem, judged in this process as a step's would be."""
    sys.path.append(str(Path(__file__).parent.parent))
    import grading

    from brorl.verify.math import MathVerifier
    from brorl.verify.pool import GraderPool

    verifier, pool = MathVerifier(profile="lenient"), GraderPool(workers=0, deadline_s=10.0)
    seeds = iter(range(1 << 30))

    def work():
        gold, texts = grading.group(random.Random(next(seeds)), c["n"])
        start = time.perf_counter()
        tickets = pool.submit_many(verifier, problem_id="p", texts=texts, gold=gold, row={})
        pool.gather(tickets)
        return {"grading": time.perf_counter() - start}

    return work


def profiled(work):
    """The same work under torch's profiler: seconds of every operation's own time."""
    from torch.profiler import ProfilerActivity, profile

    def watched():
        whole = torch.profiler.record_function("python")
        with profile(activities=[ProfilerActivity.CPU]) as seen, whole:
            work()
        averages = seen.key_averages()
        return {"operations": {e.key: e.self_cpu_time_total / 1e6 for e in averages}}

    return watched


WORK = {
    "grade": grades,
    "logprobs": logprobs,
    "generation": generation,
    "update": updates,
    "step": steps,
    "products": products,
    "copies": copies,
}

if __name__ == "__main__":
    random.seed(0)
    chosen = case()
    if chosen.get("without"):
        take_out(chosen["without"])
    made = WORK[chosen["work"]](chosen)
    serve(profiled(made) if chosen.get("profile") else made)
