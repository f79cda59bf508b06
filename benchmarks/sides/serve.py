"""What every side does with its standard input, and how it measures itself."""

import json
import os
import resource
import sys
import time

TINY = {"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "mlp": 512}
"""The tiny policy of all figures: 996,992 weights with the character tokenizer's 100 tokens."""
NO_TOKEN = 1 << 20
"""An EOS that is never sampled: every answer has its full length, on every side."""


def case():
    return json.loads(sys.argv[1])


def say(value):
    print("@" + json.dumps(value), flush=True)


class Meter:
    """Seconds and growth of resident memory over one repeat."""

    def __init__(self):
        self.base = _status("VmRSS")

    def __enter__(self):
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak starts anew
        except OSError:
            pass
        self.cpu, self.wall = _cpu(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.reading = {
            "wall": time.perf_counter() - self.wall,
            "cpu": _cpu() - self.cpu,
            "peak_growth": max(_status("VmHWM") - self.base, 1),
            "rss_before": self.base,
        }


def serve(work):
    """Answer every line with one metered call; what `work` returns is added to the reading."""
    meter = Meter()
    say({"pid": os.getpid()})
    for _ in sys.stdin:
        with meter:
            more = work()
        say(meter.reading | (more or {}))


def booked(owner, name, spent, key):
    """Book the seconds in calls of owner.name under spent[key]; a call within one counts once."""
    real = getattr(owner, name)

    def call(*args, **kwargs):
        start, before = time.perf_counter(), spent[key]
        try:
            return real(*args, **kwargs)
        finally:
            spent[key] = before + time.perf_counter() - start

    setattr(owner, name, call)


def prompt_text(tokens):
    """A text of so many characters, which are tokens of the character tokenizer."""
    words = "the sum of all terms up to n is what was asked for and "
    return (words * (tokens // len(words) + 1))[:tokens]


def _status(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def _cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
