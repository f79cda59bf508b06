"""What it saves to run answers that are equal, so far or whole, through the model once."""

from functools import partial

from harness import Side, alternate, figure
from widths import N


def measure(repeats, threads):
    """Steps of the quickstart, whose answers are short and repeat, at its own width and at 512."""
    figures = []
    for n, prompts in ((64, 16), (N, 2)):
        c = {"policy": "quickstart", "n": n, "prompts": prompts, "steps": 10, "threads": threads}
        apart = c | {"without": "repeats"}
        sides = {
            "brorl": partial(Side, "training", c, threads=threads),
            "every row by itself": partial(Side, "training", apart, threads=threads),
        }
        readings = alternate(sides, repeats)
        for key, what in (("generate", "sampling"), ("update", "update"), ("inside", "steps")):
            figures.append(
                figure(
                    f"{what} of the quickstart, {prompts} prompts of N = {n}, against every row "
                    "by itself",
                    readings,
                    ours="brorl",
                    theirs="every row by itself",
                    unit="s",
                    key=key,
                )
            )
    return figures
