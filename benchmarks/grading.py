"""What grading a wide step costs: a pool with one grading per distinct answer, and without both.

    python benchmarks/grading.py [--workers 2] [--full]

65,536 answers: 128 problems, 512 rollouts each, 51 distinct answers a problem (10 %), half of the
rollouts right in the easy problems and few in the hard ones, of the kinds that such a step has:
integers, decimals, fractions, roots and short expressions. Beside it, math-verify called on each
text as its documentation shows, on a sample of 1,024 and scaled up; --full calls it on all.
"""

import argparse
import json
import logging
import random
import time

from brorl.verify.math import MathVerifier
from brorl.verify.pool import GraderPool

PROBLEMS, ROLLOUTS, DISTINCT = 128, 512, 51
PROSE = "so we have the sum of all terms and it follows that this is equal to what was asked"


def answers(rng):
    """The distinct answers of one problem, the gold first."""
    kind = rng.choice(["integer", "integer", "integer", "decimal", "fraction", "root", "sum"])
    numbers = rng.sample(range(2, 1000), DISTINCT)
    write = {
        "integer": str,
        "decimal": lambda n: f"{n / 8}",
        "fraction": lambda n: rf"\frac{{{n}}}{{{n + 7}}}",
        "root": lambda n: rf"{n}\sqrt{{2}}",
        "sum": lambda n: rf"x^2+{n}x",
    }[kind]
    return [write(n) for n in numbers]


def group(rng, rollouts=ROLLOUTS):
    """(gold, texts) of one problem."""
    found = answers(rng)
    right = rng.random()
    drawn = found + [
        found[0] if rng.random() < right else rng.choice(found) for _ in range(rollouts - DISTINCT)
    ]
    rng.shuffle(drawn)
    prose = [" ".join(rng.choices(PROSE.split(), k=200)) for _ in range(8)]
    return found[0], [f"{rng.choice(prose)} \\boxed{{{answer}}}" for answer in drawn]


def step(seed):
    """[(gold, texts)] of one step."""
    rng = random.Random(seed)
    return [group(rng) for _ in range(PROBLEMS)]


def pooled(groups, workers):
    """(seconds, share right, what the pool counted); the processes are running beforehand."""
    verifier = MathVerifier(profile="lenient")
    with GraderPool(workers=workers, deadline_s=5.0) as pool:
        first = pool.submit_many(
            verifier, problem_id="", texts=["\\boxed{1}"] * 64, gold="1", row={}
        )
        pool.gather(first)
        start = time.perf_counter()
        tickets = [
            pool.submit_many(verifier, problem_id=str(i), texts=texts, gold=gold, row={})
            for i, (gold, texts) in enumerate(groups)
        ]
        submitted = time.perf_counter() - start
        verdicts = [v for group in tickets for v in pool.gather(group)]
        seconds = time.perf_counter() - start
        stats = pool.stats()
    return seconds, submitted, sum(v.score for v in verdicts) / len(verdicts), stats


def one_by_one(groups, sample):
    """(seconds for all, share right) of math-verify on every text, or scaled from a sample."""
    from math_verify import parse, verify

    logging.disable(logging.ERROR)
    pairs = [(gold, text) for gold, texts in groups for text in texts]
    chosen = pairs if sample is None else random.Random(1).sample(pairs, sample)
    start = time.perf_counter()
    right = sum(verify(parse(f"\\boxed{{{gold}}}"), parse(text)) for gold, text in chosen)
    seconds = time.perf_counter() - start
    return seconds * len(pairs) / len(chosen), right / len(chosen)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args(argv)
    groups = step(seed=0)
    seconds, submitted, share, stats = pooled(groups, args.workers)
    theirs, their_share = one_by_one(groups, None if args.full else 1024)
    result = {
        "answers": PROBLEMS * ROLLOUTS,
        "workers": args.workers,
        "pool_s": round(seconds, 2),
        "submitting_s": round(submitted, 3),
        "pool_share_right": round(share, 4),
        "distinct": stats.distinct,
        "hits": stats.hits,
        "math_verify_one_by_one_s": round(theirs, 1),
        "math_verify_share_right": round(their_share, 4),
        "scaled_from_a_sample": not args.full,
        "times_faster": round(theirs / seconds, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
