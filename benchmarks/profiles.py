"""Where the time goes: decode and update by torch's profiler, a whole run by pyinstrument."""

from functools import partial

from harness import Side, alternate, stated
from widths import SHAPES, N, case

KINDS = {
    "products with weights": ("mm", "addmm", "linear"),
    "products of attention": ("bmm", "baddbmm"),
    "copies": ("copy", "cat", "index", "index_select", "gather", "fill", "zero", "clone"),
    "softmax, exponents, sums": ("softmax", "_log_softmax", "exp", "exp2", "sum", "amax", "cumsum"),
    "gates, norms, rotations": ("silu", "mul", "add", "sub", "div", "addcmul", "rsqrt", "square"),
}
REST = "everything else, Python between operations too"
FUNCTIONS = {
    "EmbeddedEngine.sample": "sampling",
    "GradingDesk._submit": "handing answers to the graders",
    "GraderPool.gather": "waiting for verdicts, evaluations too",
    "Policy.score": "the update's forward passes",
    "Tensor.backward": "the update's backward passes",
    "AdamW.step": "the optimizer",
    "write_rollouts": "writing rollouts",
    "rollout_rows": "rows of rollouts",
    "step_metrics": "metrics",
    "save_checkpoint": "checkpoints",
    "write_report": "the report",
}
"""Functions of a run, by the name that pyinstrument gives them."""
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def kind_of(operation):
    """Of torch's name of an operation; in-place and backward forms are as the operation itself."""
    if operation.startswith("aten::_scaled_dot_product"):
        return "products of attention"
    plain = operation.removeprefix("aten::").rstrip("_").removesuffix("_backward")
    return KIND_OF.get(plain, REST) if operation.startswith("aten::") else REST


def measure(repeats, threads):
    """Shares of an operation's own time in all, one profiled repeat a reading."""
    figures = []
    for shape in SHAPES:
        for work in ("generation", "update"):
            side = partial(Side, "ours", case(work, shape, profile=True), threads=threads)
            readings = alternate({"ours": side}, repeats)["ours"]
            shares = [_shares(r["operations"]) for r in readings]
            for kind in (*KINDS, REST):
                name = f"{work}, {shape}: {kind}"
                figures.append(stated(name, [s[kind] for s in shares], target=None))
    return figures


def functions(repeats, threads):
    """Shares of whole runs in some functions, with what they call, looked at every millisecond."""
    figures = []
    for policy, steps in (("junk", 8), ("quickstart", 20)):
        c = {"policy": policy, "n": N, "prompts": 2, "steps": steps, "threads": threads}
        side = partial(Side, "training", c | {"functions": list(FUNCTIONS)}, threads=threads)
        seen = [r["functions"] for r in alternate({"run": side}, repeats)["run"]]
        for function, what in FUNCTIONS.items():
            shares = [s[function] / s["whole"] for s in seen]
            name = f"{policy}, N = {N}, {steps} steps: {what} (`{function}`)"
            figures.append(stated(name, shares, target=None))
    return figures


def _shares(operations):
    whole = sum(operations.values())
    found = dict.fromkeys((*KINDS, REST), 0.0)
    for operation, seconds in operations.items():
        found[kind_of(operation)] += seconds / whole
    return found
