"""What the code verifier costs beside the box that it cannot do without.

    python benchmarks/sandbox.py [--rounds 12]

Alternates blocks of twenty bare bubblewrap calls around an empty Python program with blocks of
twenty judgements of a trivial program, of either kind and with three tests. Blocks, because the
next box is started when one has ended: between single calls its start would be hidden. Prints the
medians over the blocks of the time for one, and their ratios. Claimed: at most 1.5.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time

import numpy as np

from brorl.verify.code import CodeVerifier

BARE = shlex.split("""
    env -i bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL --uid 65534
    --gid 65534 --clearenv --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64
    --symlink usr/bin /bin --proc /proc --dev /dev --size 16777216 --tmpfs /tmp
    --size 1048576 --tmpfs /dev/shm --chdir /tmp /usr/bin/python3 -I -S -c
""")
TASKS = {
    "function": (
        "def add(a, b):\n    return a + b\n",
        {
            "kind": "function",
            "entry_point": "add",
            "tests": ["assert add(1, 2) == 3", "assert add(-4, 9) == 5", "assert add(0, 0) == 0"],
        },
    ),
    "stdin": (
        "print(sum(map(int, input().split())))\n",
        {
            "kind": "stdin",
            "tests": [{"input": f"{i} 2\n", "output": f"{i + 2}\n"} for i in range(3)],
        },
    ),
}


BLOCK = 20


def seconds(action):
    """For one of a block."""
    start = time.perf_counter()
    for _ in range(BLOCK):
        action()
    return (time.perf_counter() - start) / BLOCK


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args(argv).rounds
    verifier = CodeVerifier()

    def bare():
        subprocess.run([*BARE, ""], check=True, stdin=subprocess.DEVNULL)

    def judge(kind):
        code, task = TASKS[kind]
        verdict = verifier.grade(code, gold=None, row={"task": task})
        assert verdict.score == 1.0, verdict

    for kind in TASKS:  # the first one also starts the keepers
        judge(kind)
    times = {"bare": [], **{kind: [] for kind in TASKS}}
    for _ in range(rounds):
        times["bare"].append(seconds(bare))
        for kind in TASKS:
            times[kind].append(seconds(lambda kind=kind: judge(kind)))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    result = {
        "rounds": rounds,
        "block": BLOCK,
        "median_ms": {name: round(1e3 * value, 2) for name, value in medians.items()},
        "ratio": {kind: round(medians[kind] / medians["bare"], 3) for kind in TASKS},
    }
    print(json.dumps(result, indent=1))
    return 0 if max(result["ratio"].values()) <= 1.5 else 1


if __name__ == "__main__":
    sys.exit(main())
