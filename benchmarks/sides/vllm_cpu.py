"""vLLM's CPU build: N answers to one prompt, prefix caching on, weights kept."""

import os

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

from serve import case, prompt_text, serve
from vllm import LLM, SamplingParams


def generation(c):
    llm = LLM(
        c["folder"],
        dtype="float32",
        enforce_eager=True,
        distributed_executor_backend="uni",
        max_num_seqs=c["n"],
        max_model_len=c["prompt"] + c["answer"] + 1,
        seed=0,
    )
    how = SamplingParams(
        n=c["n"], temperature=1.0, max_tokens=c["answer"], ignore_eos=True, detokenize=False
    )
    ids = llm.get_tokenizer().encode(prompt_text(4 * c["prompt"]))[: c["prompt"]]

    def work():
        llm.reset_prefix_cache()  # as after an update
        llm.generate({"prompt_token_ids": ids}, how, use_tqdm=False)

    return work


if __name__ == "__main__":
    serve(generation(case()))
