"""What width costs: seconds and memory of a step as N grows, same prompts."""

from functools import partial

from harness import Side, alternate, figure, stated
from widths import case

WIDTHS = (16, 64, 128, 256, 1024)


def measure(repeats, threads):
    """A step at each width, the prompt of 200 tokens and answers of 16, one wave budget."""
    sides = {
        str(n): partial(Side, "ours", case("step", "200 + 16", n, budget=64 << 20), threads=threads)
        for n in WIDTHS
    }
    readings = alternate(sides, repeats)
    curve = {n: _middle([r["wall"] for r in readings[n]]) for n in readings}
    peak = {n: max(r["rss_before"] + r["peak_growth"] for r in readings[n]) for n in readings}
    grown = {n: max(r["peak_growth"] for r in readings[n]) for n in readings}
    time = figure(
        "seconds of a step, N = 1024 over N = 16",
        readings,
        ours="1024",
        theirs="16",
        unit="s",
        target=40,
        at_most=True,
        curve=curve,
    )
    memory = stated(
        "peak memory of a step, N = 1024 over N = 128, at one wave budget",
        [peak["1024"] / peak["128"]],
        target=1.5,
        at_most=True,
    )
    alone = stated(
        "growth of peak memory above imports, model and optimizer, N = 1024 over N = 128",
        [grown["1024"] / grown["128"]],
        target=None,
        at_most=True,
    )
    return [time, memory | {"curve": peak}, alone | {"curve": grown}]


def _middle(values):
    return sorted(values)[len(values) // 2]
