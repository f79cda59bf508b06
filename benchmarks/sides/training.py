"""brorl's whole run of a shipped recipe: what of a run's seconds is grading, recording, report."""

import tempfile
from pathlib import Path

from serve import TINY, booked, case, serve

import brorl
from brorl.rollout import stems
from brorl.train import api, batch
from brorl.train import loop as loops

JUNK = {
    "warmstart": None,
    "model.shape": {"architecture": "llama", **TINY, "vocabulary": 100, "max_positions": 256},
    "rollout.max_new_tokens": 64,
    "dynamic_sampling.enable": False,
    "task.eval_size": 8,
}
"""The tiny policy of all figures, untrained: answers of 64 tokens, no two alike."""


def apart():
    """Every row through the model by itself, however many are equal."""
    numbers = iter(range(1 << 60))
    stems.APART = 0.0
    batch._answer = lambda row: (row.group, next(numbers).to_bytes(8, "big"))


def runs(c):
    """A run of the quickstart, `steps` steps long, in a folder of its own; its start is cached."""
    spent = {}
    if c.get("apart"):
        apart()

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
        with tempfile.TemporaryDirectory() as folder:
            said = brorl.train("quickstart", overrides, run_dir=str(Path(folder) / "run"))
        # What a run does beside its steps and evaluations: rows, metrics, loggers, checkpoints.
        beside = spent["steps"] + spent["first"] - spent["inside"] - spent["eval"]
        return {
            "generate": said["seconds"]["generate"],
            "update": said["seconds"]["update"],
            "inside": spent["inside"],
            "recording": beside + spent["report"],
            "grade": said["seconds"]["grade"],
        }

    return work


if __name__ == "__main__":
    chosen = case()
    serve(runs(chosen))
