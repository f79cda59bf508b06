"""What one GPU does with wide groups: one script, at most six minutes, nothing downloaded.

    PYTHONPATH=src python benchmarks/gpu.py [--toy] [--minutes 6] [--out gpu.json]

Random weights of Qwen2's shape, 0.1 B and 1.5 B parameters, bfloat16; prompts of 512 tokens.
Needs torch >= 2.11, transformers >= 5.10, and brorl's own folder on the path. Parts, in this order,
each skipped (and said so) when the time that is left would not do:

correctness  engine against trainer log-probs; gradients of wide groups against plain padded rows
generation   tokens/s at N = 16 ... 1024 against generate(num_return_sequences=N)
update       seconds against a plain padded forward and backward, and peak memory of both
limits       share of the copy bandwidth and of the matrix-product rate

--toy runs the same on the CPU with a model of a few thousand weights.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from brorl.policy.model import Policy
from brorl.policy.tiny import character_tokenizer
from brorl.rollout.embedded import EmbeddedEngine
from brorl.rollout.engine import Request, Sampling

NO_TOKEN = 1 << 20  # an EOS that is never sampled
SHAPES = {
    "0.1B": {"layers": 12, "hidden": 768, "heads": 12, "kv": 2, "mlp": 2048, "vocab": 32_000},
    "1.5B": {
        "layers": 28,
        "hidden": 1536,
        "heads": 12,
        "kv": 2,
        "mlp": 8960,
        "vocab": 151_936,
    },
    "toy": {"layers": 2, "hidden": 32, "heads": 4, "kv": 2, "mlp": 64, "vocab": 100},
}
# N, prompt and answer of each model: what a step of it may look like within the time.
PLANS = {
    "0.1B": [(16, 512, 512), (128, 512, 512), (512, 512, 512), (1024, 512, 512)],
    "1.5B": [(16, 512, 512), (256, 512, 512), (1024, 512, 512), (64, 512, 2048)],
    "toy": [(4, 12, 6), (16, 12, 6)],
}


class Clock:
    """How much of the time is left."""

    def __init__(self, minutes):
        self.end = time.perf_counter() + 60 * minutes

    def left(self):
        return self.end - time.perf_counter()


def policy_of(name, device, dtype):
    s = SHAPES[name]
    config = AutoConfig.for_model(
        "qwen2",
        hidden_size=s["hidden"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv"],
        intermediate_size=s["mlp"],
        vocab_size=s["vocab"],
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=None,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return Policy(model.eval(), character_tokenizer(), frozenset({NO_TOKEN}), name)


def seconds(work, device, repeats=1):
    """Least of some repeats, after one to warm up, with the device waited for; and peak bytes."""
    taken = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return min(taken[1:]), peak


def prompt_of(policy, tokens):
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(3, policy.vocabulary, (tokens,), generator=generator).tolist())


def sample(policy, n, prompt, answer, budget):
    engine = EmbeddedEngine(policy, memory_budget=budget)
    return engine.sample([Request("g", "p", prompt, 0, n, 7)], Sampling(1.0, 1.0, 0, answer))[0]


def score(policy, prompt, tokens):
    device, (rows, width) = policy.device, tokens.shape
    group = torch.zeros(rows, dtype=torch.int64, device=device)
    lengths = torch.full((rows,), width, device=device)
    return policy.score([prompt], group, tokens, lengths, temperature=1.0).logp_M


def plain_logp(policy, prompt, tokens):
    """Padded rows of prompt and answer, as trainers do it."""
    before = torch.tensor([prompt], device=policy.device).expand(len(tokens), -1)
    whole = torch.cat([before, tokens], dim=1)
    out = policy.model(input_ids=whole, use_cache=False, logits_to_keep=tokens.shape[1] + 1)
    logp = out.logits[:, :-1].float().log_softmax(-1)
    return logp.gather(-1, tokens[:, :, None])[:, :, 0].flatten()


def correctness(name, device, dtype, budget):
    """In this precision: differences of log-probs, and of a wide group's gradient."""
    policy = policy_of(name, device, dtype)
    prompt = prompt_of(policy, 64 if name != "toy" else 9)
    answers = sample(policy, 8, prompt, 32 if name != "toy" else 5, budget)
    tokens = torch.stack([torch.tensor(c.tokens.tolist()) for c in answers]).to(device)
    engine = torch.cat([torch.tensor(c.logprobs.tolist()) for c in answers]).to(device)
    with torch.no_grad():
        trainer, plain = score(policy, prompt, tokens), plain_logp(policy, prompt, tokens)
    gradients = []
    for f in (score, plain_logp):
        policy.model.zero_grad(set_to_none=True)
        f(policy, prompt, tokens).mean().backward()
        gradients.append(torch.cat([p.grad.flatten().float() for p in policy.model.parameters()]))
    wide, narrow = gradients
    return {
        "engine_trainer_mean_nats": float((engine - trainer).abs().mean()),
        "engine_trainer_most_nats": float((engine - trainer).abs().max()),
        "trainer_plain_mean_nats": float((trainer - plain).abs().mean()),
        "gradient_relative_difference": float((wide - narrow).norm() / narrow.norm()),
        "gradient_cosine": float(torch.cosine_similarity(wide, narrow, dim=0)),
    }


def generation(policy, n, prompt, answer, device, budget, with_hf):
    ids = torch.tensor([prompt], device=device)
    ours, peak = seconds(lambda: sample(policy, n, prompt, answer, budget), device)
    out = {"tokens_per_s": n * answer / ours, "seconds": ours, "peak_bytes": peak}
    if not with_hf:
        return out | {"hf": "skipped: time"}

    @torch.inference_mode()
    def theirs():
        policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, pad_token_id=0,
            num_return_sequences=n, min_new_tokens=answer, max_new_tokens=answer,
        )  # fmt: skip

    try:
        hf, hf_peak = seconds(theirs, device)
    except torch.OutOfMemoryError:
        return out | {"hf": "out of memory"}
    return out | {"hf_seconds": hf, "ratio": hf / ours, "hf_peak_bytes": hf_peak}


def update(policy, n, prompt, answer, device, rows, with_plain):
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(3, policy.vocabulary, (n, answer), generator=generator).to(device)

    def run(f, part_rows):
        policy.model.zero_grad(set_to_none=True)
        for part in tokens.split(part_rows):
            f(policy, prompt, part).sum().backward()

    ours, peak = seconds(lambda: run(score, rows), device)
    out = {"seconds": ours, "tokens_per_s": n * answer / ours, "peak_bytes": peak, "rows": rows}
    if not with_plain:
        return out | {"plain": "skipped: time"}
    try:
        plain, plain_peak = seconds(lambda: run(plain_logp, max(1, rows // 4)), device)
    except torch.OutOfMemoryError:
        return out | {"plain": "out of memory"}
    more = {"plain_seconds": plain, "ratio": plain / ours, "plain_peak_bytes": plain_peak}
    return out | more | {"plain_rows": max(1, rows // 4)}


def limits(device, dtype, toy):
    """What copies and products of large blocks reach here."""
    size = 1 << 20 if toy else 1 << 28
    a, b = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    copy, _ = seconds(lambda: [b.copy_(a) for _ in range(10)], device)
    m = 128 if toy else 8192
    x, y = (torch.randn(m, m, device=device, dtype=dtype) for _ in range(2))
    product, _ = seconds(lambda: [x @ y for _ in range(10)], device)
    return {"copy_bytes_per_s": 20 * size / copy, "flops_per_s": 20 * m**3 / product}


def shares(policy, case, n, prompt, answer, reach):
    """Least bytes and operations over what the device reaches, of the seconds taken."""
    config = policy.model.config
    weights = sum(p.numel() for p in policy.model.parameters())
    size = policy.model.dtype.itemsize
    width = config.hidden_size // config.num_attention_heads
    kv = 2 * config.num_hidden_layers * config.num_key_value_heads * width * size
    read = answer * (weights * size + prompt * kv) + n * kv * answer * (answer - 1) // 2
    decode, trained = case["generation"]["seconds"], case["update"]["seconds"]
    return {
        "decode_share_of_bandwidth": read / reach["copy_bytes_per_s"] / decode,
        "decode_share_of_products": 2 * weights * n * answer / reach["flops_per_s"] / decode,
        "update_share_of_products": 6 * weights * n * answer / reach["flops_per_s"] / trained,
        "generation_share_of_step": decode / (decode + trained),
    }


def measure(name, device, dtype, clock, reach, budget, say):
    policy = policy_of(name, device, dtype)
    rows = {"0.1B": 16, "1.5B": 4, "toy": 4}[name]
    slowest = 0.0  # seconds a token of the cases so far, comparisons included
    for n, prompt_tokens, answer in PLANS[name]:
        expected = slowest * n * answer
        key = {"model": name, "n": n, "prompt": prompt_tokens, "answer": answer}
        if expected > clock.left() - 10:
            say(key | {"skipped": f"needs about {expected:.0f} s, {clock.left():.0f} s are left"})
            continue
        start, prompt = time.perf_counter(), prompt_of(policy, prompt_tokens)
        compare = n <= 256 or name == "toy"  # peers at the widest take the whole time
        case = {
            "generation": generation(policy, n, prompt, answer, device, budget, compare),
            "update": update(policy, n, prompt, answer, device, rows, n <= 128),
        }
        say(key | case | {"shares": shares(policy, case, n, prompt_tokens, answer, reach)})
        # A wide case is cheaper a token than a narrow one: an upper estimate for the next.
        slowest = (time.perf_counter() - start) / (n * answer)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="on the CPU, seconds")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    args = parser.parse_args(argv)
    if not args.toy and not torch.cuda.is_available():
        print("benchmarks/gpu.py needs a CUDA device; --toy runs on the CPU", file=sys.stderr)
        return 2
    clock = Clock(args.minutes - 0.25)
    device, dtype = ("cpu", torch.float32) if args.toy else ("cuda", torch.bfloat16)
    budget = 1 << (24 if args.toy else 34)
    result = {
        "device": "cpu" if args.toy else torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "dtype": str(dtype),
        "cases": [],
    }

    def say(entry):
        result["cases"].append(entry)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(entry), flush=True)

    names = ["toy"] if args.toy else ["0.1B", "1.5B"]
    result["limits"] = reach = limits(device, dtype, args.toy)
    result["correctness"] = {names[0]: correctness(names[0], device, dtype, budget)}
    if not args.toy:
        result["correctness"]["0.1B float32"] = correctness("0.1B", device, torch.float32, budget)
    for name in names:
        measure(name, device, dtype, clock, reach, budget, say)
        if device == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps({k: v for k, v in result.items() if k != "cases"}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
