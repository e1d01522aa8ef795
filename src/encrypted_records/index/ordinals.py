"""Sets of local ordinals, made of columns' entries: roaring bitmaps, built without a loop.

Set operations on roaring bitmaps take microseconds at a million rows. Adding half a million
ordinals in the order of a column takes 16 ms, though, and takes 2 here, through a mask.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

Ordinals = NDArray[np.uint32]

#: Below this many, adding one by one is quicker than a mask.
_MASK_FROM = 4096
#: The portable format (RoaringFormatSpec): chunks of 2**16, as lists up to 4,096 members.
_COOKIE = 12346
_CHUNK = 1 << 16
_LONGEST_LIST = 4096
#: Rows of a large segment that are looked at together.
PIECE = 1 << 20


def bitmap(*ordinals: Ordinals) -> BitMap:
    """The set of all these ordinals, which may come in any order."""
    held = [some for some in ordinals if len(some)]
    if sum(map(len, held)) <= _MASK_FROM:
        return BitMap(array("I", b"".join(some.astype(np.uint32).tobytes() for some in held)))
    highest = max(int(some.max()) for some in held)
    mask = np.zeros(-(-(highest + 1) // _CHUNK) * _CHUNK, np.bool_)
    for some in held:
        # numpy takes twice as long over indices of another width than its own.
        mask[some.astype(np.intp)] = True
    return of_mask(mask)


def of_mask(mask: NDArray[np.bool_]) -> BitMap:
    """The set of the ordinals at which ``mask`` is true."""
    if len(mask) % _CHUNK:
        mask = np.concatenate((mask, np.zeros(-len(mask) % _CHUNK, np.bool_)))
    heads: list[bytes] = []
    bodies: list[bytes] = []
    for number, chunk in enumerate(mask.reshape(-1, _CHUNK)):
        members = int(np.count_nonzero(chunk))
        if not members:
            continue
        heads.append(struct.pack("<HH", number, members - 1))
        if members <= _LONGEST_LIST:
            bodies.append(np.flatnonzero(chunk).astype("<u2").tobytes())
        else:
            bodies.append(np.packbits(chunk, bitorder="little").tobytes())
    if not bodies:
        return BitMap()
    start = struct.calcsize("<II") + len(bodies) * struct.calcsize("<HHI")
    sizes = [len(body) for body in bodies]
    offsets = start + np.cumsum([0, *sizes[:-1]])
    return BitMap.deserialize(
        struct.pack("<II", _COOKIE, len(bodies))
        + b"".join(heads)
        + offsets.astype("<u4").tobytes()
        + b"".join(bodies)
    )


def ordinals(rows: BitMap) -> Ordinals:
    """The members, ascending."""
    return np.frombuffer(rows.to_array(), np.uint32)


def mask_of(rows: BitMap, size: int) -> NDArray[np.bool_]:
    """Of each ordinal below ``size``, whether it is one of ``rows``."""
    mask = np.zeros(size, np.bool_)
    for some in in_pieces(rows):
        mask[some] = True
    return mask


def in_pieces(rows: BitMap, size: int = PIECE) -> Iterator[Ordinals]:
    """The members, ascending, up to ``size`` at a time."""
    if not rows:
        return
    for first in range(rows.min() // size * size, rows.max() + 1, size):
        some = ordinals(rows & BitMap(range(first, first + size)))
        if len(some):
            yield some
