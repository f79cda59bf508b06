"""The same comparisons on a model of SmolLM2-135M's shape, N = 64: a vocabulary of 49,152.

The shape alone decides speed and memory, so that random weights serve where the model is not at
hand: 30 layers, width 576, 9 heads of which 3 hold keys and values, feed-forward 1,536, tied.
"""

import tempfile
from pathlib import Path

from harness import Side, alternate, figure, stated

SHAPE = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
N, PROMPT, ANSWER, ROWS = 64, 64, 8, 16


def measure(repeats, threads):
    """Generation and update against Hugging Face alone; memory of the log-probs by the chunk."""
    repeats = max(1, repeats - 1)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        _save(Path(folder))
        c = {"n": N, "prompt": PROMPT, "answer": ANSWER, "rows": ROWS, "model": folder}
        for work in ("generation", "update"):
            both = {
                "brorl": lambda work=work: Side("ours", c | {"work": work}, threads=threads),
                "hf": lambda work=work: Side("hf", c | {"work": work}, threads=threads),
            }
            readings = alternate(both, repeats)
            name = f"{work}, SmolLM2-135M's shape, N = {N}, {PROMPT} + {ANSWER} tokens, against HF"
            figures.append(figure(name, readings, ours="brorl", theirs="hf", unit="s"))
            name = f"growth of peak memory, {work}, SmolLM2-135M's shape, over HF's"
            figures.append(
                figure(
                    name,
                    readings,
                    ours="brorl",
                    theirs="hf",
                    unit="bytes",
                    key="peak_growth",
                    at_most=True,
                )
            )
    return [*figures, _chunk(threads)]


def _chunk(threads):
    """Growth of peak memory of log-probs of 1,024 tokens, over the logits of all of them."""
    c = {"work": "logprobs", "tokens": 1024, "hidden": 576, "vocabulary": 49152}
    grown = alternate({"brorl": lambda: Side("ours", c, threads=threads)}, 1)["brorl"]
    logits = 4 * c["tokens"] * c["vocabulary"]
    weight_gradient = 4 * c["hidden"] * c["vocabulary"]
    bytes_used = grown[0]["peak_growth"] - weight_gradient
    return stated(
        "memory of log-probs, forward and backward, 1,024 tokens, over one copy of their logits",
        [bytes_used / logits],
        target=None,
        at_most=True,
    ) | {"bytes": bytes_used, "logits_bytes": logits}


def _save(folder):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from brorl.policy.tiny import character_tokenizer

    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", eos_token_id=1, pad_token_id=0, **SHAPE)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
