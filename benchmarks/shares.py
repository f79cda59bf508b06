"""What of a wide step is not the model's: grading, recording, reporting."""

from functools import partial

from harness import Side, alternate, stated
from widths import N, case

MATH = "32 + 64"


def measure(repeats, threads):
    """Shares of a step; the answers of the first are ordinary math, those of the others words."""
    return [_grading(repeats, threads), *_run(repeats, threads)]


def _grading(repeats, threads):
    """512 math answers judged in the trainer's own process, over a step of so many answers.

    A step hands them to other processes while it samples; here nothing is hidden.
    """
    c = case("step", MATH)
    sides = {
        "step": partial(Side, "ours", c, threads=threads),
        "grade": partial(Side, "ours", c | {"work": "grade"}, threads=threads),
    }
    readings = alternate(sides, 3 * repeats)
    shares = [
        g["grading"] / s["wall"] for g, s in zip(readings["grade"], readings["step"], strict=True)
    ]
    return stated(
        f"grading {N} math answers, over a step of {N} answers, {MATH} tokens",
        shares,
        target=0.05,
        at_most=True,
    )


def _run(repeats, threads):
    """Shares in whole runs, saved, recorded and reported as the quickstart says."""
    figures = []
    for name, policy, steps, target in (
        ("tiny policy, junk of 64 tokens", "junk", 8, {"grade": 0.05, "recording": 0.03}),
        (
            "quickstart, 0.14 M weights, words",
            "quickstart",
            20,
            dict.fromkeys(("grade", "recording")),
        ),
    ):
        c = {"policy": policy, "n": N, "prompts": 2, "steps": steps, "threads": threads}
        readings = alternate({"run": partial(Side, "training", c, threads=threads)}, repeats)["run"]
        for key, what in (
            ("grade", "waiting for grades"),
            ("recording", "recording and reporting"),
        ):
            shares = [r[key] / r["inside"] for r in readings]
            seconds = sum(r[key] for r in readings) / len(readings)
            figures.append(
                stated(
                    f"{what} over the steps of a run, N = {N}, {steps} steps: {name}",
                    shares,
                    target=target[key],
                    at_most=True,
                )
                | {"mean_s": seconds}
            )
    return figures
