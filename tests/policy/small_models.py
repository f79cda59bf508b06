"""Small models and tokenizers for tests, and one plain way to score with them.

The models are sharp: with an initial scale of 0.25 a wrong position, mask or group costs whole
nats, where Hugging Face's 0.02 would hide it among rounding errors.
"""

import numpy as np
import torch
from tokenizers import processors
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from brorl.policy.model import Policy
from brorl.policy.tiny import character_tokenizer

VOCABULARY = 37
EOS = 1

ARCHITECTURES = {
    "llama, MHA, tied": ("llama", {"num_key_value_heads": 4}),
    "llama, GQA, untied": ("llama", {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    "llama, MQA, biases": ("llama", {"num_key_value_heads": 1, "attention_bias": True}),
    "qwen2, GQA, tied": ("qwen2", {"num_key_value_heads": 2}),
    "qwen2, MHA, untied": ("qwen2", {"num_key_value_heads": 4, "tie_word_embeddings": False}),
    "gpt2, tied": ("gpt2", {}),
    "gpt2, untied": ("gpt2", {"tie_word_embeddings": False}),
    "phi, a head with a bias": ("phi", {"tie_word_embeddings": False}),
    "gpt2, scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
}


def model_of(architecture, seed=0, **config):
    """A stock model of 2 layers, width 32, 4 heads, float32, in evaluation mode."""
    base = {
        "vocab_size": VOCABULARY,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "initializer_range": 0.25,
    }
    if architecture == "gpt2":
        base |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 64, "n_positions": 64}
        base |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    else:
        base |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        base |= {"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(architecture, **(base | config)), dtype=torch.float32
        )
    with torch.no_grad():  # zeros by default, and a zero bias hides a bias that is left out
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.25, generator=torch.Generator().manual_seed(seed))
    return made.eval()


def policy_of(architecture="llama", *, eos=(EOS,), tokenizer=None, seed=0, **config):
    return Policy(
        model_of(architecture, seed, **config), tokenizer, frozenset(eos), f"test {architecture}"
    )


def named_policy(name, **more):
    architecture, config = ARCHITECTURES[name]
    return policy_of(architecture, **config, **more)


def plain(policy, prompt, answer, temperature=1.0):
    """(log-probs, entropies) [T] of one answer: one ordinary forward of one row, no padding."""
    ids = torch.tensor([[*prompt, *answer]])
    logits = policy.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    logp = (logits.double() / temperature).log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    return logp[torch.arange(len(answer)), torch.tensor(list(answer))], entropy


def plain_rows(policy, prompts, groups, answers, temperature=1.0):
    """`plain` of many rows, one forward each: (log-probs [M], entropies [M])."""
    scored = [
        plain(policy, prompts[g], a, temperature) for g, a in zip(groups, answers, strict=True)
    ]
    return torch.cat([s[0] for s in scored]), torch.cat([s[1] for s in scored])


class Sizes(TorchDispatchMode):
    """Numbers in the largest tensor that any operation made while it was on."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor):
                # A view made by expand() holds no more than its storage.
                held = x.untyped_storage().nbytes() // x.element_size()
                self.largest = max(self.largest, min(x.numel(), held))
        return out


def tokenizer_of(*, bos=None, closes=False, template=None, eos=True):
    """The character tokenizer, with habits of other tokenizers.

    bos: a token that it puts before every text; closes: it puts the EOS after every text.
    """
    made = character_tokenizer()
    if bos is not None:
        made.add_special_tokens({"bos_token": bos})
    before = f"{bos} " if bos is not None else ""
    after = " <eos>" if closes else ""
    if before or after:
        special = [(t, made.convert_tokens_to_ids(t)) for t in {bos, "<eos>"} if t is not None]
        made.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{before}$A{after}", special_tokens=special
        )
    made.chat_template = template
    if not eos:
        made.eos_token = None
    return made


def ragged(rng, sizes, prompt_lengths, most=6, vocabulary=VOCABULARY):
    """Random prompts and answers: (prompts, group of each row, answers of 1 to `most` tokens)."""
    prompts = [rng.integers(2, vocabulary, n).tolist() for n in prompt_lengths]
    groups = [g for g, n in enumerate(sizes) for _ in range(n)]
    lengths = rng.integers(1, most + 1, len(groups))
    lengths[0], lengths[-1] = 1, most  # an answer of one token, and the longest
    return prompts, groups, [rng.integers(0, vocabulary, n).tolist() for n in lengths]


def padded(answers, fill=0):
    """(tokens [R, T], lengths [R]), padded on the right."""
    lengths = torch.tensor([len(a) for a in answers])
    tokens = np.full((len(answers), int(lengths.max())), fill, dtype=np.int64)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer)] = answer
    return torch.from_numpy(tokens), lengths
