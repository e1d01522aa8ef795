"""Data pages: a sorted column cut into contents that fill pages of one size (SPEC 6.2).

Every sealed page has 16 KiB, whatever its content. A page has entries of either absent rows or
present rows, as many as fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import packing
from encrypted_records.index.columns.column import (
    Column,
    EntryBlock,
    Keys,
    in_order,
    key_type,
    run_starts,
    stored_key_type,
)
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.ciphertext_lengths import TAG_BYTES
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.records import PAGE_BYTES

_LENGTH = struct.Struct(">H")
_ORDINAL = np.dtype(">u4")
#: Plaintext bytes of a page; sealing adds a version byte and a tag.
PLAIN_BYTES = PAGE_BYTES - 1 - TAG_BYTES
#: Bytes of content in a page, after the length.
CAPACITY = PLAIN_BYTES - _LENGTH.size

#: Bytes from which a packed page is full enough not to be tried with more entries.
_FULL = 0.96 * CAPACITY
_TRIES = 8
#: Number of entries with which the first packed page of a column is tried.
FIRST_GUESS = CAPACITY // 8


def frame(content: bytes) -> bytes:
    """The plaintext of a page: the content's length, the content, zeros."""
    assert len(content) <= CAPACITY
    return (_LENGTH.pack(len(content)) + content).ljust(PLAIN_BYTES, b"\0")


def unframe(plain: bytes) -> bytes:
    """Undo :func:`frame`.

    Raises:
        DoesNotOpen: not the plaintext of a page.
    """
    if len(plain) != PLAIN_BYTES:
        raise DoesNotOpen("a page has another size")
    (length,) = _LENGTH.unpack_from(plain)
    end = _LENGTH.size + length
    if length > CAPACITY or plain.count(0, end) != len(plain) - end:
        raise DoesNotOpen("a page holds more than its content")
    return plain[_LENGTH.size : end]


@dataclass(frozen=True, slots=True)
class PageCut:
    """The content of one data page, and the position in the column at which its last entry ends."""

    end: int
    content: bytes


def entries_per_page(kind: KeyKind, *, present: bool) -> int:
    """The number of entries of a page that is not packed."""
    width = stored_key_type(kind).itemsize if present else 0
    return CAPACITY // (_ORDINAL.itemsize + width)


def cut(column: Column, kind: KeyKind, *, packed: bool, most: int) -> Iterator[PageCut]:
    """The column's pages, absent rows first.

    Args:
        most: entries that a page may hold, however many would fit.
    """
    if packed:
        yield from _cut_packed(column, most)
        return
    size = min(most, entries_per_page(kind, present=False))
    for first in range(0, column.absent, size):
        rows = column.ordinals[first : min(first + size, column.absent)]
        yield PageCut(first + len(rows), lay_plain(rows, column.keys[:0], kind))
    size = min(most, entries_per_page(kind, present=True))
    for first in range(0, column.present, size):
        last = min(first + size, column.present)
        content = lay_plain(column.rows(first, last), column.keys[first:last], kind)
        yield PageCut(column.absent + last, content)


def lay_plain(rows: Ordinals, keys: Keys, kind: KeyKind) -> bytes:
    """The content of a page that is not packed; absent rows have no keys."""
    return rows.astype(_ORDINAL).tobytes() + keys.astype(stored_key_type(kind)).tobytes()


def _cut_packed(column: Column, most: int) -> Iterator[PageCut]:
    most = min(most, packing.MAX_ENTRIES)
    missing = column.absent_rows()

    def pack_missing(first: int, last: int) -> bytes:
        return packing.compress(packing.pack_ordinals(missing[first:last]))

    yield from _fill(len(missing), most, pack_missing, 0)
    if column.present:
        (entries,) = column.entries(0, column.present)
        packer = packing.Packer(entries)
        yield from _fill(column.present, most, packer.pack, column.absent)


def _fill(total: int, most: int, pack: Callable[[int, int], bytes], base: int) -> Iterator[PageCut]:
    """Pages as full as a few tries make them; each begins where the previous page ends."""
    first = 0
    guess = FIRST_GUESS
    while first < total:
        left = min(most, total - first)
        taken, content = choose_fullest(first, left, min(guess, left), pack)
        first += taken
        guess = taken
        yield PageCut(base + first, content)


def choose_fullest(
    first: int, left: int, guess: int, pack: Callable[[int, int], bytes]
) -> tuple[int, bytes]:
    """The number of entries, 1 to ``left``, that fill a page well, and their content."""
    best, too_many = (0, b""), left + 1
    tries = 0
    while True:
        tries += 1
        content = pack(first, first + guess)
        fits = len(content) <= CAPACITY
        if fits:
            best = (guess, content)
        else:
            too_many = guess
        if best[0] and (best[0] == too_many - 1 or len(best[1]) >= _FULL or tries >= _TRIES):
            return best
        # Slightly less than the size so far suggests: a page that is too full is a wasted try.
        promised = int(guess * CAPACITY / len(content) * 0.985)
        guess = min(max(promised, best[0] + 1), too_many - 1)


def open_block(
    content: bytes, kind: KeyKind, count: int, *, present: bool, packed: bool
) -> EntryBlock:
    """Undo :func:`cut` for a page of ``count`` entries, accepting only entries in order.

    Raises:
        DoesNotOpen: not the content of such a page.
    """
    if not present:
        ordinals = _absent_rows(content, count, packed=packed)
        keys: Keys = np.zeros(0, key_type(kind))
        starts = np.zeros(0, np.uint32)
        if not in_order(ordinals, keys):
            raise DoesNotOpen("a page's absent rows are not in order")
        return EntryBlock(ordinals, keys, starts)
    if packed:
        ordinals, keys, starts = packing.unpack(content, kind, count)
        ordered = bool((keys[:-1] < keys[1:]).all())
        if ordered and len(keys) < count:  # otherwise each key has a single entry
            rising = ordinals[:-1] < ordinals[1:]
            rising[starts[1:].astype(np.intp) - 1] = True
            ordered = bool(rising.all())
        if not ordered:
            raise DoesNotOpen("a page's entries are not in order")
        return EntryBlock(ordinals, keys, starts)
    if len(content) != count * (_ORDINAL.itemsize + stored_key_type(kind).itemsize):
        raise DoesNotOpen("a page has other entries than its directory says")
    ordinals = np.frombuffer(content, _ORDINAL, count).astype(np.uint32)
    all_keys = np.frombuffer(content, stored_key_type(kind), count, ordinals.nbytes)
    if not in_order(ordinals, all_keys):
        raise DoesNotOpen("a page's entries are not in order")
    begins = run_starts(all_keys)
    return EntryBlock(ordinals, all_keys[begins].astype(key_type(kind)), begins.astype(np.uint32))


def _absent_rows(content: bytes, count: int, *, packed: bool) -> Ordinals:
    if not packed:
        if len(content) != count * _ORDINAL.itemsize:
            raise DoesNotOpen("a page has other entries than its directory says")
        return np.frombuffer(content, _ORDINAL).astype(np.uint32)
    if not 1 <= count <= packing.MAX_ENTRIES:
        raise DoesNotOpen("a packed page has no entries, or too many")
    raw = packing.decompress(content, count * _ORDINAL.itemsize)
    if len(raw) != count * _ORDINAL.itemsize:
        raise DoesNotOpen("a page has other entries than its directory says")
    return packing.unpack_ordinals(raw, count)
