"""Memory that torch frees on the CPU stays with the process, where the C library is glibc.

A step of sampling allocates and frees the same few megabytes of scores in every layer. By default
glibc gives such blocks back to the kernel, which hands them out again page by page, each cleared
and mapped anew: 6,000 page faults in a generation of 512 answers. What is kept is bounded by what
was in use at once.
"""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST_FROM_HEAP = 32 << 20  # bytes; glibc allows no more
_KEPT_ON_TOP = 512 << 20


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed blocks for reuse; whether it agreed.

    Nothing is changed where the environment sets MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ or
    GLIBC_TUNABLES, or where the C library is another one.
    """
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    if not sys.platform.startswith("linux") or any(name in os.environ for name in own):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - absent elsewhere; musl's mallopt does nothing
        tuned = [
            library.mallopt(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP),
            library.mallopt(_TRIM_THRESHOLD, _KEPT_ON_TOP),
        ]
    except (OSError, AttributeError):
        return False
    return all(tuned)
