"""What a run adds to memory above its imports, from settings and the model's shape alone.

docs/models.md compares it with runs on the CPU (docs/measure_memory.py).
"""

from math import ceil

from brorl.train.settings import ShapeSettings, TrainSettings

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CHUNK_ELEMENTS = 1 << 22
"""Logits of one log-prob chunk (policy.token_logprobs), in numbers."""
PIECE_ELEMENTS, GPU_PIECE_ELEMENTS = 1 << 19, 1 << 26
"""Gates made at once (policy.layer_halves); auto counts as the CPU, 1 GB off at most."""
PIECE_TOKENS = 512
"""But of so many tokens at least."""
FUSED = {"llama", "qwen2", "mistral"}
"""Kinds of layers that keep less for the backward pass (policy.fused_layer)."""
PROCESS = 64 << 20
"""Bytes that any run adds: tokenizer, groups and records as Python objects, Parquet, the page."""


def parameters(shape: ShapeSettings) -> int:
    """Number of weights: embeddings, attention, feed-forward, norms; biases left out.

    embeddings V·H (twice if untied) + positions (GPT-2) + layers · [ H·(heads + 2·kv)·D + heads·D·H
    + 3·H·M (gated; 2·H·M for GPT-2) + 2·H ] + H
    """
    h, width = shape.hidden, shape.hidden // shape.heads
    gpt2 = shape.architecture == "gpt2"
    attention = h * width * (shape.heads + 2 * shape.kv_heads) + shape.heads * width * h
    layer = attention + (2 if gpt2 else 3) * h * shape.mlp + 2 * h
    embeddings = shape.vocabulary * h * (1 if shape.tied else 2)
    return embeddings + shape.layers * layer + h + (shape.max_positions * h if gpt2 else 0)


def adapter_parameters(shape: ShapeSettings, rank: int) -> int:
    """Weights of an adapter on every linear map of the layers: rank · (in + out) each."""
    h, width = shape.hidden, shape.hidden // shape.heads
    attention = 2 * (h + shape.heads * width) + 2 * (h + shape.kv_heads * width)
    mlp = (2 if shape.architecture == "gpt2" else 3) * (h + shape.mlp)
    return rank * shape.layers * (attention + mlp)


def memory_parts(
    s: TrainSettings, shape: ShapeSettings, prompt_tokens: int
) -> tuple[dict[str, int], int]:
    """Bytes by part, and rows per sampling wave.

    Sampling and update do not overlap, so the total takes the larger of the two.
    """
    size = BYTES[s.model.dtype]
    weights = parameters(shape) * size
    trained = parameters(shape) if s.lora is None else adapter_parameters(shape, s.lora.rank)
    masters = s.model.master_dtype == "float32" and size < 4
    rows = wave_rows(s, shape, prompt_tokens)
    width = shape.hidden // shape.heads
    kv_token = 2 * shape.layers * shape.kv_heads * width * size
    rows_used = min(rows, s.prompts_per_step * s.rollout.widest * _oversample(s))
    own = trained * size if s.lora is not None else 0
    parts = {
        "weights": weights + own,
        "gradients": trained * (4 if masters else size),
        "optimizer": trained * (12 if masters else 2 * size),
        "reference": (own or weights) if s.kl_coef > 0 else 0,
        "kv_cache": rows_used * kv_token * s.rollout.max_new_tokens
        + _oversample(s) * s.prompts_per_step * kv_token * prompt_tokens,
        "sampling": rows_used
        * (12 * shape.heads * (prompt_tokens + s.rollout.max_new_tokens) + 32 * shape.vocabulary),
        "activations": _activations(s, shape, prompt_tokens),
        "logprob_chunks": 4 * 4 * _chunk(s, shape, prompt_tokens),
        # the embedding's gradient, dense, before it is added to the head's or to an older one
        "embedding_gradient": 0 if s.lora is not None else shape.vocabulary * shape.hidden * size,
        "rollouts": s.samples_per_step * (400 + 9 * s.rollout.max_new_tokens),
        "process": PROCESS,
    }
    sampling = parts["kv_cache"] + parts["sampling"]
    backward = ("activations", "logprob_chunks", "gradients", "embedding_gradient")
    updating = sum(parts[p] for p in backward)
    fixed = sum(parts[p] for p in ("weights", "optimizer", "reference", "rollouts", "process"))
    return parts | {"total": fixed + max(sampling, updating)}, rows


def wave_rows(s: TrainSettings, shape: ShapeSettings, prompt_tokens: int) -> int:
    """Answers sampled at once: the rule of rollout.embedded.rows_per_wave, from the shape."""
    width = shape.hidden // shape.heads
    new = s.rollout.max_new_tokens
    own = 2 * shape.layers * shape.kv_heads * width * new * BYTES[s.model.dtype]
    scores = 12 * shape.heads * (prompt_tokens + new)
    return max(1, s.rollout.memory_budget // (own + scores + 32 * shape.vocabulary))


def _micro_tokens(s: TrainSettings, prompt_tokens: int) -> int:
    """Tokens of the largest micro-batch: the budget, or a whole mini-batch with its prompts."""
    answers = ceil(s.samples_per_step / s.num_minibatches) * s.rollout.max_new_tokens
    return min(s.micro_batch_tokens, answers + s.prompts_per_step * prompt_tokens)


def _chunk(s: TrainSettings, shape: ShapeSettings, prompt_tokens: int) -> int:
    """Logits held at once, in numbers: a row at least, all tokens at most."""
    most = max(CHUNK_ELEMENTS, shape.vocabulary)
    return min(most, _micro_tokens(s, prompt_tokens) * shape.vocabulary)


def _activations(s: TrainSettings, shape: ShapeSettings, prompt_tokens: int) -> int:
    """What one micro-batch holds at the start of its backward pass, bytes.

    Per token and layer 4 H + 2 K·D + 2 F numbers where we know the layer, about 14 H + 4 F where
    we do not (7 F under GPT-2's GELU, made of single operations), H where layers are run again;
    and per token once what a layer's own backward makes (4 H, 4 F of a piece or, where we do not
    know the layer, of all tokens; a whole layer that is run again) and 3 H around the head.
    """
    size, h, f = BYTES[s.model.dtype], shape.hidden, shape.mlp
    tokens = _micro_tokens(s, prompt_tokens)
    keys = 2 * shape.kv_heads * (h // shape.heads)
    fused = shape.architecture in FUSED and s.lora is None
    stock = 14 * h + (7 if shape.architecture == "gpt2" else 4) * f
    layer = 4 * h + keys + 2 * f if fused else stock
    once, at_once = 4 * h + 3 * h, tokens
    if s.model.gradient_checkpointing:
        once, layer = once + layer, h
    elif fused:
        on_gpu = s.model.device.startswith("cuda")
        elements = GPU_PIECE_ELEMENTS if on_gpu else PIECE_ELEMENTS
        at_once = min(tokens, max(PIECE_TOKENS, elements // f))
    return (tokens * (shape.layers * layer + once) + at_once * 4 * f) * size


def _oversample(s: TrainSettings) -> int:
    return ceil(s.dynamic_sampling.oversample) if s.dynamic_sampling.enable else 1
