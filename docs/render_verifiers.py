"""The table of Reasoning Gym's faults in docs/verifiers.md, rendered from the rules themselves.

`python docs/render_verifiers.py` rewrites it; `--check` only says whether it is current.
"""

import sys
from pathlib import Path

import blocks

from brorl.verify.reasoning_gym_rules import FORM, HASH_DEPENDENT, OWN, REFUSED

PAGE = Path(__file__).parent / "verifiers.md"


def table() -> str:
    """One row per data set, by name."""
    rows = {name: ("refused as a task", fault) for name, fault in REFUSED.items()}
    rows |= {name: ("own check", own.fault) for name, own in OWN.items()}
    rows |= {name: ("form checked first", form.fault) for name, form in FORM.items()}
    lines = ["| data set | what the library's scorer does | what brorl does |", "|---|---|---|"]
    lines += [f"| {name} | {fault} | {what} |" for name, (what, fault) in sorted(rows.items())]
    names = ", ".join(sorted(HASH_DEPENDENT))
    lines.append(
        f"\nItems of {names} depend on Python's hash seed, so that every process has others: they "
        "are generated in a process with a fixed one."
    )
    return "\n".join(lines) + "\n"


BLOCKS: blocks.Blocks = {"faults": table}


def rendered(page: str) -> str:
    """The page with its table made again."""
    return blocks.fill(page, BLOCKS)


if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS))
