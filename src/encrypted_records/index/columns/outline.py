"""Outlines of column directories: they locate an edge exactly or within one page, so that a query
fetches all pages that it needs in one request.

A directory has the first and last key of each page, of strings 128 bytes. An outline keeps the
shortest prefixes that distinguish neighbouring pages, like the separators of a B-tree, and a hash
of the two keys, so that a page is still verified against its directory. An edge between two pages
of strings is assumed to be inside one of them, which costs one more page but does not change the
result.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.index.columns.column import (
    OBJECT_BYTES,
    Edge,
    EntryBlock,
    KeyRange,
    Keys,
    measure,
    search,
)
from encrypted_records.index.columns.directory import Directory
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.ordinals import Ordinals

Mask = NDArray[np.bool_]


class _Bounds(Protocol):
    """Ends of the pages of present rows, by their number in the order of keys."""

    @property
    def size(self) -> int: ...

    @property
    def outermost(self) -> Keys:
        """The least and the greatest key; none where there are no pages."""

    def locate(self, edge: Edge) -> tuple[int, bool]:
        """The page that contains ``edge``, or the next page after it, and whether the edge may be
        inside that page.
        """

    def links(self, *, alike: bool) -> Mask:
        """Links between pages; see :meth:`Outline.links`."""

    def agree(self, page: int, block: EntryBlock) -> bool:
        """Whether the page begins and ends with the keys that its directory says."""


@dataclass(frozen=True, eq=False, slots=True)
class Outline:
    """An outline of a directory's pages, in the order of the column; fields as :class:`Directory`
    has them.

    ``bounds`` are of a column that lists no values; where values are listed they say more.
    """

    absent: int
    numbers: Ordinals
    ends: Ordinals
    leading: int
    bounds: _Bounds | None
    starts: Ordinals
    #: how the numbers are sorted
    _order: Ordinals
    #: no wider than the longest
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
        """Whether the column's distinct keys are known."""
        return self.bounds is None

    @property
    def runs(self) -> Keys:
        """The distinct keys, where they are listed; made for each call."""
        return self._runs.astype(self._key_type)

    def runs_between(self, first: int, last: int) -> Keys:
        """The distinct keys first..last-1, where they are listed, maybe narrower than keys are."""
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
        """The least and the greatest key; none where no row is present."""
        if self.bounds is not None:
            return self.bounds.outermost
        return self.runs[[0, -1]] if len(self._runs) else self.runs

    def stretches(self) -> tuple[Keys, Keys, NDArray[np.int64]]:
        """The first and the last key of a column of numbers, and the number of entries, of each
        value where values are listed, and else of each page of present rows.
        """
        if isinstance(self.bounds, NumberBounds):
            return self.bounds.firsts, self.bounds.lasts, self.page_entries[self.leading :]
        starts = np.append(self.starts.astype(np.int64), self.present)
        return self.runs, self.runs, np.diff(starts)

    def links(self, *, alike: bool) -> Mask:
        """A mask of the pages of present rows but the first: whether each begins with the key with
        which the one before ends.

        Args:
            alike: or with one that begins as this, where both are keys of long strings.
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
        """The page of the column that has this number in its segment."""
        at = int(self.numbers.searchsorted(np.uint32(number), sorter=self._order))
        if at == len(self.numbers):
            return None
        index = int(self._order[at])
        return index if self.numbers[index] == number else None

    def start(self, page: int) -> int:
        """The number of entries before ``page``, which may be the one after the last."""
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
        """The number of present entries before ``edge``; None if only its page shows it."""
        if self.listed:
            return self._listed_before(edge)
        page, inside = self.locate(edge)
        return None if inside else self.start(page) - self.absent

    def _listed_before(self, edge: Edge) -> int:
        run = search(self._runs, edge)
        return int(self.starts[run]) if run < len(self.starts) else self.present

    def pages(self, key_range: KeyRange) -> range:
        """The pages that hold the entries of ``key_range``, and those that show where it ends."""
        if self.listed:
            return self.holding(*map(self._listed_before, key_range))
        first, _ = self.locate(key_range.first)
        last, inside = self.locate(key_range.last)
        return range(first, max(first, last + inside))

    def holding(self, first: int, last: int) -> range:
        """The pages of the present entries first..last-1."""
        if first >= last:
            return range(0)
        begin = int(np.searchsorted(self.ends, self.absent + first, "right"))
        return range(begin, int(np.searchsorted(self.ends, self.absent + last, "left")) + 1)


@dataclass(frozen=True, eq=False, slots=True)
class NumberBounds:
    """The first and last keys themselves."""

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
    """``text[cuts[i]:cuts[i + 1]]`` lies between page ``i`` and the next one: above the last key of
    the former and not above the first of the latter; where a value goes on in the next page, it is
    this value. Keys are without the zero bytes at their ends, which tell nothing."""

    count: int
    width: int
    text: bytes
    cuts: Ordinals
    #: a byte for each: 2 where a value goes on in the next page, 1 where both keys are alike
    marks: bytes
    least: bytes
    greatest: bytes
    checks: NDArray[np.int64]

    @classmethod
    def between(cls, firsts: Keys, lasts: Keys) -> Separators:
        """Separators of pages with these first and last keys, which are in order."""
        width = firsts.dtype.itemsize
        before, after = matrix(lasts[:-1]), matrix(firsts[1:])
        differs = before != after
        apart = differs.any(axis=1)
        # With the first byte that differs a key is above the last of the page before.
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
        every = range(self.count - 1)
        if edge.side == "right":
            return bisect_right(every, key, key=self._at), True
        page = bisect_left(every, key, key=self._at)
        # The first separator that equals the key begins a page with it, unless the page before
        # ends with it, too.
        begins = page < len(every) and self.marks[page] < 2 and self._at(page) == key
        return page + begins, True

    def agree(self, page: int, block: EntryBlock) -> bool:
        ends = block.keys[[0, -1]].astype(f"S{self.width}")
        return bool(_hash_pairs(ends[:1], ends[1:])[0] == self.checks[page])

    def _at(self, page: int) -> bytes:
        return self.text[self.cuts[page] : self.cuts[page + 1]]


def _begin_alike(keys: Keys, others: Keys) -> Mask:
    """A mask of the keys of long strings that stand for the same first bytes as the ones beside
    them.
    """
    own, other = matrix(keys), matrix(others)
    long = own[:, INDEX_KEY_PREFIX:].any(axis=1) & other[:, INDEX_KEY_PREFIX:].any(axis=1)
    same: Mask = long & (own[:, :INDEX_KEY_PREFIX] == other[:, :INDEX_KEY_PREFIX]).all(axis=1)
    return same


def _hash_pairs(firsts: Keys, lasts: Keys) -> NDArray[np.int64]:
    """A hash of each pair under a key of this process: SipHash, as Python has it for bytes."""
    pairs = np.concatenate((matrix(firsts), matrix(lasts)), axis=1)
    whole = np.ascontiguousarray(pairs).view(f"S{pairs.shape[1]}").reshape(-1)
    return np.fromiter(map(hash, whole.tolist()), np.int64, len(firsts))
