"""How fast the token simulator is, beside a direct transcription of the paper in PyTorch.

    PYTHONPATH=src python benchmarks/simulator.py

The direct transcription is what the paper describes, line by line: torch.multinomial, the loss
through autograd, torch.optim.AdamW, a second softmax for the three records. Both sides take their
steps in turn, at full size and on one core each, and the simulator is fed the other side's draws
to show that the two agree: to 1e-12 in float64. (In float32 torch sums 128,000 exponentials to
four digits only; the difference printed for it is torch's.)

The limit. A step must read and write the logits and both Adam moments and write the probabilities:
7 vectors of V numbers, 7.2 MB at V = 128,000 in float64, 3.6 MB in float32. Over the bandwidth that
a plain copy reaches on vectors of this size, that is the shortest a step can take; the last table
prints it. In float64 a step takes about six times that up to N = 512 and about twenty times at
N = 51,200, where half of the time is drawing, sorting and counting the draws. numpy makes some
twenty-five passes where one fused loop would make one, and a square root, a division and an exp
per token cost as much as ten passes over memory.

Where the time went, and what was tried. Draws: a cumulative sum and a search for each draw cost
1.3 ms at N = 51,200 with sorted uniforms, over 5 unsorted; the table with acceptance costs 0.3 to
0.5, and at N = 4 next to nothing. Tokens never drawn share one state, but half of the vocabulary
has states from the start (`LIVE_FROM_START`): sharing all would halve a step at N = 4 and leave one
at N = 51,200, which draws every token within a hundred steps, ten times as long as that.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from brorl.seeds import generator
from brorl.simulator.curves import simulate
from brorl.simulator.sampling import TokenSampler
from brorl.simulator.settings import AdamW, SimulatorSettings
from brorl.simulator.step import TokenSimulator


class Times(NamedTuple):
    """Milliseconds a step."""

    wall: float
    cpu: float


RECORDS = ("correct_mass", "improved_share", "worst_change")


class Direct:
    """The paper's simulation in PyTorch, default settings of `SimulatorSettings` only."""

    def __init__(self, settings: SimulatorSettings, logits_V: NDArray[np.float64], n: int) -> None:
        assert isinstance(settings.optimizer, AdamW)
        c, self.n = settings.optimizer, n
        self.logits = torch.tensor(
            logits_V, dtype=getattr(torch, settings.dtype), requires_grad=True
        )
        self.adam = torch.optim.AdamW(
            [self.logits], lr=c.lr, betas=(c.beta1, c.beta2), eps=c.eps, weight_decay=c.decay
        )
        self.correct = torch.zeros(settings.vocab, dtype=torch.bool)
        self.correct[: settings.correct] = True
        self.start = torch.softmax(self.logits.detach(), 0)
        self.p = self.start

    def draw(self) -> torch.Tensor:
        return torch.multinomial(self.p, self.n, replacement=True)

    def step(self, draws: torch.Tensor) -> tuple[float, float, float]:
        reward = torch.where(self.correct[draws], 1.0, -1.0).to(self.logits.dtype)
        advantage = reward - reward.mean()
        loss = -(advantage * torch.softmax(self.logits, 0)[draws]).sum() / self.n
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.p = torch.softmax(self.logits.detach(), 0)
        change = self.p[self.correct] - self.start[self.correct]
        mass = self.p[self.correct].sum()
        return float(mass), float((change > 0).float().mean()), float(change.min())


def start_logits(settings: SimulatorSettings) -> NDArray[np.float64]:
    logits = np.zeros(settings.vocab)
    logits[: settings.correct] = 3
    logits[0] = 5
    return logits


def milliseconds(blocks: int, steps: Mapping[str, Callable[[], object]]) -> dict[str, Times]:
    """Wall and processor time per call: medians over blocks of 50 calls, the sides in turn."""
    taken: dict[str, list[Times]] = {name: [] for name in steps}
    for _ in range(blocks):
        for name, step in steps.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(50):
                step()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            taken[name].append(Times(*(seconds / 50 * 1e3 for seconds in spent)))
    return {
        name: Times(*(statistics.median(column) for column in zip(*rows, strict=True)))
        for name, rows in taken.items()
    }


class FirstDrawNumbers:
    """Numbers tokens as `TokenSimulator` does: those that share a state by their first draw."""

    def __init__(self, own: int, vocab: int) -> None:
        self.next = own
        self.number = np.where(np.arange(vocab) < own, np.arange(vocab), -1)

    def __call__(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        new = np.unique(tokens[self.number[tokens] < 0])
        self.number[new] = np.arange(self.next, self.next + new.size)
        self.next += new.size
        return self.number[tokens]


def largest_difference(settings: SimulatorSettings, n: int, steps: int) -> dict[str, float]:
    """Largest difference of each record over some steps on the same draws."""
    torch.manual_seed(0)
    direct, ours = Direct(settings, start_logits(settings), n), TokenSimulator(settings, n)
    numbered = FirstDrawNumbers(ours.next_number, settings.vocab)
    worst = dict.fromkeys(RECORDS, 0.0)
    for _ in range(steps):
        draws = direct.draw()
        record = ours.step(numbered(draws.numpy()))
        for name, theirs in zip(RECORDS, direct.step(draws), strict=True):
            worst[name] = max(worst[name], abs(getattr(record, name) - theirs))
    return worst


def per_step(settings: SimulatorSettings, steps: int) -> list[tuple[int, Times]]:
    """(N, our times a step) at each width, after printing them beside the direct ones."""
    rows = []
    print(f"{'N':>7} {'direct ms':>10} {'(cpu)':>7} {'ours ms':>9} {'(cpu)':>7} {'times':>6}")
    for n in settings.widths:
        torch.manual_seed(0)
        direct, ours = Direct(settings, start_logits(settings), n), TokenSimulator(settings, n)
        rng = generator(0, "benchmark", n)
        sampler = TokenSampler(rng, settings.vocab, settings.correct, np.dtype(settings.dtype))

        def direct_step(direct: Direct = direct) -> None:
            direct.step(direct.draw())

        def our_step(ours: TokenSimulator = ours, sampler: TokenSampler = sampler) -> None:
            ours.step(ours.draw(sampler))

        took = milliseconds(steps // 50, {"direct": direct_step, "ours": our_step})
        theirs, mine = took["direct"], took["ours"]
        print(
            f"{n:7d} {theirs.wall:10.2f} {theirs.cpu:7.2f} {mine.wall:9.2f} {mine.cpu:7.2f} "
            f"{theirs.wall / mine.wall:6.1f}"
        )
        rows.append((n, mine))
    return rows


def copy_bandwidth(bytes_each: int, vectors: int) -> float:
    """Bytes per second read plus written by one core copying vectors of a step's size."""
    sources = [np.ones(bytes_each // 8) for _ in range(vectors)]
    target = np.empty(bytes_each // 8)
    rounds, start = 50, 0.0
    for number in range(rounds + 1):  # the first round touches the pages
        if number == 1:
            start = time.perf_counter()
        for source in sources:
            np.copyto(target, source)
    return 2 * bytes_each * vectors * rounds / (time.perf_counter() - start)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="per side and width")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--workers", type=int, default=2, help="threads of the whole figure")
    parser.add_argument("--torch-threads", type=int, default=1, help="of the direct side")
    args = parser.parse_args(None if arguments is None else list(arguments))
    torch.set_num_threads(args.torch_threads)
    settings = SimulatorSettings(dtype=args.dtype)

    print(f"one step, {args.dtype}, direct on {args.torch_threads} threads, ours on one")
    rows = per_step(settings, args.steps)
    (narrowest, narrow), (widest, wide) = rows[0], rows[-1]
    print(f"N = {widest} over N = {narrowest}: {wide.wall / narrow.wall:.1f} times a step\n")

    print("largest difference from the direct transcription over 20 steps on the same draws")
    for n in settings.widths:
        differences = largest_difference(settings, n, 20)
        print(f"{n:7d} " + "  ".join(f"{k} {v:.1e}" for k, v in differences.items()))

    before = time.perf_counter(), time.process_time()
    simulate([settings], workers=args.workers, on_steps=lambda _: None)
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    print(f"\nthe figure ({args.workers} workers): {wall:.1f} s, {cpu:.1f} s of processor time")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"peak memory of this process, torch included: {peak:.0f} MiB")

    size = settings.vocab * np.dtype(settings.dtype).itemsize
    speed = copy_bandwidth(size, 7)
    floor = 7 * size / speed * 1e3
    print(f"\nlimit: 7 x {size / 1e6:.2f} MB at {speed / 1e9:.0f} GB/s = {floor:.3f} ms a step;")
    for n, mine in rows:
        print(f"{n:7d} {mine.wall / floor:5.1f} times the limit")


if __name__ == "__main__":
    main()
