"""What each piece that makes width cheap is worth: the same code with it, and without it."""

from functools import partial

from harness import Side, alternate, figure
from widths import SHAPES, N, case

SIDES = {"ours": "with", "theirs": "without"}
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
            readings = _both("ours", case(work, shape), out, repeats, threads)
            if backwards:  # the piece is put in where others are taken out
                readings = {"with": readings["without"], "without": readings["with"]}
            name = f"{piece}: {work}, {shape}"
            figures.append(figure(f"{name}, seconds", readings, **SIDES, unit="s"))
            figures.append(figure(f"{name}, growth of peak memory", readings, **SIDES, **MEMORY))
    return figures


def _both(script, c, out, repeats, threads):
    """Readings of a case as it is, and of the same changed by `out`."""
    sides = {
        "with": partial(Side, script, c, threads=threads),
        "without": partial(Side, script, c | out, threads=threads),
    }
    return alternate(sides, repeats)


def _chunks(repeats, threads):
    c = WIDE_VOCABULARY
    readings = _both("ours", c, {"whole": True}, repeats, threads)
    name = f"log-probs in chunks: {c['tokens']:,} tokens, vocabulary of {c['vocabulary']:,}"
    return [
        figure(f"{name}, seconds", readings, **SIDES, unit="s"),
        figure(f"{name}, growth of peak memory", readings, **SIDES, **MEMORY),
    ]


def _training(repeats, threads, piece, out, key):
    """Of the quickstart's steps at N = 512, whose answers end early and repeat."""
    readings = _both("training", QUICKSTART | {"threads": threads}, out, repeats, threads)
    what = {"generate": "sampling", "inside": "steps"}[key]
    name = f"{piece}: {what} of the quickstart, N = {N}, seconds"
    return [figure(name, readings, **SIDES, unit="s", key=key)]


def _grading(repeats, threads):
    out = {"without": "one grading"}
    readings = _both("ours", case("grade", "32 + 64"), out, 3 * repeats, threads)
    name = f"an answer compared once: {N} math answers of 51 kinds, seconds"
    return [figure(name, readings, **SIDES, unit="s", key="grading")]
