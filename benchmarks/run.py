"""All side-by-side figures, into benchmarks/results.json, and the pages made from it.

    python benchmarks/run.py [--peers] [--only step,generation] [--repeats 3] [--threads 2]

Without --peers: brorl against Hugging Face alone, and against what this machine's matrix products
and memory reach (`make bench`). With it: against TRL and vLLM, each in an environment of its own
(`make bench-peers`).
"""

import argparse
import os
import subprocess
import sys

import growth
import harness
import limit
import overhead
import pieces
import profiles
import repeats
import shares
import smollm2
import widths

OWN = {
    "generation": widths.generation,
    "update": widths.update,
    "repeats": repeats.measure,
    "growth": growth.measure,
    "limit": limit.measure,
    "profile": profiles.measure,
    "functions": profiles.functions,
    "pieces": pieces.measure,
    "overhead": overhead.measure,
    "shares": shares.measure,
    "smollm2": smollm2.measure,
}
PEERS = {"step": widths.step, "vllm": widths.vllm}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", default="", help="sections, with commas between")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    sections = PEERS if args.peers else OWN
    for name in [n for n in args.only.split(",") if n] or sections:
        figures = (OWN | PEERS)[name](args.repeats, args.threads)
        harness.write(name, figures, args.threads)
    renderer = harness.ROOT / "docs/render_performance.py"
    subprocess.run([sys.executable, str(renderer)], check=True)


if __name__ == "__main__":
    main()
