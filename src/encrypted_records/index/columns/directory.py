"""The directory of a column: the keys of each page, and where each value begins (SPEC 6.2.3).

A stored directory has the first and last key of each page (128 bytes for strings). For a column of
few distinct values, it lists where each begins; counts, distinct values and groups then need no
data page.

An outline is the part of a directory that is kept in memory. It locates an edge exactly or within a
page, so that a query fetches all needed pages in one request. It keeps the shortest prefixes that
distinguish neighbouring pages, like the separators of a B-tree, and a hash of the two keys, so that
a page is still verified against its directory. An edge between two pages of strings is treated as
inside a page, which costs a further page but does not change the result.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import packing
from encrypted_records.index.columns.column import (
    OBJECT_BYTES,
    Column,
    Edge,
    EntryBlock,
    KeyRange,
    Keys,
    key_type,
    measure,
    run_starts,
    search,
    stored_key_type,
)
from encrypted_records.index.columns.pages import CAPACITY, entries_per_page
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.field_types.base import KeyKind

#: Maximum number of distinct values whose beginnings a directory lists.
MAX_RUNS = 4096
_COUNT = struct.Struct(">I")
_HEAD = struct.Struct(">II")
_U32 = np.dtype(">u4")


@dataclass(frozen=True, eq=False, slots=True)
class Directory:
    """A directory of ``P`` pages, in the order of the column.

    ``ends[i]`` is the number of entries of the pages up to and including ``i``. ``firsts`` and
    ``lasts`` are the outermost keys of the pages of present rows, which are the last
    ``len(firsts)`` pages. If ``listed``, ``runs`` are the distinct keys, and ``starts`` the number
    of present entries before each.
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
    """The number of pages of a column that is not packed; it depends only on row count and type."""

    data: int
    directory: int


def count_pages(kind: KeyKind, count: int, most: int) -> PageCounts:
    """The number of pages for any column of ``count`` rows, whatever its values.

    Args:
        most: entries that a page may hold, however many would fit.
    """
    size = min(most, entries_per_page(kind, present=True))
    # Absent and present rows do not share a page, which can add a page.
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
    """Encode the number of pages and their numbers, then the rest, compressed if pages are.

    The numbers stay outside, so that the length does not depend on the permutation.
    """
    stored = stored_key_type(kind)
    runs = len(directory.runs) + 1 if directory.listed else 0
    tables = b"".join(
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
    return head + numbers + (packing.compress(tables) if packed else tables)


def decode(data: bytes, kind: KeyKind, *, count: int, pages: int, packed: bool) -> Directory:
    """Undo :func:`encode` for a column of ``count`` rows in a segment of ``pages`` pages. For a
    word column, ``count`` is the number of entries it has room for.

    Raises:
        DoesNotOpen: not a directory of such a column.
    """
    if len(data) < _COUNT.size:
        raise DoesNotOpen("a directory is cut short")
    (page_count,) = _COUNT.unpack_from(data)
    at = _COUNT.size + _U32.itemsize * page_count
    if page_count > pages or len(data) < at:
        raise DoesNotOpen("a directory names more pages than exist")
    numbers = np.frombuffer(data, _U32, page_count, _COUNT.size).astype(np.uint32)
    if np.any(numbers >= pages) or len(set(numbers.tolist())) != page_count:
        raise DoesNotOpen("a directory names pages that do not exist, or a page twice")
    width = stored_key_type(kind).itemsize
    tables = data[at:]
    if packed:
        most = _HEAD.size + page_count * (4 + 2 * width) + most_runs(count) * (4 + width)
        tables = packing.decompress(tables, most)
    return _read(_ArrayReader(tables, kind), numbers, count, full=kind is not KeyKind.WORDS)


class _ArrayReader:
    """Reads arrays from the front of bytes."""

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
    entries = int(ends[-1]) if len(ends) else 0
    if np.any(rising <= 0) or absent > count or entries > count or (full and entries != count):
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
    """Check that values are in order and agree with the first and last keys of pages."""
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


Mask = NDArray[np.bool_]


class _Bounds(Protocol):
    """The outermost keys of the pages of present rows, by page index in key order."""

    @property
    def size(self) -> int: ...

    @property
    def outermost(self) -> Keys:
        """The least and the greatest key; empty without pages."""

    def locate(self, edge: Edge) -> tuple[int, bool]:
        """The page that contains ``edge``, or the next page after it, and whether the edge may be
        inside that page.
        """

    def links(self, *, alike: bool) -> Mask:
        """Links between pages; see :meth:`Outline.links`."""

    def agree(self, page: int, block: EntryBlock) -> bool:
        """Whether the page begins and ends with the keys stated in its directory."""


@dataclass(frozen=True, eq=False, slots=True)
class Outline:
    """An outline of a directory's pages, in column order; fields as in :class:`Directory`.

    ``bounds`` are used for a column that lists no values; listed values are more precise.
    """

    absent: int
    numbers: Ordinals
    ends: Ordinals
    leading: int
    bounds: _Bounds | None
    starts: Ordinals
    #: the sort order of the page numbers
    _order: Ordinals
    #: no wider than the longest key
    _runs: Keys
    _key_type: np.dtype[Any]

    @classmethod
    def of(cls, directory: Directory) -> Outline:
        runs = directory.runs
        bounds: _Bounds | None = None
        if not directory.listed:
            make = Separators.between if directory.firsts.dtype.kind == "S" else NumberBounds
            bounds = make(directory.firsts, directory.lasts)
        elif len(runs) and runs.dtype.kind == "S":
            runs = runs.astype(f"S{max(1, int(np.strings.str_len(runs).max()))}")
        return cls(
            absent=directory.absent,
            numbers=directory.numbers,
            ends=directory.ends,
            leading=directory.leading,
            bounds=bounds,
            starts=directory.starts,
            _order=np.argsort(directory.numbers).astype(np.uint32),
            _runs=runs,
            _key_type=directory.runs.dtype,
        )

    @property
    def listed(self) -> bool:
        """Whether the column's distinct keys are listed."""
        return self.bounds is None

    @property
    def runs(self) -> Keys:
        """The distinct keys, if they are listed; a new array for each call."""
        return self._runs.astype(self._key_type)

    def runs_between(self, first: int, last: int) -> Keys:
        """The distinct keys first..last-1, if listed; possibly narrower than the type of keys."""
        return self._runs[first:last]

    @property
    def present(self) -> int:
        return (int(self.ends[-1]) if len(self.ends) else 0) - self.absent

    @property
    def present_pages(self) -> int:
        """The number of pages of present rows."""
        return len(self.ends) - self.leading

    @property
    def page_entries(self) -> NDArray[np.int64]:
        """The number of entries of each page."""
        return np.diff(np.concatenate((np.zeros(1, np.int64), self.ends)))

    @property
    def key_bytes(self) -> int:
        """The size of one key in memory, in bytes."""
        return self._key_type.itemsize

    @property
    def outermost(self) -> Keys:
        """The least and the greatest key; empty if no row is present."""
        if self.bounds is not None:
            return self.bounds.outermost
        return self.runs[[0, -1]] if len(self._runs) else self.runs

    def stretches(self) -> tuple[Keys, Keys, NDArray[np.int64]]:
        """For a column of numbers: the first and the last key and the number of entries of each
        listed value, or else of each page of present rows.
        """
        if isinstance(self.bounds, NumberBounds):
            return self.bounds.firsts, self.bounds.lasts, self.page_entries[self.leading :]
        starts = np.append(self.starts.astype(np.int64), self.present)
        return self.runs, self.runs, np.diff(starts)

    def links(self, *, alike: bool) -> Mask:
        """A mask of the pages of present rows except the first: whether each begins with the last
        key of the previous page.

        Args:
            alike: or with a key of the same class of long strings.
        """
        if self.bounds is not None:
            return self.bounds.links(alike=alike)
        begins = self.ends[self.leading : -1].astype(np.int64) - self.absent
        before = self.starts.searchsorted(begins - 1, "right") - 1
        after = self.starts.searchsorted(begins, "right") - 1
        same: Mask = before == after
        if not alike or self._runs.dtype.kind != "S":
            return same
        return same | _begin_alike(self.runs[before], self.runs[after])

    @property
    def size(self) -> int:
        """Bytes in memory."""
        arrays = measure(self.numbers, self.ends, self.starts, self._order, self._runs)
        return arrays + (self.bounds.size if self.bounds else 0) + OBJECT_BYTES

    def index_of(self, number: int) -> int | None:
        """The index in the column of the page with this number in the segment."""
        at = int(self.numbers.searchsorted(np.uint32(number), sorter=self._order))
        if at == len(self.numbers):
            return None
        index = int(self._order[at])
        return index if self.numbers[index] == number else None

    def start(self, page: int) -> int:
        """The number of entries before ``page``, which may be one past the last."""
        return int(self.ends[page - 1]) if page else 0

    def locate(self, edge: Edge) -> tuple[int, bool]:
        """The page that contains ``edge``, or the next page after it, and whether the edge may be
        inside that page.
        """
        if self.bounds is not None:
            page, inside = self.bounds.locate(edge)
            return self.leading + page, inside
        before = self.absent + self._listed_before(edge)
        page = int(self.ends.searchsorted(np.uint32(before), "right"))
        return page, self.start(page) < before

    def exact(self, edge: Edge) -> int | None:
        """The number of present entries before ``edge``; None if its page must be read."""
        if self.listed:
            return self._listed_before(edge)
        page, inside = self.locate(edge)
        return None if inside else self.start(page) - self.absent

    def _listed_before(self, edge: Edge) -> int:
        run = search(self._runs, edge)
        return int(self.starts[run]) if run < len(self.starts) else self.present

    def pages(self, key_range: KeyRange) -> range:
        """The pages with the entries of ``key_range``, and the pages needed to find its ends."""
        if self.listed:
            return self.holding(*map(self._listed_before, key_range))
        first, _ = self.locate(key_range.first)
        last, inside = self.locate(key_range.last)
        return range(first, max(first, last + inside))

    def holding(self, first: int, last: int) -> range:
        """The pages with the present entries first..last-1."""
        if first >= last:
            return range(0)
        begin = int(np.searchsorted(self.ends, self.absent + first, "right"))
        return range(begin, int(np.searchsorted(self.ends, self.absent + last, "left")) + 1)


@dataclass(frozen=True, eq=False, slots=True)
class NumberBounds:
    """Bounds that store the first and last keys."""

    firsts: Keys
    lasts: Keys

    @property
    def size(self) -> int:
        return measure(self.firsts, self.lasts) + OBJECT_BYTES

    @property
    def outermost(self) -> Keys:
        return np.concatenate((self.firsts[:1], self.lasts[-1:]))

    def links(self, *, alike: bool) -> Mask:
        same: Mask = self.lasts[:-1] == self.firsts[1:]
        return same

    def locate(self, edge: Edge) -> tuple[int, bool]:
        page = search(self.lasts, edge)
        return page, page < len(self.lasts) and search(self.firsts[page : page + 1], edge) > 0

    def agree(self, page: int, block: EntryBlock) -> bool:
        return bool(block.keys[0] == self.firsts[page] and block.keys[-1] == self.lasts[page])


@dataclass(frozen=True, eq=False, slots=True)
class Separators:
    """``text[cuts[i]:cuts[i + 1]]`` separates page ``i`` from the next page: it is above the last
    key of the former and not above the first key of the latter. If a value continues in the next
    page, it is this value. Keys are stored without trailing zero bytes."""

    count: int
    width: int
    text: bytes
    cuts: Ordinals
    #: a byte for each: 2 if a value continues in the next page, 1 if both keys are alike
    marks: bytes
    least: bytes
    greatest: bytes
    checks: NDArray[np.int64]

    @classmethod
    def between(cls, firsts: Keys, lasts: Keys) -> Separators:
        """The separators of pages with these first and last keys, which are in order."""
        width = firsts.dtype.itemsize
        before, after = packing.matrix(lasts[:-1]), packing.matrix(firsts[1:])
        differs = before != after
        apart = differs.any(axis=1)
        # Up to its first differing byte, a key is above the last key of the previous page.
        lengths = np.where(apart, differs.argmax(axis=1) + 1, np.strings.str_len(firsts[1:]))
        cuts = np.zeros(len(firsts) or 1, np.uint32)
        np.cumsum(lengths, out=cuts[1:])
        return cls(
            count=len(firsts),
            width=width,
            text=after[np.arange(width) < lengths[:, None]].tobytes(),
            cuts=cuts,
            marks=(2 * ~apart + _begin_alike(lasts[:-1], firsts[1:])).astype(np.uint8).tobytes(),
            least=bytes(firsts[0]) if len(firsts) else b"",
            greatest=bytes(lasts[-1]) if len(lasts) else b"",
            checks=_hash_pairs(firsts, lasts),
        )

    @property
    def size(self) -> int:
        texts = (self.text, self.marks, self.least, self.greatest)
        return measure(self.cuts, self.checks) + sum(map(len, texts)) + 2 * OBJECT_BYTES

    @property
    def outermost(self) -> Keys:
        outermost = (self.least, self.greatest) if self.count else ()
        return np.array(outermost, f"S{self.width}")

    def links(self, *, alike: bool) -> Mask:
        return np.frombuffer(self.marks, np.uint8) >= (1 if alike else 2)

    def locate(self, edge: Edge) -> tuple[int, bool]:
        assert isinstance(edge.key, bytes)
        key = edge.key.rstrip(b"\0")
        if not self.count or key < self.least or (key == self.least and edge.side == "left"):
            return 0, False
        if key > self.greatest or (key == self.greatest and edge.side == "right"):
            return self.count, False
        separators = range(self.count - 1)
        if edge.side == "right":
            return bisect_right(separators, key, key=self._at), True
        page = bisect_left(separators, key, key=self._at)
        # A page begins with the key at the first separator that equals it, unless the previous page
        # also ends with the key.
        begins = page < len(separators) and self.marks[page] < 2 and self._at(page) == key
        return page + begins, True

    def agree(self, page: int, block: EntryBlock) -> bool:
        ends = block.keys[[0, -1]].astype(f"S{self.width}")
        return bool(_hash_pairs(ends[:1], ends[1:])[0] == self.checks[page])

    def _at(self, page: int) -> bytes:
        return self.text[self.cuts[page] : self.cuts[page + 1]]


def _begin_alike(keys: Keys, others: Keys) -> Mask:
    """A mask of the pairs in which both keys are of long strings with the same first bytes."""
    matrix_, other = packing.matrix(keys), packing.matrix(others)
    long = matrix_[:, INDEX_KEY_PREFIX:].any(axis=1) & other[:, INDEX_KEY_PREFIX:].any(axis=1)
    same: Mask = long & (matrix_[:, :INDEX_KEY_PREFIX] == other[:, :INDEX_KEY_PREFIX]).all(axis=1)
    return same


def _hash_pairs(firsts: Keys, lasts: Keys) -> NDArray[np.int64]:
    """A hash of each pair under a key of this process: Python's SipHash of bytes."""
    pairs = np.concatenate((packing.matrix(firsts), packing.matrix(lasts)), axis=1)
    joined = np.ascontiguousarray(pairs).view(f"S{pairs.shape[1]}").reshape(-1)
    return np.fromiter(map(hash, joined.tolist()), np.int64, len(firsts))
