"""Memory of a process: what the allocator keeps after it was freed (mallopt(3)), and who reads it.

glibc raises the threshold for separate mappings, up to 32 MiB, as soon as a larger array was freed.
Masks of millions of rows would then lie between smaller objects on the heap and would never be
returned to the system. Trimming pages from the middle of the heap is impossible, too, because a
proxy locks its memory. Each thread that finds all arenas busy gets a new arena, and other threads
cannot use memory that was freed in it.

numpy asks the system for huge pages for arrays of 4 MiB and more (madvise(2)). The system then
clears 2 MiB where an array's first or last bytes are touched, again for every array that the heap
has given back: half of the time in which columns were read.
"""

from __future__ import annotations

import ctypes
import logging
import sys

log = logging.getLogger(__name__)

# Of <malloc.h> and <sys/prctl.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_PR_SET_DUMPABLE, _PR_SET_THP_DISABLE = 4, 41
#: Arrays of more bytes are returned to the system when they are freed. Queries work with smaller
#: arrays, for which the system would have to find pages each time.
LARGE = 8 << 20
#: Bytes kept free at the end of the heap.
_SPARE = 16 << 20
#: Number of arenas. Threads rarely contend: Python runs one thread at a time, except in numpy and
#: ciphers.
ARENAS = 2


def bound_heap(arenas: int = ARENAS) -> None:
    """Configure glibc's allocator, if it is used, so that freed large arrays are returned to the
    system, and freed small arrays can be used by other threads; and no huge pages in this process
    and its children. Call this before starting threads.

    Args:
        arenas: the maximum number of arenas that threads share.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        log.debug("the system keeps its own size of pages")
    try:
        done = (
            libc.mallopt(_M_MMAP_THRESHOLD, LARGE)
            and libc.mallopt(_M_TRIM_THRESHOLD, _SPARE)
            and libc.mallopt(_M_ARENA_MAX, arenas)
        )
    except AttributeError:
        done = 0
    if not done:
        log.debug("the allocator keeps its own limits")


def forbid_dumps() -> None:
    """No core dumps of this process, and no reading of it by others of the same user."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - Unix alone

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A program that takes dumps from the system (core_pattern) need not keep to the limit.
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.debug("the process stays dumpable")
