"""Run the default tests as `make test` does, and record how they ended and how long they took.

python docs/measure_tests.py        # writes docs/results/tests.json
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run, write, print; the tests' own exit status."""
    load = os.getloadavg()[0]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=HERE.parent,
        env={"OMP_NUM_THREADS": "1"} | os.environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    result = {
        "seconds": round(time.perf_counter() - start),
        "cpus": os.cpu_count(),
        "load": round(load, 1),
        "printed": lines[-1].strip(" ="),
    }
    print(json.dumps(result))
    if done.returncode == 0:
        (HERE / "results/tests.json").write_text(json.dumps(result, indent=1) + "\n")
    else:
        print("\n".join(lines[-30:]))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
