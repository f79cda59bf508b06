"""The tables of docs/planning.md: minutes on paper against published and measured ones.

`python docs/render_planning.py` renders them; `--measure` first measures steps of a small policy on
this machine (about five minutes on one core) and writes docs/results/planning.json; `--check` only
says whether the document is current. Measured seconds are processor seconds of the training
process, phase by phase: waiting for another program on the machine is not in them.
"""

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import blocks
import numpy as np

from brorl.train.plan import model_shape
from brorl.train.plan_time import DEVICES, Device, Length, Load, TimePlan, operations, plan_time
from brorl.train.recipe import load_recipe
from brorl.train.settings import ShapeSettings, TrainSettings

RESULT = Path(__file__).with_name("results") / "planning.json"

# arXiv:2510.01180v1, tables 1 and 2: hours over steps, samples before the filter over steps and
# over the throughput of generation, kept samples.
PAPER = {
    "ProRL, N = 16": {
        "recipe": "prorl", "generated": 10_439e3 / 535, "kept": 512 * 16,
        "generate_min": 10_439e3 / 535 / 36.5 / 60, "step_min": 133.8 * 60 / 535,
    },
    "BroRL, N = 512": {
        "recipe": "brorl", "generated": 20_039e3 / 191, "kept": 128 * 512,
        "generate_min": 20_039e3 / 191 / 72.4 / 60, "step_min": 173.8 * 60 / 191,
    },
}  # fmt: skip
DEVICE_COUNT, PROMPT = 64, 1024
"""64 H100 (section 4.2); tokens of a prompt as the recipes import them."""

# Shapes of Qwen2.5-7B and Qwen2.5-32B from their config.json (unverified); untied.
LARGER = {
    "7 B": ShapeSettings(
        architecture="qwen2", layers=28, hidden=3584, heads=28, kv_heads=4, mlp=18_944,
        vocabulary=152_064, max_positions=32_768, tied=False,
    ),
    "32 B": ShapeSettings(
        architecture="qwen2", layers=64, hidden=5120, heads=40, kv_heads=8, mlp=27_648,
        vocabulary=152_064, max_positions=32_768, tied=False,
    ),
}  # fmt: skip

WIDTHS, KNOWN = (8, 16, 32, 64, 128), (8, 32)
"""Measured widths; constants are solved from the two in KNOWN, the others are predicted."""
SHAPE: dict[str, Any] = {
    "architecture": "llama", "layers": 3, "hidden": 128, "heads": 4, "kv_heads": 4, "mlp": 512,
    "vocabulary": 100, "max_positions": 256, "tied": True,
}  # fmt: skip
STEPS, PROMPTS, NEW = 4, 4, 32
TEMPLATE = "write the letters of this word in the reverse order, and nothing else. {word}="


def paper_plan(arm: dict[str, Any], shape: ShapeSettings | None = None) -> TimePlan:
    """An arm of the paper, or the same set-up with a larger model."""
    s = load_recipe(arm["recipe"], [])
    load = Load(PROMPT, s.rollout.max_new_tokens / 2, arm["kept"] / arm["generated"])
    device = DEVICES["h100"]
    return plan_time(s, shape or model_shape(s), device, load, devices=DEVICE_COUNT)


def paper_table() -> str:
    """Predicted and published minutes of both arms."""
    lines = [
        "| arm | | predicted, min | from the paper, min | residual |",
        "|---|---|---|---|---|",
    ]
    rates = []
    for name, arm in PAPER.items():
        found = paper_plan(arm)
        rates.append((found.to_json()["generated_samples_per_s"], 60))
        other = arm["step_min"] - arm["generate_min"]
        for what, ours, theirs in (
            ("generation", found.generate_min, arm["generate_min"]),
            ("everything else (solved, see below)", found.update_min + found.fixed_min, other),
            ("step", found.total_min, arm["step_min"]),
        ):
            lines.append(
                f"| {name} | {what} | {ours:.1f} | {theirs:.1f} | {_residual(ours, theirs)} |"
            )
    ratio = rates[1][0] / rates[0][0]
    lines.append(
        f"| both | samples/s of generation, wide over narrow | {ratio:.2f} | {72.4 / 36.5:.2f} | "
        f"{_residual(ratio, 72.4 / 36.5)} |"
    )
    return "\n".join(lines)


def solved_constants() -> str:
    """What the paper's two arms make of update_share and fixed_s."""
    arms = list(PAPER.values())
    s = load_recipe("brorl", [])
    length = Length(s.rollout.max_new_tokens / 2, s.rollout.max_new_tokens)
    ops = operations(s, model_shape(s), length, PROMPT, recompute=True) * length.mean
    narrow, wide = (arm["step_min"] - arm["generate_min"] for arm in arms)
    each_s = 60 * (wide - narrow) / (arms[1]["kept"] - arms[0]["kept"])
    share = ops / (each_s * DEVICE_COUNT * DEVICES["h100"].arithmetic)
    fixed = 60 * narrow - each_s * arms[0]["kept"]
    used = DEVICES["h100"]
    return (
        f"Everything else takes {narrow:.1f} and {wide:.1f} minutes: {1000 * each_s:.1f} ms for "
        f"each further kept sample and {fixed:.0f} s for none. With {ops / 1e12:,.0f} T operations "
        f"a sample that is a share of {share:.3f} of the arithmetic; the planner uses "
        f"{used.update_share:g} and {used.fixed_s:g} s."
    )


def larger_table() -> str:
    """The paper's wide set-up for larger models."""
    arm = PAPER["BroRL, N = 512"]
    plans = {"1.5 B": paper_plan(arm)} | {n: paper_plan(arm, shape) for n, shape in LARGER.items()}
    rows: list[tuple[str, Callable[[TimePlan], str]]] = [
        ("weights, one copy, GB", lambda t: f"{t.weights_bytes / 1e9:,.1f}"),
        (
            "training state a device, GB",
            lambda t: f"{t.training_state_bytes_per_device / 1e9:,.1f}",
        ),
        ("devices an engine", lambda t: f"{t.devices_per_engine}"),
        ("cache a token, KiB", lambda t: f"{t.kv_bytes_per_token / 1024:,.0f}"),
        ("cache pages of 16 tokens an engine", lambda t: f"{t.kv_pages_per_engine:,}"),
        ("rows at once an engine", lambda t: f"{t.rows_at_once_per_engine:,}"),
        ("rounds · waves a round", lambda t: f"{t.rounds} · {t.waves_per_round:.1f}"),
        ("minutes: generate", lambda t: f"{t.generate_min:,.0f}"),
        ("minutes: update", lambda t: f"{t.update_min:,.0f}"),
        ("minutes: fixed", lambda t: f"{t.fixed_min:,.1f}"),
        ("minutes a step", lambda t: f"{t.total_min:,.0f}"),
        ("kept samples/s", lambda t: f"{t.to_json()['kept_samples_per_s']:,.1f}"),
    ]
    lines = [f"| | {' | '.join(plans)} |", f"|---|{'---|' * len(plans)}"]
    lines += [f"| {name} | {' | '.join(map(show, plans.values()))} |" for name, show in rows]
    return "\n".join(lines)


def own_table() -> str:
    """Measured steps of a small policy against predictions from two narrow widths."""
    result = json.loads(RESULT.read_text())
    device, points = own_device(result), result["points"]
    lines = [
        "| N | generate, s | predicted | residual | the rest, s | predicted | residual |",
        "|---|---|---|---|---|---|---|",
    ]
    for point in points:
        found = own_plan(point, device)
        ours = (60 * found.generate_min, 60 * (found.update_min + found.fixed_min))
        cells = [
            f"{seen:.2f} | {said:.2f} | "
            f"{'solved' if point['n'] in KNOWN else _residual(said, seen)}"
            for said, seen in zip(ours, (point["generate_s"], point["rest_s"]), strict=True)
        ]
        lines.append(f"| {point['n']} | {' | '.join(cells)} |")
    made = result["made"]
    lines.append(
        f"\nProcessor seconds a step, medians of {STEPS - 1} steps; {PROMPTS} prompts, answers of "
        f"up to {NEW} tokens, a Llama of {made['parameters']:,} parameters in float32, one thread, "
        f"{made['machine']}, torch {made['torch']}. Products of the layers' shape run at "
        f"{made['arithmetic'] / 1e9:.0f} G operations/s and reads at "
        f"{made['bandwidth'] / 1e9:.1f} GB/s; solved from N = {KNOWN[0]} and {KNOWN[1]}: "
        f"{1000 * device.latency_s:.1f} ms a decode step, {device.decode_share:.2f} of bandwidth "
        f"and arithmetic in decoding, {device.update_share:.2f} of the arithmetic in updates, "
        f"{device.fixed_s:.2f} s fixed."
    )
    return "\n".join(lines)


def own_device(result: dict[str, Any]) -> Device:
    """Constants of the measuring machine, solved from the points of KNOWN; both phases are linear.

    generate = A · latency + B / decode_share, rest = C / update_share + fixed.
    """
    made = result["made"]
    base = Device("cpu", 1e15, made["bandwidth"], made["arithmetic"], 1.0, 1.0, 0.0, 0.0)
    known = [p for p in result["points"] if p["n"] in KNOWN]
    plain = [own_plan(p, base) for p in known]
    waiting = [own_plan(p, replace(base, latency_s=1.0)) for p in known]
    steps = [60 * (w.generate_min - p.generate_min) for w, p in zip(waiting, plain, strict=True)]
    latency, slowness = np.linalg.solve(
        np.array([[a, 60 * p.generate_min] for a, p in zip(steps, plain, strict=True)]),
        np.array([p["generate_s"] for p in known]),
    )
    more, fixed = np.linalg.solve(
        np.array([[60 * p.update_min, 1.0] for p in plain]),
        np.array([p["rest_s"] for p in known]),
    )
    return replace(
        base,
        latency_s=float(latency),
        decode_share=float(1 / slowness),
        update_share=float(1 / more),
        fixed_s=float(fixed),
    )


def own_plan(point: dict[str, Any], device: Device) -> TimePlan:
    """The planner on a measured point's set-up."""
    s = own_settings(point["n"])
    load = Load(point["prompt_tokens"], point["answer_tokens"], 1.0)
    return plan_time(s, ShapeSettings(**SHAPE), device, load, devices=1, recompute=False)


def own_overrides(n: int) -> list[str]:
    """The quickstart with a larger policy, no learning to speak of, and little around the steps."""
    shape = ", ".join(f"{k}: {str(v).lower()}" for k, v in SHAPE.items())
    return [
        f"model.shape={{{shape}}}", f"task.prompt={TEMPLATE}", "warmstart=null", f"rollout.n={n}",
        f"rollout.max_new_tokens={NEW}", f"prompts_per_step={PROMPTS}", f"steps={STEPS}",
        "dynamic_sampling.enable=false", "eval_every=null", "eval.problems=2", "eval.samples=2",
        "lr=1.0e-9", "logger=[]", "threads=1", "save_every=100", "record.tokens=none",
    ]  # fmt: skip


def own_settings(n: int) -> TrainSettings:
    """Of a measured point."""
    return load_recipe("quickstart", own_overrides(n))


def measure() -> None:
    """Product and copy rates, then a run of STEPS steps at each width.

    The trainer's clock is the wall clock; here it is the processor's, before any of it is imported.
    """
    time.perf_counter = time.process_time
    import torch

    from brorl.train.api import train
    from brorl.train.plan import parameters

    torch.set_num_threads(1)
    points = []
    with tempfile.TemporaryDirectory() as folder:
        for n in WIDTHS:
            run = Path(folder) / f"n{n}"
            train("quickstart", [*own_overrides(n), f"run_dir={run}"])
            points.append(_point(n, run))
            print(points[-1], file=sys.stderr)
    made = {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "parameters": parameters(ShapeSettings(**SHAPE)),
        "arithmetic": _product_rate(torch),
        "bandwidth": _copy_rate(torch),
    }
    RESULT.write_text(json.dumps({"made": made, "points": points}, indent=1) + "\n")


def _point(n: int, run: Path) -> dict[str, Any]:
    """Medians over the steps but the first."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][2:]
    generate, rest = [], []
    for row in rows:
        generate.append(row["time/generate"])
        rest.append(sum(row[f"time/{phase}"] for phase in ("grade", "update", "other")))
    return {
        "n": n,
        "prompt_tokens": len(TEMPLATE.format(word="letters")),
        "answer_tokens": statistics.mean(row["response/length_mean"] for row in rows),
        "generate_s": round(statistics.median(generate), 4),
        "rest_s": round(statistics.median(rest), 4),
    }


def _product_rate(torch: Any) -> float:
    """Operations a processor second of [1024, hidden] · [hidden, mlp]."""
    a, b = torch.randn(1024, SHAPE["hidden"]), torch.randn(SHAPE["hidden"], SHAPE["mlp"])
    return 2 * 1024 * SHAPE["hidden"] * SHAPE["mlp"] / _seconds(lambda: a @ b)


def _copy_rate(torch: Any) -> float:
    """Bytes read a processor second, from a tensor larger than any cache."""
    x = torch.zeros(1 << 26)
    return 4 * (1 << 26) / _seconds(lambda: x.sum())


def _seconds(work: Callable[[], Any]) -> float:
    """Least processor seconds of five times ten calls."""
    found = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(10):
            work()
        found.append((time.process_time() - start) / 10)
    return min(found)


def _residual(ours: float, theirs: float) -> str:
    per_cent = round(100 * (ours / theirs - 1))
    return f"{per_cent:+d} %".replace("-", "−") if per_cent else "0 %"


def constants() -> str:
    """The devices that the planner knows."""
    lines = [
        "| device | memory, GB | bandwidth, TB/s | bf16 arithmetic, T operations/s |",
        "|---|---|---|---|",
    ]
    for d in DEVICES.values():
        lines.append(
            f"| {d.name} | {d.memory / 1e9:.0f} | {d.bandwidth / 1e12:.2f} | "
            f"{d.arithmetic / 1e12:.0f} |"
        )
    shared = asdict(DEVICES["h100"])
    lines.append(
        f"\nFor all of them: {shared['decode_share']:g} of bandwidth and arithmetic in decoding, "
        f"{1000 * shared['latency_s']:g} ms of latency a decode step, {shared['memory_share']:g} "
        f"of the memory for weights and cache, {shared['update_share']:g} of the arithmetic in "
        f"updates, {shared['fixed_s']:g} s a step."
    )
    return "\n".join(lines)


BLOCKS: blocks.Blocks = {
    "planning-devices": constants,
    "planning-paper": paper_table,
    "planning-solved": solved_constants,
    "planning-larger": larger_table,
    "planning-own": own_table,
}
documents = partial(blocks.documents, BLOCKS)


def rendered(page: str) -> str:
    """The page with the blocks of this script rendered anew."""
    return blocks.fill(page, BLOCKS)


if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS, measure))
