"""A column of a new paged segment, cut into contents of pages (docs/SPEC.md, section 6.2).

A stream is cut into the same pages as the whole column would be. Only a window of it is in memory:
the end of a page is chosen among at most as many entries as a page may hold, so that the page is
cut as soon as that many have arrived. Contents are kept until the last column is cut, because the
segment's uid, from which its keys are derived, covers all of them.

The zone of a column, its least and greatest key (SPEC 6.2.4), rules a segment out before any of its
pages is fetched. Its width is fixed, so that a header's length reveals nothing about the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Protocol

import numpy as np

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory, packing, pages, words
from encrypted_records.index.columns.block_streams import join
from encrypted_records.index.columns.column import (
    Column,
    EntryBlock,
    KeyRange,
    Keys,
    key_type,
    stored_key_type,
)
from encrypted_records.index.columns.directory import MAX_RUNS, Directory, most_runs
from encrypted_records.index.columns.pages import (
    FIRST_GUESS,
    choose_fullest,
    entries_per_page,
    lay_plain,
)
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.headers import PLAIN, WORDS, ColumnKind
from encrypted_records.model.field_types.base import KeyKind

#: The window, in multiples of the maximum entries of a page: a larger window examines fewer entries
#: twice.
_PAGES_AT_ONCE = 4


class StreamCutter:
    """Cuts one column: consume :meth:`cut`, then call :meth:`directory`."""

    def __init__(self, kind: KeyKind, most: int, *, packed: bool) -> None:
        """
        Args:
            most: entries that a page may hold, however many would fit.
        """
        self._kind: KeyKind = kind
        self._packed = packed
        self._most = min(most, packing.MAX_ENTRIES)
        none: Keys = np.zeros(0, key_type(kind))
        self._absent = 0
        self._ends: list[int] = []
        self._firsts: list[Keys] = [none]
        self._lasts: list[Keys] = [none]
        self._runs: list[Keys] = [none]
        self._starts: list[Ordinals] = [np.zeros(0, np.uint32)]
        self._distinct = 0

    def cut(self, blocks: Iterable[EntryBlock]) -> Iterator[bytes]:
        """The content of each page."""
        for present, alike in groupby(blocks, lambda block: len(block.keys) > 0):
            most = self._most
            if not self._packed:
                most = min(most, entries_per_page(self._kind, present=present))
            yield from self._cut(alike, most)

    def _cut(self, blocks: Iterable[EntryBlock], most: int) -> Iterator[bytes]:
        guess = FIRST_GUESS
        pending: list[EntryBlock] = []
        size = 0
        for block in chain(blocks, [None]):
            if block is not None:
                pending.append(block)
                size += len(block.ordinals)
                if size < _PAGES_AT_ONCE * most:
                    continue
            if not size:
                return
            window, first = join(pending), 0
            pack = _packer(window)
            while first < size and (block is None or size - first >= most):
                left = min(most, size - first)
                if self._packed:
                    guess, content = choose_fullest(first, left, min(guess, left), pack)
                else:
                    page = _part(window, first, first + left)
                    guess, content = left, lay_plain(page.ordinals, page.expand(), self._kind)
                self._note(_part(window, first, first + guess))
                first += guess
                yield content
            pending = [_part(window, first, size)] if first < size else []
            size -= first

    def _note(self, page: EntryBlock) -> None:
        before = self._ends[-1] if self._ends else 0
        end = before + len(page.ordinals)
        self._ends.append(end)
        if not len(page.keys):
            self._absent = end
            return
        goes_on = self._distinct > 0 and bool(self._lasts[-1][0] == page.keys[0])
        # Copies, because a slice keeps the whole array alive.
        self._firsts.append(page.keys[:1].copy())
        self._lasts.append(page.keys[-1:].copy())
        self._distinct += len(page.keys) - goes_on
        if self._distinct <= MAX_RUNS:
            self._runs.append(page.keys[goes_on:].copy())
            self._starts.append(page.starts[goes_on:] + np.uint32(before - self._absent))
        else:
            del self._runs[1:], self._starts[1:]

    @property
    def pages(self) -> int:
        """The number of pages."""
        return len(self._ends)

    def directory(self, count: int) -> Directory:
        """The directory over ``count`` rows; page numbers are zero."""
        listed = self._distinct <= most_runs(count)
        return Directory(
            absent=self._absent,
            numbers=np.zeros(len(self._ends), np.uint32),
            ends=np.array(self._ends, np.uint32),
            firsts=np.concatenate(self._firsts),
            lasts=np.concatenate(self._lasts),
            listed=listed,
            runs=np.concatenate(self._runs if listed else self._runs[:1]),
            starts=np.concatenate(self._starts if listed else self._starts[:1]),
        )


def _packer(window: EntryBlock) -> Callable[[int, int], bytes]:
    if len(window.keys):
        return packing.Packer(window).pack
    rows = window.ordinals
    return lambda first, last: packing.compress(packing.pack_ordinals(rows[first:last]))


def _part(window: EntryBlock, first: int, last: int) -> EntryBlock:
    if len(window.keys):
        return window.part(first, last)
    return EntryBlock(window.ordinals[first:last], window.keys, window.starts)


class Contents(Protocol):
    """Contents of pages, by the number under which they were added: 0, 1, 2, ..."""

    def __len__(self) -> int: ...

    def add(self, content: bytes) -> None: ...

    def read(self, number: int) -> bytes: ...


class ContentsInMemory:
    """For segments of the size that an ingest or a small merge makes."""

    def __init__(self) -> None:
        self._page_contents: list[bytes] = []

    def __len__(self) -> int:
        return len(self._page_contents)

    def add(self, content: bytes) -> None:
        self._page_contents.append(content)

    def read(self, number: int) -> bytes:
        return self._page_contents[number]

    def free(self, number: int) -> None:
        """Free a content that is not read again."""
        self._page_contents[number] = b""


@dataclass(frozen=True, slots=True)
class Zone:
    """``least`` and ``greatest`` are keys as in edges of key ranges; no key is between them if the
    column has no present row."""

    least: int | bytes
    greatest: int | bytes

    def meets(self, key_range: KeyRange) -> bool:
        """Whether the column may contain a key of the range."""
        first, last = key_range
        least, greatest = self.least, self.greatest
        if not self._is_ordered:
            return False
        begins, ends = _comparable(first.key), _comparable(last.key)
        after_first = greatest > begins or (greatest == begins and first.side == "left")  # type: ignore[operator]
        before_last = least < ends or (least == ends and last.side == "right")  # type: ignore[operator]
        return bool(after_first and before_last)

    def moved(self, move: Callable[[int], int]) -> Zone:
        """The zone of a numeric column after ``move``, which preserves the order of keys."""
        if (
            not self._is_ordered
            or isinstance(self.least, bytes)
            or isinstance(self.greatest, bytes)
        ):
            return self
        return Zone(move(self.least), move(self.greatest))

    @property
    def _is_ordered(self) -> bool:
        return bool(self.least <= self.greatest)  # type: ignore[operator]


def _comparable(key: int | bytes) -> int | bytes:
    """Keys of strings compare as if padded with zero bytes."""
    return key.rstrip(b"\x00") if isinstance(key, bytes) else key


def encode_zone(firsts: Keys, lasts: Keys, kind: KeyKind) -> bytes:
    """The zone of a column, or of its pages, from the first and last keys in order."""
    stored = stored_key_type(kind)
    if not len(firsts):
        return b"\xff" * stored.itemsize + bytes(stored.itemsize)
    return firsts[:1].astype(stored).tobytes() + lasts[-1:].astype(stored).tobytes()


def decode_zone(encoded: bytes, kind: KeyKind) -> Zone:
    """Undo :func:`encode_zone`.

    Raises:
        DoesNotOpen: it has another length.
    """
    width = stored_key_type(kind).itemsize
    if len(encoded) != 2 * width:
        raise DoesNotOpen("a segment's header has keys of another width than its fields")
    least, greatest = encoded[:width], encoded[width:]
    if kind.of_bytes:
        return Zone(_comparable(least), _comparable(greatest))
    return Zone(int.from_bytes(least, "big"), int.from_bytes(greatest, "big"))


@dataclass(frozen=True, slots=True)
class Cut:
    """``first`` is the number of its first content. ``slots`` is the number of pages of the column,
    ``directory_pages`` the number of these that belong to its directory."""

    name: str
    first: int
    directory: Directory
    directory_pages: int
    slots: int
    zone: bytes
    made: ColumnKind

    @property
    def contents(self) -> range:
        """The numbers of the contents."""
        return range(self.first, self.first + len(self.directory.ends))


def cut(
    name: str, column: Column, kind: KeyKind, contents: Contents, *, packed: bool, most: int
) -> Cut:
    """Add a column that is in memory to ``contents``.

    Args:
        most: entries that a page may hold, however many would fit.
    """
    made: ColumnKind = PLAIN
    rows = len(column.ordinals)
    if kind is KeyKind.WORDS:
        # This follows from lengths alone; it does not reveal the number of words.
        rows = words.count_entries(column)
        made = (WORDS, rows)
    first, ends = len(contents), []
    for page in pages.cut(column, kind, packed=packed, most=most):
        contents.add(page.content)
        ends.append(page.end)
    built = directory.build(column, ends, rows)
    directory_pages, slots = _count_slots(built, kind, rows, packed=packed, most=most)
    zone = encode_zone(column.keys, column.keys, kind)
    return Cut(name, first, built, directory_pages, slots, zone, made)


def cut_stream(
    name: str,
    blocks: Iterator[EntryBlock],
    kind: KeyKind,
    contents: Contents,
    *,
    packed: bool,
    most: int,
) -> Cut:
    """Cut a streamed column like :func:`cut`."""
    cutter, counted = StreamCutter(kind, most, packed=packed), _StreamCounter(kind)
    first = len(contents)
    for content in cutter.cut(counted.through(blocks)):
        contents.add(content)
    built = cutter.directory(counted.rows)
    directory_pages, slots = _count_slots(built, kind, counted.rows, packed=packed, most=most)
    zone = encode_zone(built.firsts, built.lasts, kind)
    made: ColumnKind = (WORDS, counted.rows) if kind is KeyKind.WORDS else PLAIN
    return Cut(name, first, built, directory_pages, slots, zone, made)


class _StreamCounter:
    """Counts a streamed column's rows; for a word column, also the entries it has room for."""

    def __init__(self, kind: KeyKind) -> None:
        self._words = kind is KeyKind.WORDS
        self.rows = 0

    def through(self, blocks: Iterator[EntryBlock]) -> Iterator[EntryBlock]:
        for block in blocks:
            self.rows += words.count_room(block) if self._words else len(block.ordinals)
            yield block


def _count_slots(
    built: Directory, kind: KeyKind, rows: int, *, packed: bool, most: int
) -> tuple[int, int]:
    if packed:
        size = len(directory.encode(built, kind, packed=True))
        directory_pages = -(-size // pages.CAPACITY)
        return directory_pages, directory_pages + len(built.ends)
    planned = directory.count_pages(kind, rows, most)
    return planned.directory, planned.directory + planned.data
