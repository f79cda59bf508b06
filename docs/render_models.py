"""The table of docs/models.md, from docs/results/memory.json: `python docs/render_models.py`.

`python docs/measure_memory.py` measures.
"""

import json
import sys

import blocks

RESULT = blocks.ROOT / "docs/results/memory.json"


def memory_table() -> str:
    """Measured and planned peak of each case, and the largest planned parts."""
    result = json.loads(RESULT.read_text())
    lines = [
        "| run | weights, M | after imports, MiB | measured above, MiB | planned, MiB "
        "| planned / measured | largest parts |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        planned = case["planned"]
        parts = sorted((k for k in planned if k != "total"), key=lambda k: -planned[k])[:2]
        mib = [case["after_imports"], case["measured"], planned["total"]]
        lines.append(
            f"| {case['name']} | {case['parameters'] / 1e6:.2f} | "
            f"{' | '.join(f'{b / 2**20:,.0f}' for b in mib)} | "
            f"{planned['total'] / case['measured']:.2f} | {', '.join(parts)} |"
        )
    lines.append(f"\ntorch {result['torch']}, {result['machine']}, one thread.")
    return "\n".join(lines) + "\n"


BLOCKS: blocks.Blocks = {"models-memory": memory_table}

if __name__ == "__main__":
    sys.exit(blocks.main(__doc__, lambda: BLOCKS))
