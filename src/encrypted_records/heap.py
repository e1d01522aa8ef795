"""Memory that the allocator keeps after it was freed (mallopt(3)).

glibc raises the size from which on an array gets a mapping of its own as soon as a larger one was
freed, up to 32 MiB. So masks of millions of rows would come to lie between smaller things, and
nothing of them would go back to the system. It cannot be told to give pages back from between,
either: a proxy locks its memory. And each thread that finds all others at work gets an arena of its
own, of which no other thread uses what was freed there.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import sys

log = logging.getLogger(__name__)

# Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Arrays of more bytes go back to the system once they are freed. The work of questions is in
#: smaller ones, for which the system would have to find pages each time.
LARGE = 8 << 20
#: How much is kept at the end of the heap.
_SPARE = 16 << 20
#: Between which threads are divided: Python runs one at a time, but where numpy or a cipher works.
ARENAS = 2


def bound_heap(arenas: int = ARENAS) -> None:
    """Configure glibc's allocator, if it is used, so that freed large arrays are returned to the
    system, and freed small ones to other threads. Call this before starting threads.

    Args:
        arenas: between which threads are divided.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
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
