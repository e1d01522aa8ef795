"""Secrecy of this process: private memory, names of credentials, and random orders.

The measures of the operating system are not needed for correct work, and not every system has them:
a refused measure is logged at debug level, and the proxy continues. Against root, or a user who can
attach a debugger, nothing here helps.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import struct
import sys
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography.hazmat.primitives import hashes, hmac

from encrypted_records import runtime

T = TypeVar("T")

log = logging.getLogger(__name__)


# Constants of <sys/prctl.h>, <sys/mman.h> and <linux/capability.h>.
_PR_SET_DUMPABLE = 4
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_CAP_IPC_LOCK = 14


def harden() -> None:
    """No core dumps of this process, no reading of it by others of the same user, no swap."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - Unix alone

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.debug("the process stays dumpable: error %d", ctypes.get_errno())
    # Under a limit, locking future mappings would make ordinary allocations fail.
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY
    if not (unlimited or _may_lock()):
        log.debug("memory is not locked: the limit on locked memory is too low")
    # Pages are locked when they are used; unused mappings cost no memory.
    elif libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) != 0:
        log.debug("memory is not locked: error %d", ctypes.get_errno())


def _may_lock() -> bool:
    """Whether this process has the capability to lock memory beyond limits."""
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    return False


# --- names ----------------------------------------------------------------------------------------


class SecretNames:
    """Names for secrets: data about a credential is stored under its HMAC. The key is made by this
    process and never leaves it.
    """

    def __init__(self) -> None:
        self._key = runtime.random_bytes(32)

    def of(self, parts: Sequence[str]) -> bytes:
        """The name of a secret with these parts: 32 bytes."""
        state = hmac.HMAC(self._key, hashes.SHA256())
        state.update(msgspec.msgpack.encode(parts))
        return state.finalize()


# --- orders ---------------------------------------------------------------------------------------


def shuffled(items: Iterable[T]) -> list[T]:
    """The items in random order: the order of requests would reveal the order of the items."""
    order = list(items)
    # One system call for all items: a call per item takes longer than the rest of this function.
    draws = struct.unpack(f"{len(order)}Q", runtime.random_bytes(8 * len(order)))
    return [item for _, item in sorted(zip(draws, order, strict=True), key=itemgetter(0))]
