"""Kill a hundred small runs at random instants, resume them, and record how they ended.

    python docs/measure_kills.py [--kills 100]    # 49 minutes on two busy cores

Writes docs/results/kills.json: for every kill the phase that was drawn, the one in which the
process died, and whether the resumed run ended as the unbroken one: metrics, weights, optimizer,
answers, evaluations. tests/train/killing.py says how. The instants are random, so a second run
gives other ones.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "docs/results/kills.json"


def main() -> int:
    """Kill, compare, write; 1 where an ending differs."""
    sys.path.insert(0, str(ROOT))
    from brorl.train import api
    from tests.train.killing import PHASES, SMALL, Killer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    asked = parser.parse_args().kills
    torch.set_num_threads(1)
    api.write_report = lambda run: run / "report.html"  # the page is another matter
    start, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder))
        for number in range(asked):
            try:
                rows.append({**killer.kill(number)._asdict(), "identical": True})
            except AssertionError as error:
                rows.append({"number": number, "identical": False, "why": str(error)[:500]})
            print(number, rows[-1], flush=True)
    hits = Counter(row["hit"] for row in rows if row["identical"])
    result = {
        "command": f"python docs/measure_kills.py --kills {asked}",
        "recipe": SMALL,
        "kills": len(rows),
        "identical": sum(row["identical"] for row in rows),
        "killed_again_while_resuming": sum(row.get("again", False) for row in rows),
        "died_in": {phase: hits[phase] for phase in (*PHASES, "between")},
        "seconds": round(time.monotonic() - start),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": rows,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}))
    return int(result["identical"] != asked)


if __name__ == "__main__":
    sys.exit(main())
