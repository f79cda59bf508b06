"""Adaptive width against fixed widths and against drawing solved prompts less often.

    python benchmarks/adaptive.py [--out FOLDER] [--tasks a,b] [--budget 60000] [--depth 60000]

Question: at equal generated samples and at equal CPU seconds, does one-sided adaptive width beat
N = 16, N = 512 and a plain down-weighting of solved prompts?

Design. Three tasks. Each has two starts: a warm start (seeds 0 and 1), then N = 16 for `depth`
samples, until progress has slowed. From each start every arm goes on with three seeds, weights and
optimizer restored, for `budget` generated samples. Held equal: start, training and held-out
problems, number of mini-batches, loss, learning rate (but for the arm that scales it); prompts a
step but for N = 512, which has a quarter of them as in the paper. Not equal, and reported:
updates, kept samples, samples per update, seconds. Held-out problems are sampled 16
times at every quarter of the budget; scores between are linear interpolations.

Each run is an ordinary run folder under FOLDER; a second call goes on where the first was
interrupted. Writes benchmarks/adaptive.json, from which docs/render_adaptive.py renders the rest.
"""

import argparse
import itertools
import os
import platform
import time
from pathlib import Path

import numpy as np

TASKS = {
    "spell_backward": {
        "task.name": "spell_backward",
        "task.prompt": "rev {word}=",
        "warmstart.until": 0.5,
        "rollout.max_new_tokens": 12,
    },
    "string_insertion": {
        "task.name": "string_insertion",
        "task.prompt": "ins {string}=",
        "task.config": {"min_string_length": 5, "max_string_length": 9},
        "warmstart.until": 0.5,
        "rollout.max_new_tokens": 32,
    },
    "composition": {
        "task.name": "composition",
        "task.prompt": "{expression}=",
        "task.levels": [1],
        "task.eval_levels": [1],
        "task.eval_functions": "train",
        "warmstart.until": 0.4,
        "rollout.max_new_tokens": 32,
    },
}
NARROW = {"rollout.n": 16, "prompts_per_step": 32}
WIDE = {"rollout.n": 512, "prompts_per_step": 8}
WAVES = {"rollout.n": None, "rollout.waves": [16, 64, 256, 512], "prompts_per_step": 32}
ARMS = {
    "N=16": NARROW,
    "N=512": WIDE,
    "N=512 sqrt": WIDE | {"lr_scaling": "sqrt", "lr_base_samples": 512},
    "N=16 solved 1/8": NARROW | {"data.solved_weight": 0.125},
    "adaptive": WAVES,
    "adaptive keep 16": WAVES | {"rollout.keep_per_group": 16},
}
CONTROL = "N=16"
STARTS, SEEDS = (0, 1), (10, 11, 12)
COMMON = {
    "steps": 100_000,  # the samples end a run
    "eval_every": None,
    "save_every": 1_000,
    "keep_checkpoints": 1,
    "logger": [],
    "record.tokens": "none",
    "threads": 1,
    "task.train_size": 512,
    "task.eval_size": 256,
    "dynamic_sampling.max_gen_batches": 20,
    "grading.check_golds": 0,
}
POINTS = 4  # evaluations in a budget


def main():
    """Run what is not done, then write the results."""
    import brorl

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/adaptive"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--budget", type=int, default=60_000, help="generated samples of an arm")
    parser.add_argument("--depth", type=int, default=60_000, help="samples of N = 16 before")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("adaptive.json"))
    args = parser.parse_args()
    tasks = args.tasks.split(",")
    plan = list(itertools.product(SEEDS, tasks, STARTS, ARMS))
    began, made, rows = time.monotonic(), 0, []
    for done, (seed, task, start, arm) in enumerate(plan):
        base = COMMON | TASKS[task]
        depth = args.out / task / f"start-{start}"
        _ensure(brorl, depth, base | NARROW | {
            "seed": start, "max_samples": args.depth,
            "eval_every_samples": args.depth // POINTS,
        })  # fmt: skip
        run = args.out / task / f"start-{start}-seed-{seed}-{_slug(arm)}"
        made += _ensure(brorl, run, base | ARMS[arm] | {
            "seed": seed, "init.from": str(depth), "init.restore": ["weights", "optimizer"],
            "lr_warmup_updates": 0, "max_samples": args.budget,
            "eval_every_samples": args.budget // POINTS,
        })  # fmt: skip
        rows.append(_read(run) | {"task": task, "start": start, "seed": seed, "arm": arm})
        each = (time.monotonic() - began) / max(made, 1)
        print(
            f"{done + 1}/{len(plan)} {task} start {start} seed {seed} {arm}: "
            f"{rows[-1]['curve'][-1]['score']:.3f}, about {each * (len(plan) - done - 1) / 60:.0f} "
            "min left",
            flush=True,
        )
        _write(args, rows, tasks)


def _ensure(brorl, run, settings):
    """Make the run, or go on with it; 1 where there was something to do."""
    if not (run / "config.yaml").exists():
        brorl.train("quickstart", settings | {"run_dir": str(run)})
        return 1
    if not (run / "report.html").exists():
        brorl.resume(run)
        return 1
    return 0


def _slug(arm):
    return arm.replace("=", "").replace(" ", "-").replace("/", "-")


def _read(run):
    """The curve of a run: held-out score against what was spent so far."""
    from brorl.record.metrics import read_metrics

    spent = dict.fromkeys(("generated", "kept", "cpu_s", "updates", "answer_tokens"), 0.0)
    curve, easy, unsolved = [], [], []
    widened = still = 0
    for row in read_metrics(run):
        spent["generated"] += row.get("samples/generated") or 0
        spent["kept"] += row.get("samples/kept") or 0
        spent["cpu_s"] += row.get("time/cpu") or 0.0
        spent["updates"] = row.get("updates") or spent["updates"]
        spent["answer_tokens"] += (row.get("samples/generated") or 0) * (
            row.get("response/length_mean") or 0.0
        )
        if (share := row.get("samples/kept_easy_share")) is not None:
            easy.append(share)
        if (share := row.get("groups/solved_none")) is not None:
            unsolved.append(share)
        widened += row.get("groups/escalated_64") or 0
        still += row.get("groups/unsolved_at_max") or 0
        if "eval/pass@1" in row:
            point = {k: round(v, 3) for k, v in spent.items()}
            point |= {"score": row["eval/pass@1"], "pass@16": row.get("eval/pass@16")}
            curve.append(point)
    return {
        "curve": curve,
        "kept_easy_share": round(float(np.mean(easy)), 4) if easy else None,
        "all_wrong_share": round(float(np.mean(unsolved)), 4) if unsolved else None,
        "widened_groups": widened,
        "unsolved_at_widest": still,
    }


def score_at(curve, budget, amount):
    """Held-out score when `amount` of `budget` was spent; linear between evaluations."""
    return float(np.interp(amount, [x[budget] for x in curve], [x["score"] for x in curve]))


def compare(rows, samples):
    """Per task and arm: score, and difference to N = 16, at equal samples and at equal seconds.

    Pairs share task, start and seed. At equal seconds a pair is compared where the cheapest arm of
    its block ended. The interval over 6 pairs holds for these two starts; the one over all tasks
    takes (task, start) as the unit.
    """
    from brorl.stats.clustered import clustered_difference
    from brorl.stats.multiplicity import holm
    from brorl.stats.paired import paired_t

    blocks = {}
    for row in rows:
        blocks.setdefault((row["task"], row["start"], row["seed"]), {})[row["arm"]] = row["curve"]
    blocks = {k: v for k, v in blocks.items() if len(v) == len(ARMS)}
    out = {}
    for budget in ("generated", "cpu_s"):
        scores = {}
        for key, arms in blocks.items():
            cheapest = min(curve[-1]["cpu_s"] for curve in arms.values())
            amount = samples if budget == "generated" else cheapest
            scores[key] = {arm: score_at(curve, budget, amount) for arm, curve in arms.items()}
        table = {}
        for arm in ARMS:
            difference = {k: s[arm] - s[CONTROL] for k, s in scores.items()}
            per_task = {}
            for task in {k[0] for k in scores}:
                mine = [d for k, d in difference.items() if k[0] == task]
                level = [s[arm] for k, s in scores.items() if k[0] == task]
                per_task[task] = {"score": float(np.mean(level)), "runs": len(level)}
                if arm != CONTROL and len(mine) > 1:
                    per_task[task] |= _interval(paired_t(mine, level=0.95))
            row = {"tasks": per_task}
            if arm != CONTROL and len({k[:2] for k in difference}) > 1:
                units = [f"{k[0]}/{k[1]}" for k in difference]
                test = clustered_difference(list(difference.values()), units, level=0.95).test
                row["all"] = _interval(test)
            table[arm] = row
        tested = [arm for arm in ARMS if "all" in table[arm]]
        for arm, p in zip(tested, holm([table[a]["all"]["p"] for a in tested]), strict=True):
            table[arm]["all"]["p_holm"] = float(p)
        out[budget] = table
    return out


def _interval(test):
    d = test.difference
    return {
        "difference": float(d.value),
        "low": float(d.low),
        "high": float(d.high),
        "p": float(test.p_two_sided),
    }


def _write(args, rows, tasks):
    from brorl.record.files import write_json

    write_json(args.results, {
        "command": "python benchmarks/adaptive.py",
        "settings": {
            "tasks": {t: TASKS[t] for t in tasks}, "arms": ARMS, "common": COMMON,
            "budget": args.budget, "depth": args.depth, "starts": STARTS, "seeds": SEEDS,
        },
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "runs": rows,
        "comparison": compare(rows, args.budget),
    })  # fmt: skip


if __name__ == "__main__":
    main()
