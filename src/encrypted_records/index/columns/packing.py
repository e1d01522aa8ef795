"""The packed content of a data page: deltas, byte planes, front coding, zstd (SPEC 6.2.2).

Used only in segments of more than 65,536 rows. In smaller segments, a user who can insert records
next to a secret could learn it from sizes, so their pages are not compressed.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_BYTES
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import EntryBlock, Keys, key_type
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.field_types.base import KeyKind

#: Maximum entries of a packed page, however well they compress; it bounds a reader's memory.
MAX_ENTRIES = 1 << 16
_RUNS = struct.Struct(">I")
_LEVEL = 3
#: Up to this many texts, the overhead of numpy's calls exceeds the work.
_FEW_TEXTS = 64
_of_thread = threading.local()

Bytes = NDArray[np.uint8]


def compress(data: bytes) -> bytes:
    """A zstd frame (RFC 8878) without content size and checksum, which the page already has."""
    # Creating a compressor for each page takes half as long as compressing the page.
    compressor = getattr(_of_thread, "compressor", None)
    if compressor is None:
        compressor = _of_thread.compressor = zstandard.ZstdCompressor(
            level=_LEVEL, write_content_size=False, write_checksum=False
        )
    compressed: bytes = compressor.compress(data)
    return compressed


def decompress(data: bytes, most: int) -> bytes:
    """Undo :func:`compress` for content of at most ``most`` bytes.

    Raises:
        DoesNotOpen: not such a frame, or its content is longer.
    """
    try:
        # A frame with a stated content size would be unpacked regardless of the limit.
        if zstandard.frame_content_size(data) != -1:
            raise DoesNotOpen("a packed page states a size")
        # Creating a decompressor for each page takes twice as long as decompressing the page.
        decompressor = getattr(_of_thread, "decompressor", None)
        if decompressor is None:
            decompressor = _of_thread.decompressor = zstandard.ZstdDecompressor()
        content: bytes = decompressor.decompress(data, max_output_size=most)
    except zstandard.ZstdError:
        raise DoesNotOpen("a packed page does not unpack") from None
    return content


def pack_ordinals(ordinals: Ordinals) -> bytes:
    """Four byte planes of the zigzag differences between neighbours, modulo 2**32."""
    steps = np.diff(ordinals, prepend=np.uint32(0)).view(np.int32)
    return _planes(((steps << 1) ^ (steps >> 31)).view(np.uint32))


def unpack_ordinals(data: bytes, count: int, at: int = 0) -> Ordinals:
    """Undo :func:`pack_ordinals` for the planes that begin at ``at``."""
    folded = _from_planes(data, count, np.dtype(np.uint32), at)
    steps = folded >> np.uint32(1)
    # All bits are set if the step is negative. In place, because allocation costs more than
    # arithmetic.
    folded &= np.uint32(1)
    np.negative(folded, out=folded)
    steps ^= folded
    return np.cumsum(steps, dtype=np.uint32)


def _planes(numbers: NDArray[np.unsignedinteger]) -> bytes:
    """All lowest bytes, then all next bytes: planes that hardly change compress well."""
    width = numbers.dtype.itemsize
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, width).T.tobytes()


def _from_planes(data: bytes, count: int, kind: np.dtype[Any], at: int) -> NDArray[Any]:
    """Undo :func:`_planes` for ``count`` numbers whose planes begin at ``at``."""
    planes = np.frombuffer(data, np.uint8, kind.itemsize * count, at).reshape(-1, count)
    numbers: NDArray[Any] = planes[0].astype(kind)
    # Plane by plane, because transposing takes numpy twice as long. Most planes are zeros.
    for number in np.flatnonzero(planes[1:].max(axis=1)).tolist():
        plane = planes[number + 1].astype(kind)
        plane <<= kind.type(8 * (number + 1))
        numbers |= plane
    return numbers


class Packer:
    """Packs any range of these entries of one sorted column."""

    def __init__(self, entries: EntryBlock) -> None:
        self._ordinals = entries.ordinals
        # Of the width that searching uses without conversion.
        self._starts = entries.starts.astype(np.intp)
        self._distinct = entries.keys
        if self._distinct.dtype.kind == "S":
            self._lengths = np.strings.str_len(self._distinct).astype(np.uint8)
            shared = _shared_prefixes(self._distinct)
            # A key ends where only padding follows, and the next key may continue with the same
            # byte, as the tail of a longer string can: that byte is not shared.
            shared[1:] = np.minimum(shared[1:], self._lengths[:-1])
            self._shared = shared

    def pack(self, first: int, last: int) -> bytes:
        """The entries first..last-1, compressed."""
        start = int(np.searchsorted(self._starts, first, "right")) - 1
        end = int(np.searchsorted(self._starts, last, "left"))
        edges = np.append(np.maximum(self._starts[start:end], first), last)
        counts = (np.diff(edges) - 1).astype(np.uint16)
        parts = [
            _RUNS.pack(end - start),
            pack_ordinals(self._ordinals[first:last]),
            _planes(counts),
            self._keys(start, end),
        ]
        return compress(b"".join(parts))

    def _keys(self, start: int, end: int) -> bytes:
        keys = self._distinct[start:end]
        if keys.dtype.kind != "S":
            return _planes(np.diff(keys, prepend=np.uint64(0)))
        shared, lengths = self._shared[start:end].copy(), self._lengths[start:end]
        shared[0] = 0
        suffixes = matrix(keys)[_between(shared, lengths, keys.dtype.itemsize)]
        return shared.tobytes() + (lengths - shared).tobytes() + suffixes.tobytes()


def unpack(data: bytes, kind: KeyKind, count: int) -> tuple[Ordinals, Keys, Ordinals]:
    """Undo :meth:`Packer.pack` for ``count`` entries.

    Returns:
        ordinals of the entries; the distinct keys; where the entries of each key begin.

    Raises:
        DoesNotOpen: not the packing of that many entries.
    """
    if not 1 <= count <= MAX_ENTRIES:
        raise DoesNotOpen("a packed page has no entries, or too many")
    raw = decompress(data, _RUNS.size + count * (4 + 2 + max(8, 2 + INDEX_KEY_BYTES)))
    if len(raw) < _RUNS.size:
        raise DoesNotOpen("a packed page is cut short")
    (runs,) = _RUNS.unpack_from(raw)
    counts_at = _RUNS.size + 4 * count
    keys_at = counts_at + 2 * runs
    if not 1 <= runs <= count or len(raw) < keys_at:
        raise DoesNotOpen("a packed page has an impossible number of values")
    ordinals = unpack_ordinals(raw, count, _RUNS.size)
    lengths = _from_planes(raw, runs, np.dtype(np.uint16), counts_at).astype(np.uint32)
    lengths += np.uint32(1)
    # At most 2**16 values with 2**16 entries each: only if all are maximal is the sum 0 modulo
    # 2**32.
    starts = np.cumsum(lengths, dtype=np.uint32)
    if starts[-1] != count:
        raise DoesNotOpen("a packed page's values have other entries than it has")
    starts -= lengths
    if kind.of_bytes:
        return ordinals, _texts(raw[keys_at:], runs, key_type(kind).itemsize), starts
    if len(raw) != keys_at + 8 * runs:
        raise DoesNotOpen("a packed page's keys have another length")
    steps = _from_planes(raw, runs, np.dtype(np.uint64), keys_at)
    return ordinals, np.cumsum(steps, dtype=np.uint64), starts


def _texts(data: bytes, runs: int, width: int) -> Keys:
    """Keys as wide as the longest: working at the full width takes several times as long."""
    if len(data) < 2 * runs:
        raise DoesNotOpen("a packed page's keys have another length")
    heads = np.frombuffer(data, np.uint8, 2 * runs)
    shared, suffixes = heads[:runs], heads[runs:]
    lengths = shared.astype(np.int64) + suffixes
    if shared[0] or np.any(lengths > width) or np.any(shared[1:] > lengths[:-1]):
        raise DoesNotOpen("a packed page's keys share more than is possible")
    if len(data) != 2 * runs + int(suffixes.sum(dtype=np.int64)):
        raise DoesNotOpen("a packed page's keys have another length")
    suffix_bytes = data[2 * runs :]
    if runs <= _FEW_TEXTS:
        return np.array([*_texts_one_by_one(shared.tolist(), suffixes.tolist(), suffix_bytes)])
    # At least 1, as in all types of numpy. Several empty texts are refused as not in order.
    longest = max(1, int(lengths.max()))
    text_bytes = np.zeros((runs, longest), np.uint8)
    # Where each text's suffix begins, minus its offset in the data.
    begins = np.arange(runs) * longest + shared - (np.cumsum(suffixes, dtype=np.int64) - suffixes)
    places = np.repeat(begins, suffixes)
    places += np.arange(len(suffix_bytes))
    text_bytes.reshape(-1)[places] = np.frombuffer(suffix_bytes, np.uint8)
    #: the number of texts that share at most a given number of bytes
    sharing = np.cumsum(np.bincount(shared)).tolist()
    for offset, count in enumerate(sharing[:-1]):
        # A key that shares this byte copies it from the nearest earlier key that does not share it.
        if count == 1:
            text_bytes[:, offset] = text_bytes[0, offset]
            continue
        new = np.flatnonzero(shared <= offset)
        ends = np.append(new[1:], runs)
        ends -= new
        text_bytes[:, offset] = np.repeat(text_bytes[new, offset], ends)
    return text_bytes.view(f"S{longest}").reshape(-1)


def _texts_one_by_one(
    shared: Sequence[int], suffixes: Sequence[int], suffix_bytes: bytes
) -> Iterator[bytes]:
    text, at = b"", 0
    for same, more in zip(shared, suffixes, strict=True):
        text = text[:same] + suffix_bytes[at : at + more]
        at += more
        yield text


def matrix(keys: NDArray[np.bytes_]) -> Bytes:
    """Texts as a matrix with a row of bytes for each."""
    return np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), keys.dtype.itemsize)


def _between(
    first: NDArray[np.integer], last: NDArray[np.integer], width: int
) -> NDArray[np.bool_]:
    """A mask of the first ``width`` bytes of each text, 255 at most: those from its ``first`` to
    below its ``last``.
    """
    # One byte per element: wider numbers take several times as long.
    offsets = np.arange(width, dtype=np.uint8)
    begins, ends = first.astype(np.uint8)[:, None], last.astype(np.uint8)[:, None]
    return (offsets >= begins) & (offsets < ends)


def _shared_prefixes(keys: NDArray[np.bytes_]) -> Bytes:
    """The length of the prefix that each of these distinct texts shares with the previous text."""
    shared = np.zeros(len(keys), np.uint8)
    rows = matrix(keys)
    # In pieces, because the comparison array is as large as the keys.
    for first in range(1, len(keys), MAX_ENTRIES):
        last = min(first + MAX_ENTRIES, len(keys))
        differs = rows[first:last] != rows[first - 1 : last - 1]
        shared[first:last] = differs.argmax(axis=1)
    return shared
