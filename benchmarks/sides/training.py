"""brorl's whole run of a shipped recipe: what of a run's seconds is grading, recording, report."""

import tempfile
from contextlib import nullcontext
from pathlib import Path

from pyinstrument import Profiler
from serve import TINY, booked, case, serve
from without import take_out

import brorl
from brorl.train import api
from brorl.train import loop as loops

JUNK = {
    "warmstart": None,
    "model.shape": {"architecture": "llama", **TINY, "vocabulary": 100, "max_positions": 256},
    "rollout.max_new_tokens": 64,
    "dynamic_sampling.enable": False,
    "task.eval_size": 8,
}
"""The tiny policy of all figures, untrained: answers of 64 tokens, no two alike."""


def runs(c):
    """A run of the quickstart, `steps` steps long, in a folder of its own; its start is cached."""
    spent = {}
    if c.get("without"):
        take_out(c["without"])

    booked(loops, "train_step", spent, "inside")
    booked(loops.Loop, "_evaluate", spent, "eval")
    booked(loops.Loop, "_one", spent, "steps")
    booked(loops.Loop, "_first", spent, "first")
    booked(api, "write_report", spent, "report")

    def work():
        spent.update(dict.fromkeys(("inside", "eval", "steps", "first", "report"), 0.0))
        overrides = {"steps": c["steps"], "eval_every": None, "rollout.n": c["n"]}
        overrides |= {"prompts_per_step": c["prompts"], "threads": c["threads"]}
        if c["policy"] == "junk":
            overrides |= JUNK
        overrides |= c.get("settings", {})
        watch = Profiler(interval=0.001) if c.get("functions") else nullcontext()
        with tempfile.TemporaryDirectory() as folder, watch:
            said = brorl.train("quickstart", overrides, run_dir=str(Path(folder) / "run"))
        # What a run does beside its steps and evaluations: rows, metrics, loggers, checkpoints.
        beside = spent["steps"] + spent["first"] - spent["inside"] - spent["eval"]
        return {
            "generate": said["seconds"]["generate"],
            "update": said["seconds"]["update"],
            "inside": spent["inside"],
            "recording": beside + spent["report"],
            "grade": said["seconds"]["grade"],
            "functions": inclusive(watch, c["functions"]) if c.get("functions") else {},
        }

    return work


def inclusive(watch, names):
    """Seconds in each of the functions, with all that they call; "whole": in `brorl.train`."""
    root = watch.last_session.root_frame()
    found = dict.fromkeys(names, 0.0) | {"whole": root.time}

    def walk(frame, within):
        name = ".".join(x for x in (frame.class_name, frame.function) if x)
        if name in found and name not in within:
            found[name] += frame.time
            within = within | {name}
        for child in frame.children:
            walk(child, within)

    walk(root, frozenset())
    return found


if __name__ == "__main__":
    chosen = case()
    serve(runs(chosen))
