"""What each piece that makes width cheap is worth: the same code with it, and without it."""

from functools import partial

from harness import Side, alternate, figure
from widths import SHAPES, N, case

MEMORY = {"unit": "bytes", "key": "peak_growth"}
QUICKSTART = {"policy": "quickstart", "n": N, "prompts": 2, "steps": 10}
WIDE_VOCABULARY = {"work": "logprobs", "tokens": 1024, "hidden": 576, "vocabulary": 49_152}


def measure(repeats, threads):
    """Ratios over 1 are what the piece saves; the last are of what is not used."""
    return [
        *_model(repeats, threads, "prompt read once a group", {"lonely": True}),
        *_model(repeats, threads, "fused layer", {"without": "fused layer"}),
        *_model(
            repeats, threads, "attention in pieces", {"without": "joint attention"}, ("update",)
        ),
        *_model(repeats, threads, "freed memory kept", {"without": "kept memory"}),
        *_chunks(repeats, threads),
        *_training(
            repeats, threads, "finished rows moved out", {"without": "compaction"}, "generate"
        ),
        *_training(
            repeats,
            threads,
            "the engine's log-probs reused",
            {"settings": {"reuse_engine_logprobs": False}},
            "inside",
        ),
        *_grading(repeats, threads),
        *_model(
            repeats,
            threads,
            "norms and rotations compiled (torch.compile), which is not used",
            {"without": "compiled"},
            ("update",),
            backwards=True,
        ),
    ]


def _model(repeats, threads, piece, out, works=("generation", "update"), *, backwards=False):
    """Of sampling and of the update of the tiny policy, in seconds and in growth of the peak."""
    figures = []
    for work in works:
        for shape in SHAPES:
            c = case(work, shape)
            readings = alternate(
                {
                    "with": partial(Side, "ours", c, threads=threads),
                    "without": partial(Side, "ours", c | out, threads=threads),
                },
                repeats,
            )
            names = ("with", "without")
            if backwards:  # the piece is put in where others are taken out
                readings = {"with": readings["without"], "without": readings["with"]}
            both = dict(zip(("ours", "theirs"), names, strict=True))
            name = f"{piece}: {work}, {shape}"
            figures.append(figure(f"{name}, seconds", readings, **both, unit="s"))
            figures.append(figure(f"{name}, growth of peak memory", readings, **both, **MEMORY))
    return figures


def _chunks(repeats, threads):
    c = WIDE_VOCABULARY
    readings = alternate(
        {
            "with": partial(Side, "ours", c, threads=threads),
            "without": partial(Side, "ours", c | {"whole": True}, threads=threads),
        },
        repeats,
    )
    name = f"log-probs in chunks: {c['tokens']:,} tokens, vocabulary of {c['vocabulary']:,}"
    both = {"ours": "with", "theirs": "without"}
    return [
        figure(f"{name}, seconds", readings, **both, unit="s"),
        figure(f"{name}, growth of peak memory", readings, **both, **MEMORY),
    ]


def _training(repeats, threads, piece, out, key):
    """Of the quickstart's steps at N = 512, whose answers end early and repeat."""
    c = QUICKSTART | {"threads": threads}
    readings = alternate(
        {
            "with": partial(Side, "training", c, threads=threads),
            "without": partial(Side, "training", c | out, threads=threads),
        },
        repeats,
    )
    what = {"generate": "sampling", "inside": "steps"}[key]
    name = f"{piece}: {what} of the quickstart, N = {N}, seconds"
    return [figure(name, readings, ours="with", theirs="without", unit="s", key=key)]


def _grading(repeats, threads):
    c = case("grade", "32 + 64")
    readings = alternate(
        {
            "with": partial(Side, "ours", c, threads=threads),
            "without": partial(Side, "ours", c | {"without": "one grading"}, threads=threads),
        },
        3 * repeats,
    )
    name = f"an answer compared once: {N} math answers of 51 kinds, seconds"
    return [figure(name, readings, ours="with", theirs="without", unit="s", key="grading")]
