"""A column's directory: which page holds what, and where each value begins (SPEC 6.2.3).

This is what is stored. What is held of it, and asked, is its outline (:mod:`.outline`). Columns of
few distinct values list where each begins; counts, distinct values and groups then need no data
page.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import packing
from encrypted_records.index.columns.column import (
    Column,
    Keys,
    key_type,
    run_starts,
    stored_key_type,
)
from encrypted_records.index.columns.pages import CAPACITY, entries_per_page
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.field_types.base import KeyKind

#: Distinct values whose beginnings a directory lists.
MAX_RUNS = 4096
_COUNT = struct.Struct(">I")
_HEAD = struct.Struct(">II")
_U32 = np.dtype(">u4")


@dataclass(frozen=True, eq=False, slots=True)
class Directory:
    """A directory of ``P`` pages, in the order of the column.

    ``ends[i]`` is how many entries the pages up to ``i`` hold. ``firsts`` and ``lasts`` are the
    outermost keys of the pages of present rows, of which there are ``len(firsts)``: the last ones.
    ``runs`` are the distinct keys and ``starts`` how many present entries lie before each, where
    ``listed`` says that they are given.
    """

    absent: int
    numbers: Ordinals
    ends: Ordinals
    firsts: Keys
    lasts: Keys
    listed: bool
    runs: Keys
    starts: Ordinals

    @property
    def leading(self) -> int:
        """The number of pages of absent rows."""
        return len(self.ends) - len(self.firsts)


def most_runs(count: int) -> int:
    """The largest number of distinct values that a directory over ``count`` rows may list."""
    return min(MAX_RUNS, count // 16)


@dataclass(frozen=True, slots=True)
class PageCounts:
    """The number of pages of a column that is not packed, by the number of rows and type alone."""

    data: int
    directory: int


def count_pages(kind: KeyKind, count: int, most: int) -> PageCounts:
    """Pages for any column of ``count`` rows, whatever is in it.

    Args:
        most: entries that a page may hold, however many would fit.
    """
    size = min(most, entries_per_page(kind, present=True))
    # A page that absent and present rows would have shared makes one more.
    data = -(-count // size) + 1
    width = stored_key_type(kind).itemsize
    listed = most_runs(count) * (_U32.itemsize + width)
    head = _COUNT.size + _HEAD.size
    return PageCounts(
        data, -(-(head + data * (2 * _U32.itemsize + 2 * width) + listed) // CAPACITY)
    )


def build(column: Column, ends: list[int], count: int) -> Directory:
    """The directory of ``column`` over ``count`` rows, cut at ``ends``; page numbers are zero."""
    edges = np.array(ends, np.uint32)
    bounds = edges[edges > column.absent].astype(np.int64) - column.absent
    begins = np.concatenate(([0], bounds[:-1])) if len(bounds) else bounds
    starts = run_starts(column.keys)
    listed = len(starts) <= most_runs(count)
    if not listed:
        starts = starts[:0]
    return Directory(
        absent=column.absent,
        numbers=np.zeros(len(edges), np.uint32),
        ends=edges,
        firsts=column.keys[begins],
        lasts=column.keys[bounds - 1],
        listed=listed,
        runs=column.keys[starts],
        starts=starts.astype(np.uint32),
    )


def encode(directory: Directory, kind: KeyKind, *, packed: bool) -> bytes:
    """The number of pages and their numbers, then the rest, compressed where pages are.

    The numbers stay outside, so that the length does not depend on the permutation.
    """
    stored = stored_key_type(kind)
    runs = len(directory.runs) + 1 if directory.listed else 0
    rest = b"".join(
        (
            _HEAD.pack(directory.absent, runs),
            directory.ends.astype(_U32).tobytes(),
            directory.firsts.astype(stored).tobytes(),
            directory.lasts.astype(stored).tobytes(),
            directory.starts.astype(_U32).tobytes(),
            directory.runs.astype(stored).tobytes(),
        )
    )
    numbers = directory.numbers.astype(_U32).tobytes()
    head = _COUNT.pack(len(directory.numbers))
    return head + numbers + (packing.compress(rest) if packed else rest)


def decode(data: bytes, kind: KeyKind, *, count: int, pages: int, packed: bool) -> Directory:
    """Undo :func:`encode` for a column of ``count`` rows in a segment of ``pages`` pages. Of words,
    ``count`` is for how many entries there is room.

    Raises:
        DoesNotOpen: not a directory of such a column.
    """
    if len(data) < _COUNT.size:
        raise DoesNotOpen("a directory is cut short")
    (held,) = _COUNT.unpack_from(data)
    at = _COUNT.size + _U32.itemsize * held
    if held > pages or len(data) < at:
        raise DoesNotOpen("a directory names more pages than exist")
    numbers = np.frombuffer(data, _U32, held, _COUNT.size).astype(np.uint32)
    if np.any(numbers >= pages) or len(np.unique(numbers)) != held:
        raise DoesNotOpen("a directory names pages that do not exist, or a page twice")
    width = stored_key_type(kind).itemsize
    rest = data[at:]
    if packed:
        most = _HEAD.size + held * (4 + 2 * width) + most_runs(count) * (4 + width)
        rest = packing.decompress(rest, most)
    return _read(_ArrayReader(rest, kind), numbers, count, full=kind is not KeyKind.WORDS)


class _ArrayReader:
    """Takes arrays off the front of bytes."""

    def __init__(self, data: bytes, kind: KeyKind) -> None:
        self._data = data
        self._kind: KeyKind = kind
        self._at = 0

    def head(self) -> tuple[int, int]:
        if len(self._data) < _HEAD.size:
            raise DoesNotOpen("a directory is cut short")
        self._at = _HEAD.size
        absent, runs = _HEAD.unpack_from(self._data)
        return absent, runs

    def numbers(self, count: int) -> Ordinals:
        return self._take(_U32, count).astype(np.uint32)

    def keys(self, count: int) -> Keys:
        return self._take(stored_key_type(self._kind), count).astype(key_type(self._kind))

    def _take(self, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        end = self._at + kind.itemsize * count
        if end > len(self._data):
            raise DoesNotOpen("a directory is cut short")
        array = np.frombuffer(self._data, kind, count, self._at)
        self._at = end
        return array

    def end(self) -> None:
        if self._at != len(self._data):
            raise DoesNotOpen("a directory is longer than it says")


def _read(reader: _ArrayReader, numbers: Ordinals, count: int, *, full: bool) -> Directory:
    absent, runs = reader.head()
    ends = reader.numbers(len(numbers))
    rising = np.diff(ends.astype(np.int64), prepend=0)
    held = int(ends[-1]) if len(ends) else 0
    if np.any(rising <= 0) or absent > count or held > count or (full and held != count):
        raise DoesNotOpen("a directory's pages hold other entries than its segment")
    leading = int(np.searchsorted(ends, absent, "left")) + 1 if absent else 0
    if absent and ends[leading - 1] != absent:
        raise DoesNotOpen("a directory has absent and present rows in one page")
    firsts = reader.keys(len(ends) - leading)
    lasts = reader.keys(len(ends) - leading)
    if np.any(firsts > lasts) or np.any(lasts[:-1] > firsts[1:]):
        raise DoesNotOpen("a directory's pages are not in order")
    listed = runs > 0
    starts = reader.numbers(max(0, runs - 1))
    listing = reader.keys(len(starts))
    reader.end()
    directory = Directory(absent, numbers, ends, firsts, lasts, listed, listing, starts)
    if listed:
        _check_runs(directory)
    return directory


def _check_runs(directory: Directory) -> None:
    """Values in order, and at the pages' edges the values that the pages begin and end with."""
    starts, runs = directory.starts.astype(np.int64), directory.runs
    present = (int(directory.ends[-1]) if len(directory.ends) else 0) - directory.absent
    if bool(len(starts)) != bool(present) or (len(starts) and starts[0]):
        raise DoesNotOpen("a directory's list of values does not begin at the first")
    if np.any(np.diff(starts) <= 0) or np.any(starts >= max(1, present)):
        raise DoesNotOpen("a directory's list of values is not in order")
    if np.any(runs[:-1] >= runs[1:]):
        raise DoesNotOpen("a directory's list of values is not in order")
    if not len(directory.firsts):
        return
    bounds = directory.ends[directory.leading :].astype(np.int64) - directory.absent
    begins = np.concatenate(([0], bounds[:-1]))
    for positions, keys in ((begins, directory.firsts), (bounds - 1, directory.lasts)):
        if np.any(runs[np.searchsorted(starts, positions, "right") - 1] != keys):
            raise DoesNotOpen("a directory's list of values contradicts its pages")
