"""Bytes that arrays take in memory, with what they hold on to."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

#: About what Python and its allocator take for one object beside its content.
OBJECT_BYTES = 112


def measure(*arrays: NDArray[Any]) -> int:
    """Bytes of these arrays; of a view, those of the whole buffer that it keeps alive."""
    return sum(_measure(array) for array in arrays)


def _measure(array: NDArray[Any]) -> int:
    held: Any = array
    while getattr(held, "base", None) is not None:
        held = held.base
    if held is array:
        return int(array.nbytes) + OBJECT_BYTES
    size = held.nbytes if hasattr(held, "nbytes") else len(held)
    return int(max(array.nbytes, size)) + 2 * OBJECT_BYTES
