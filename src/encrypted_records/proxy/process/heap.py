"""What the memory allocator keeps of what was freed (mallopt(3)).

glibc raises the size from which on an array gets a mapping of its own as soon as a larger one was
freed, up to 32 MiB. So masks of millions of rows would come to lie between smaller things, and
nothing of them would go back to the system. It cannot be told to give pages back from between,
either: this process locks its memory (:mod:`.hardening`).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import sys

log = logging.getLogger(__name__)

# Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Arrays of more bytes go back to the system once they are freed. The work of questions is in
#: smaller ones, for which the system would have to find pages each time.
LARGE = 8 << 20
#: How much is kept at the end of the heap.
_SPARE = 16 << 20


def give_back_large() -> None:
    """Have what is freed of large arrays go back to the system, where glibc is what allocates."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    try:
        done = libc.mallopt(_M_MMAP_THRESHOLD, LARGE) and libc.mallopt(_M_TRIM_THRESHOLD, _SPARE)
    except AttributeError:
        done = 0
    if not done:
        log.debug("the allocator keeps its own limits")
