"""How far decode and update are from what this machine's matrix products and memory reach."""

import statistics
from functools import partial

from harness import Side, alternate, stated
from widths import SHAPES, N, case


def measure(repeats, threads):
    """Time of the layers' products alone, at the same shapes, over the time of the whole."""
    figures = []
    for shape, (_, answer) in SHAPES.items():
        decode = {"work": "products", "tokens": N, "times": answer - 1, "backward": False}
        update = {"work": "products", "tokens": 64 * (answer - 1), "times": N // 64}
        for work, product, target in (
            ("generation", decode, 0.5),
            ("update", update | {"backward": True}, 0.5),
        ):
            sides = {
                "whole": partial(Side, "ours", case(work, shape), threads=threads),
                "products": partial(Side, "ours", product, threads=threads),
                "copies": partial(
                    Side, "ours", {"work": "copies", "bytes": 64 << 20}, threads=threads
                ),
            }
            readings = alternate(sides, repeats)
            shares = [
                p["wall"] / w["wall"]
                for p, w in zip(readings["products"], readings["whole"], strict=True)
            ]
            rate = statistics.median(r["flops"] / r["wall"] for r in readings["products"])
            bandwidth = statistics.median(r["bytes"] / r["wall"] for r in readings["copies"])
            seconds = statistics.median(r["wall"] for r in readings["whole"])
            reach = {"products_flops_per_s": rate, "copy_bytes_per_s": bandwidth}
            least = _least_bytes(work, shape)
            figures.append(
                stated(f"share of the matrix-product rate, {work}, {shape}", shares, target=target)
                | reach
                | {"tokens_per_s": N * answer / seconds}
            )
            figures.append(
                stated(
                    f"share of memory bandwidth, {work}, {shape}",
                    [least / bandwidth / r["wall"] for r in readings["whole"]],
                    target=None,
                )
                | {"bytes": least}
            )
    return figures


def _least_bytes(work, shape):
    """Bytes that must move: weights once a token step (thrice in an update), own keys and values.

    996,992 float32 weights; 4 layers x 2 x 64 numbers of keys and values a token.
    """
    prompt, answer = SHAPES[shape]
    weights, kv_token = 4 * 996_992, 4 * 4 * 2 * 64
    if work == "generation":
        own = sum(N * t * kv_token for t in range(answer))
        return answer * (weights + prompt * kv_token) + own
    return (N // 64) * (3 * weights + 3 * prompt * kv_token) + 3 * N * answer * kv_token
