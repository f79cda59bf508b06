"""Items of data sets that depend on Python's hash seed, from a process whose hash seed is fixed.

A few generators iterate over sets of strings, so that the same seed gives other items in every
process: a resumed run would go on with another training set, and a grader process would judge
against another item. They are generated in one child with PYTHONHASHSEED=0, kept for the life of
this process; it ends when its input is closed.
"""

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
from typing import Any

from brorl.errors import VerifierError

_LOCK = threading.Lock()


@functools.lru_cache(maxsize=1)
def _child() -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "brorl.verify.reasoning_gym_child"],
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_end, child)
    return child


def _end(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.kill()
    child.wait()
    with contextlib.suppress(OSError):  # what was not yet written to a dead process
        child.stdin.close()
    child.stdout.close()


def _ask(request: str) -> str:
    """One line of answer; nothing, and no child any more, where it has ended."""
    child = _child()
    assert child.stdin is not None
    assert child.stdout is not None
    line = ""
    with contextlib.suppress(OSError):
        child.stdin.write(request)
        child.stdin.flush()
        line = child.stdout.readline()
    if not line:
        _child.cache_clear()
        atexit.unregister(_end)  # of every child so far: the others are ended already
        _end(child)
    return line


def item_with_fixed_hashes(name: str, config: str, seed: int, index: int) -> dict[str, Any]:
    """One item, its metadata in JSON types.

    Raises:
        IndexError: the generator has no such item.
        VerifierError: the child failed.
    """
    request = json.dumps([name, config, seed, index]) + "\n"
    with _LOCK:
        # A child that somebody killed is replaced once: all it needs is in the request.
        line = _ask(request) or _ask(request)
    if not line:
        raise VerifierError(f"reasoning_gym {name}: the generating process ended, twice")
    answer = json.loads(line)
    if "error" in answer:
        raise IndexError(answer["error"])
    return dict(answer)


def _serve() -> None:
    """Read requests from standard input, answer one line each, until the input is closed."""
    from brorl.verify.reasoning_gym import generate_here

    for line in sys.stdin:
        name, config, seed, index = json.loads(line)
        try:
            answer = generate_here(name, config, seed, index)
        except IndexError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
