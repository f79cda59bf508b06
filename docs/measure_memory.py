"""Measure what runs add to memory, and write docs/results/memory.json beside what `plan` says.

    python docs/measure_memory.py [NAME ...]

Each case is a process of its own on one thread: imports, then the peak of resident memory over a
run of one step, saved before and after, less what was resident after the imports. Linux only.
SmolLM2 needs `make smollm2` first.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

RESULT = Path(__file__).with_name("results") / "memory.json"
JUDGE = "def grade(*, gold, answer, row):\n    return ord(answer[0]) % 2 == 0\n"
OWN = {
    "data.train": "rows.jsonl", "data.held_out": 0.2, "data.verifier": "judge.py:grade",
    "task": None, "warmstart": None, "grading.check_golds": 0, "dynamic_sampling.oversample": 1.0,
}  # fmt: skip


def shaped(architecture, layers, hidden, heads, kv_heads, mlp, **changes):
    """Overrides of the quickstart for a new policy of a shape, on own data."""
    shape = {"architecture": architecture, "layers": layers, "hidden": hidden, "heads": heads,
             "kv_heads": kv_heads, "mlp": mlp}  # fmt: skip
    return ["quickstart", OWN | {f"model.shape.{k}": v for k, v in shape.items()} | changes]


CASES = {
    "tiny": ["quickstart", OWN],
    "small": shaped("llama", 4, 256, 4, 2, 1024, **{"rollout.max_new_tokens": 32}),
    "middle, with a reference": shaped(
        "qwen2", 8, 512, 8, 4, 1536, kl_coef=0.01,
        **{"rollout.n": 32, "prompts_per_step": 4, "rollout.max_new_tokens": 32},
    ),
    "large, another kind of layer": shaped(
        "gpt2", 10, 768, 12, 12, 3072,
        **{"rollout.n": 32, "prompts_per_step": 4, "rollout.max_new_tokens": 24},
    ),
    "SmolLM2": ["smollm2", {"prompts_per_step": 2, "eval.problems": 2}],
}  # fmt: skip
SHORT = {"steps": 1, "eval_every": None, "eval.samples": 2, "save_every": 1, "logger": [],
         "threads": 1}  # fmt: skip


def resident(field):
    """VmRSS or VmHWM of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def child(recipe, overrides, prompt_tokens):
    """Run in a process of its own: one JSON object on standard output."""
    import pyarrow.parquet
    import reasoning_gym
    import torch
    import transformers
    from transformers.models.gpt2 import modeling_gpt2
    from transformers.models.llama import modeling_llama
    from transformers.models.qwen2 import modeling_qwen2

    from brorl.train import api
    from brorl.train.plan import plan
    from brorl.train.recipe import load_recipe

    assert all((pyarrow.parquet, reasoning_gym, torch, transformers))
    assert all((modeling_gpt2, modeling_llama, modeling_qwen2))
    Path("judge.py").write_text(JUDGE)
    rows = [json.dumps({"prompt": f"question {i:04d} =", "answer": "x"}) for i in range(64)]
    Path("rows.jsonl").write_text("\n".join(rows) + "\n")
    planned = plan(load_recipe(recipe, overrides), prompt_tokens=prompt_tokens)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    api.train(recipe, overrides | {"run_dir": "run"})
    print(json.dumps({
        "parameters": planned.parameters,
        "after_imports": before,
        "measured": resident("VmHWM") - before,
        "planned": planned.memory_bytes,
    }))  # fmt: skip


def measure(name):
    """One case in a fresh process and folder."""
    recipe, overrides = CASES[name]
    prompt_tokens = 44 if recipe == "smollm2" else 15
    asked = json.dumps([recipe, overrides | SHORT, prompt_tokens])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--child", asked],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found = json.loads(done.stdout.splitlines()[-1])
    ratio = found["planned"]["total"] / found["measured"]
    print(f"{name}: {found['measured'] / 2**20:,.0f} MiB measured, planned {ratio:.2f} of it")
    return {"name": name, "prompt_tokens": prompt_tokens, **found}


def main():
    """The cases named on the command line, or all of them into the result file."""
    if sys.argv[1:2] == ["--child"]:
        child(*json.loads(sys.argv[2]))
        return
    import torch

    names = sys.argv[1:] or list(CASES)
    cases = [measure(name) for name in names]
    if not sys.argv[1:]:
        machine = {"machine": platform.machine(), "torch": torch.__version__}
        RESULT.write_text(json.dumps(machine | {"cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
