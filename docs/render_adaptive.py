"""Tables and figure of the adaptive-width benchmark, from benchmarks/adaptive.json alone.

`python docs/render_adaptive.py` renders the blocks and draws docs/figures/adaptive.svg; `--check`
only says whether documents are current. `python benchmarks/adaptive.py` makes the results, in about
two hours of one core.
"""

import json
import sys
from typing import Any

import blocks
import numpy as np

ROOT = blocks.ROOT
RESULT = ROOT / "benchmarks/adaptive.json"
FIGURE = ROOT / "docs/figures/adaptive.svg"
BUDGETS = {"generated": "generated samples", "cpu_s": "CPU seconds"}


def adaptive_table() -> str:
    """Held-out pass@1 by arm and task, and differences to N = 16 at two equal budgets."""
    result = json.loads(RESULT.read_text())
    compared, s = result["comparison"], result["settings"]
    tasks = list(s["tasks"])
    names = [t.replace("_", " ") for t in tasks]
    lines = [
        f"| arm | {' | '.join(names)} | difference, equal samples | equal CPU seconds |",
        "|---" * (len(tasks) + 3) + "|",
    ]
    for arm, row in compared["generated"].items():
        scores = [f"{row['tasks'][t]['score']:.3f}" for t in tasks]
        lines.append(
            f"| {arm} | {' | '.join(scores)} | {_difference(row)} | "
            f"{_difference(compared['cpu_s'][arm])} |"
        )
    runs = min(v["runs"] for v in compared["generated"]["N=16"]["tasks"].values())
    lines.append(
        f"\nHeld-out pass@1 after {s['budget']:,} more samples than the {s['depth']:,} of N = 16 "
        f"that each start has behind it; {len(s['starts'])} starts a task, {runs} runs an arm and "
        f"task. Differences are to N = 16 from the same start and seed, over all tasks, with 95 % "
        f"intervals that take (task, start) as the unit; * where Holm's p over the "
        f"{len(compared['generated']) - 1} arms is below 0.05."
    )
    return "\n".join(lines) + "\n"


def adaptive_by_task() -> str:
    """The differences task by task, with intervals over the pairs of that task."""
    result = json.loads(RESULT.read_text())
    lines = [
        "| task | arm | score | difference to N = 16, equal samples | equal CPU seconds |",
        "|---|---|---|---|---|",
    ]
    for task in result["settings"]["tasks"]:
        for arm, row in result["comparison"]["generated"].items():
            mine = row["tasks"][task]
            seconds = result["comparison"]["cpu_s"][arm]["tasks"][task]
            lines.append(
                f"| {task} | {arm} | {mine['score']:.3f} | {_span(mine)} | {_span(seconds)} |"
            )
    return "\n".join(lines) + "\n"


def adaptive_spent() -> str:
    """What each arm spent for its samples: updates, kept samples, CPU seconds, easy share."""
    result = json.loads(RESULT.read_text())
    lines = [
        "| arm | updates | kept samples | CPU seconds | kept, easy prompts | groups all wrong |",
        "|---|---|---|---|---|---|",
    ]
    for arm in result["settings"]["arms"]:
        rows = [r for r in result["runs"] if r["arm"] == arm]
        end = [r["curve"][-1] for r in rows]
        lines.append(
            f"| {arm} | {_mean(end, 'updates'):.0f} | {_mean(end, 'kept'):,.0f} | "
            f"{_mean(end, 'cpu_s'):.0f} | {_mean(rows, 'kept_easy_share'):.2f} | "
            f"{_mean(rows, 'all_wrong_share'):.2f} |"
        )
    return "\n".join(lines) + "\n"


def adaptive_found() -> str:
    """What widening found, task by task: groups widened beyond 16, and those still all wrong."""
    result = json.loads(RESULT.read_text())
    lines = [
        "| task | all wrong under N = 16 | widened by adaptive, a run | still all wrong at 512 |",
        "|---|---|---|---|",
    ]
    for task in result["settings"]["tasks"]:
        mine = {
            arm: [r for r in result["runs"] if (r["task"], r["arm"]) == (task, arm)]
            for arm in ("N=16", "adaptive")
        }
        widened = sum(r["widened_groups"] for r in mine["adaptive"])
        still = sum(r["unsolved_at_widest"] for r in mine["adaptive"])
        lines.append(
            f"| {task} | {_mean(mine['N=16'], 'all_wrong_share'):.1%} | "
            f"{widened / len(mine['adaptive']):.0f} | {still / widened:.0%} |"
        )
    return "\n".join(lines) + "\n"


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([r[key] for r in rows if r[key] is not None]))


def _span(row: dict[str, Any]) -> str:
    if "difference" not in row:
        return "-"
    return f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"


def _difference(row: dict[str, Any]) -> str:
    found = row.get("all", {})
    return _span(found) + ("*" if found.get("p_holm", 1.0) < 0.05 else "")


def draw() -> None:
    """Mean held-out pass@1 against both budgets, a panel a task; the band spans the runs."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "brorl"
    result = json.loads(RESULT.read_text())
    tasks, arms = list(result["settings"]["tasks"]), list(result["settings"]["arms"])
    figure, axes = plt.subplots(
        len(BUDGETS), len(tasks), figsize=(4 * len(tasks), 6.4), squeeze=False, sharey="col"
    )
    for (budget, label), row in zip(BUDGETS.items(), axes, strict=True):
        for task, axis in zip(tasks, row, strict=True):
            for number, arm in enumerate(arms):
                curves = [
                    r["curve"] for r in result["runs"] if (r["task"], r["arm"]) == (task, arm)
                ]
                if not curves:
                    continue
                shared = np.linspace(0, min(c[-1][budget] for c in curves), 25)
                scores = np.array([
                    np.interp(shared, [p[budget] for p in c], [p["score"] for p in c])
                    for c in curves
                ])  # fmt: skip
                colour = f"C{number}"
                axis.plot(shared, scores.mean(0), color=colour, label=arm, linewidth=1.6)
                axis.fill_between(
                    shared, scores.min(0), scores.max(0), color=colour, alpha=0.07, linewidth=0
                )
            axis.set(xlabel=label, title=task.replace("_", " "))
            axis.locator_params(axis="x", nbins=4)
            axis.grid(alpha=0.25)
        row[0].set_ylabel("held-out pass@1")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(arms), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


def made() -> blocks.Blocks:
    """Draw, and name what is rendered."""
    if "--check" not in sys.argv:
        draw()
    return BLOCKS


BLOCKS: blocks.Blocks = {
    "adaptive-arms": adaptive_table,
    "adaptive-tasks": adaptive_by_task,
    "adaptive-spent": adaptive_spent,
    "adaptive-found": adaptive_found,
}

if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, made))
