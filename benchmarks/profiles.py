"""Where the time of decode and update goes, by torch's profiler: why a limit is missed."""

from functools import partial

from harness import Side, alternate, stated
from widths import SHAPES, case

KINDS = {
    "products with weights": ("mm", "addmm", "linear"),
    "products of attention": ("bmm", "baddbmm"),
    "copies": ("copy", "cat", "index", "index_select", "gather", "fill", "zero", "clone"),
    "softmax, exponents, sums": ("softmax", "_log_softmax", "exp", "exp2", "sum", "amax", "cumsum"),
    "gates, norms, rotations": ("silu", "mul", "add", "sub", "div", "addcmul", "rsqrt", "square"),
}
REST = "everything else, Python between operations too"
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


def _shares(operations):
    whole = sum(operations.values())
    found = dict.fromkeys((*KINDS, REST), 0.0)
    for operation, seconds in operations.items():
        found[kind_of(operation)] += seconds / whole
    return found
