"""Freed memory stays with the process: page faults counted by the kernel."""

import os
import subprocess
import sys

import pytest

COUNT = """
import ctypes, resource, sys
from brorl.policy.allocator import keep_freed_memory
agreed = keep_freed_memory() if sys.argv[1] == "kept" else None
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def work():
    held = [libc.malloc(20 << 20) for _ in range(5)]
    for block in held:
        libc.memset(block, 1, 20 << 20)
    for block in held:
        libc.free(block)
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    work()
print(agreed, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count(how, **more):
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, how], capture_output=True, text=True, timeout=120,
        check=True, env=os.environ | more,
    )  # fmt: skip
    agreed, faults = ran.stdout.split()
    return agreed, int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_blocks_that_come_and_go_cost_no_page_faults():
    """Count: four rounds of 100 MiB are 102,400 pages of 4 KiB; kept, none is mapped again."""
    agreed, faults = count("kept")
    if agreed == "False":
        pytest.skip("the C library is not glibc")
    assert faults < 100
    assert count("given back")[1] > 1000  # huge pages are few; otherwise there is nothing to keep


def test_what_the_environment_sets_is_left_alone():
    assert count("kept", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
