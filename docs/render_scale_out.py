"""Tables of docs/scale-out.md from the compiler's own: `python docs/render_scale_out.py`."""

import sys

import blocks

from brorl.train.recipe import load_recipe
from brorl.verl.estimate import UTILISATION, estimate
from brorl.verl.table import TABLE, Place

PAPER = {"samples_per_s": 72.4, "pass_rate": 0.62, "minutes": 54.8}
"""BroRL, arXiv:2510.01180v1, tables 1 and 2: generation rate, kept over generated, 191 steps in
the hours of table 1; on 64 H100 with N = 512."""


def settings_table() -> str:
    """Every setting, in the order of the settings file."""
    words = {
        Place.VERL: "verl",
        Place.BRORL: "our code in verl",
        Place.LAUNCH: "`brorl launch`",
        Place.REFUSED: "refused",
        Place.EMBEDDED: "not in verl",
    }
    lines = ["| setting | done by | there | note |", "|---|---|---|---|"]
    for name, entry in TABLE.items():
        target = entry.target.replace("actor_rollout_ref.", "") if entry.target != "-" else ""
        lines.append(f"| `{name}` | {words[entry.place]} | {target} | {entry.note} |")
    return "\n".join(lines) + "\n"


def estimates() -> str:
    """Memory and time of the paper's set-up, counted and from the paper."""
    s = load_recipe("brorl", {"data.train": "x.jsonl"})
    lines = ["| | 1×8 H100 | 8×8 H100 |", "|---|---|---|"]
    found = [estimate(s, gpus=gpus, max_prompt_tokens=1024) for gpus in (8, 64)]

    def row(name: str, *cells: str) -> None:
        lines.append(f"| {name} | {' | '.join(cells)} |")

    gib = 2**30
    row("weights, gradients, moments a GPU", *(f"{n.sharded / gib:.1f} GiB" for n in found))
    row("reference policy a GPU (host memory)", *(f"{n.reference / gib:.2f} GiB" for n in found))
    row("vLLM's copy of the weights", *(f"{n.engine_weights / gib:.1f} GiB" for n in found))
    row("keys and values of a longest answer", *(f"{n.kv_answer / gib:.2f} GiB" for n in found))
    row(
        f"update and scoring, every answer at its limit, {UTILISATION:.0%} of the peak (assumed)",
        *(f"{n.update_s / 60:,.0f} min" for n in found),
    )
    generated = s.samples_per_step / PAPER["pass_rate"]
    generate = generated / PAPER["samples_per_s"] / 60
    row("generation, from the paper's rate and pass rate", "-", f"{generate:.0f} min")
    row("a whole step, from the paper's hours", "-", f"{PAPER['minutes']:.0f} min")
    return "\n".join(lines) + "\n"


BLOCKS: blocks.Blocks = {
    "scale-out-settings": settings_table,
    "scale-out-estimates": estimates,
}

if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS))
