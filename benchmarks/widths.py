"""Whole steps, generation and updates at N = 512, beside those of others, on the tiny policy."""

import contextlib
import tempfile
from pathlib import Path

from harness import PYTHONS, Side, alternate, figure

SHAPES = {"200 + 16": (200, 16), "32 + 64": (32, 64)}
"""Tokens of prompt and answer."""
N, ROWS = 512, 64
TARGETS = {"step": {"200 + 16": 8, "32 + 64": 2.5}, "update": {"200 + 16": 8}}


def case(work, shape, n=N, **more):
    prompt, answer = SHAPES[shape]
    return {"work": work, "n": n, "prompt": prompt, "answer": answer, "rows": min(ROWS, n), **more}


def pair(work, shape, threads, n=N, python="main", theirs="hf", **more):
    """The two sides of one figure."""
    c = case(work, shape, n, **more)
    return {
        "brorl": lambda: Side(
            "ours", {k: v for k, v in c.items() if k != "folder"}, threads=threads
        ),
        theirs: lambda: Side(theirs, c, python=python, threads=threads),
    }


def generation(repeats, threads):
    """Against generate(num_return_sequences=N); at N = 1 too."""
    figures = []
    for shape, n, target, times in (
        ("200 + 16", N, 10, repeats),
        ("32 + 64", N, None, repeats),
        ("200 + 16", 1, 1, 10 * repeats),
    ):
        readings = alternate(pair("generation", shape, threads, n), times)
        name = f"tokens/s, N = {n}, {shape} tokens, against Hugging Face generate"
        figures.append(
            figure(name, readings, ours="brorl", theirs="hf", unit="s", target=target)
            | {"tokens": n * SHAPES[shape][1]}
        )
    return figures


def update(repeats, threads):
    """Forward and backward of the same rollouts, the other side in micro-batches of 64 rows.

    Ours in as many tokens a micro-batch, which is what `micro_batch_tokens` sets, and in as many
    rows; memory is compared for both.
    """
    figures = []
    for shape, (prompt, answer) in SHAPES.items():
        rows = min(N, (ROWS * (prompt + answer) - prompt) // answer)
        sides = pair("update", shape, threads)
        by_rows = sides["brorl"]
        many = case("update", shape) | {"rows": rows}
        sides |= {
            "brorl": lambda many=many: Side("ours", many, threads=threads),
            "brorl, equal rows": by_rows,
        }
        readings = alternate(sides, repeats)
        target = TARGETS["update"].get(shape)
        against = "against a padded forward and backward"
        for ours, how, goal in (
            ("brorl", f"{rows} rows a micro-batch, as many tokens as 64 padded ones", target),
            ("brorl, equal rows", "64 rows a micro-batch on both sides", None),
        ):
            both = {"ours": ours, "theirs": "hf"}
            name = f"update, N = {N}, {shape} tokens, {against}: {how}"
            figures.append(figure(name, readings, **both, unit="s", target=goal))
            name = f"growth of peak memory in that update, over the padded one's: {how}"
            memory = {"unit": "bytes", "key": "peak_growth", "at_most": True}
            figures.append(figure(name, readings, **both, **memory))
    return figures


def step(repeats, threads):
    """A training step against TRL's, same weights, lengths, loss and micro-batch; and memory."""
    figures = []
    with _checkpoint() as folder:
        for shape in SHAPES:
            sides = pair("step", shape, threads, python="peers", theirs="trl", folder=folder)
            readings = alternate(sides, repeats)
            both = {"ours": "brorl", "theirs": "trl"}
            name = f"samples/s of a step, N = {N}, {shape} tokens, against TRL"
            target = TARGETS["step"][shape]
            figures.append(figure(name, readings, **both, unit="s", target=target, samples=N))
            name = f"growth of peak memory in a step, N = {N}, {shape} tokens, over TRL's"
            memory = {"unit": "bytes", "key": "peak_growth", "at_most": True, "target": 1 / 3}
            figures.append(figure(name, readings, **both, **memory))
    return figures


def vllm(repeats, threads):
    """Generation against vLLM's CPU build."""
    figures = []
    with _checkpoint() as folder:
        for shape, target in (("200 + 16", 2), ("32 + 64", None)):
            sides = pair(
                "generation", shape, threads, python="vllm", theirs="vllm_cpu", folder=folder
            )
            readings = alternate(sides, repeats)
            name = f"tokens/s, N = {N}, {shape} tokens, against vLLM's CPU build"
            figures.append(
                figure(name, readings, ours="brorl", theirs="vllm_cpu", unit="s", target=target)
            )
    return figures


@contextlib.contextmanager
def _checkpoint():
    """The tiny policy as a folder, for sides that load one."""
    import subprocess

    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import sys; sys.path.insert(0, 'benchmarks/sides'); from pathlib import Path; "
            "from ours import policy_of; from brorl.policy.load import save_policy; "
            f"save_policy(policy_of({{'prompt': 1, 'answer': 1}}), Path({folder!r}))"
        )
        root = Path(__file__).parent.parent
        subprocess.run([str(PYTHONS["main"]), "-c", code], check=True, cwd=root)
        yield folder
