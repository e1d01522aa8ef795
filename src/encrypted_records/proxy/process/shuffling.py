"""Random orders: that in which things are asked for would tell how they follow one another."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeVar

from encrypted_records import runtime

T = TypeVar("T")


def shuffled(items: Iterable[T]) -> list[T]:
    """The items in random order."""
    order = list(items)
    # The system is asked once for all of them: once for each takes longer than all else here.
    draws = struct.unpack(f"{len(order)}Q", runtime.random_bytes(8 * len(order)))
    return [item for _, item in sorted(zip(draws, order, strict=True), key=itemgetter(0))]
