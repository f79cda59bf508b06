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
    """Growth of peak memory of log-probs, forward and backward, of 4,096 tokens over 1,024."""
    c = {"work": "logprobs", "hidden": 576, "vocabulary": 49152}
    few, many = 1024, 4096
    sides = {
        str(tokens): lambda tokens=tokens: Side("ours", c | {"tokens": tokens}, threads=threads)
        for tokens in (few, many)
    }
    grown = {n: r[0]["peak_growth"] for n, r in alternate(sides, 1).items()}
    return stated(
        f"growth of peak memory, log-probs and their backward, {many:,} tokens over {few:,}",
        [grown[str(many)] / grown[str(few)]],
        target=1.25,
        at_most=True,
    ) | {
        "ours": {"side": f"{many:,} tokens", "median": grown[str(many)]},
        "theirs": {"side": f"{few:,} tokens", "median": grown[str(few)]},
        "unit": "bytes",
        "logits_bytes": 4 * many * c["vocabulary"],
    }


def _save(folder):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from brorl.policy.tiny import character_tokenizer

    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", eos_token_id=1, pad_token_id=0, **SHAPE)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
