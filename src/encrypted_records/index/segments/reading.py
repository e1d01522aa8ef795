"""Read a column of a large segment a window of pages at a time, so that memory does not grow.

This module does not fetch. A reading is a generator: it yields the numbers of missing pages, and
continues once they were put into the segment. It removes these pages afterwards.

Pages are read in random order. Fetching them in key order, some at a time, would reveal that order
to the API.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import EntryBlock, Keys, key_type, longest_of
from encrypted_records.index.columns.dictionary import (
    ByRow,
    ByRowBuilder,
    ColumnSums,
    Halves,
    Mask,
    by_row_bytes,
)
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.ordinals import Ordinals, finder
from encrypted_records.index.segments.headers import mask_digest
from encrypted_records.index.segments.loaded import LoadedSegment, scope
from encrypted_records.model.definition import column_spec
from encrypted_records.model.records import PAGE_BYTES

T = TypeVar("T")
#: Work that yields the numbers of pages to put into one segment.
Reading = Generator[set[int], None, T]
#: Opened pages of a column by their place in it.
Window = Sequence[tuple[int, EntryBlock]]


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """At most ``window`` pages with ``entries`` entries are in memory at a time, unless a single
    page has more; ``at_once`` entries are processed at a time. A row-major column of up to
    ``by_row`` bytes is kept with keys. Up to ``few`` needed pages, with up to ``entries`` entries,
    are read at once."""

    window: int = 256
    entries: int = 1 << 20
    at_once: int = 1 << 17
    by_row: int = 48 << 20
    few: int = 1024


STANDARD = ReadingLimits()
#: Maximum bytes of memory for work on a segment: per row, its code in a row-major column and some
#: masks; per entry processed at once, its key, numpy's arrays, and the data that measures keep.
_ROW_BYTES, _ENTRY_BYTES = 5, 384
#: Number of pages that are sampled to estimate the number of distinct keys.
_SAMPLE = 16


def working_bytes(segment: LoadedSegment, limits: ReadingLimits = STANDARD) -> int:
    """Estimated maximum memory, in bytes, to read a segment's columns in windows, one after the
    other, and to test, group or measure by them."""
    pages = limits.window * 2 * PAGE_BYTES
    entries = min(segment.covered, limits.at_once) * _ENTRY_BYTES
    return segment.covered * _ROW_BYTES + entries + min(pages, segment.segment.pages * PAGE_BYTES)


def read_pages(
    segment: LoadedSegment,
    field: str,
    pages: Iterable[int],
    take: Callable[[Window], None],
    limits: ReadingLimits = STANDARD,
) -> Reading[None]:
    """Pass some pages of a column to ``take``, each once, a part of a window at a time.

    Args:
        segment: the field's directory must be loaded.
        pages: their places in the column.

    Raises:
        DoesNotOpen: raised by ``take``.
    """
    numbers = segment.directories[field].numbers
    order = list(pages)
    runtime.chance.shuffle(order)
    directory = segment.directories[field]
    for window in _cut(directory, order, limits.window, limits.entries):
        with scope(segment):
            missing = {int(numbers[page]) for page in window} - segment.blocks.keys()
            if missing:
                yield missing
            for part in _cut(directory, window, len(window), limits.at_once):
                take([(page, segment.blocks[int(numbers[page])]) for page in part])


class WindowEntries:
    """The present entries of some pages: ``keys`` in the order of the pages, where a key may occur
    twice, and the rows of each key."""

    def __init__(self, segment: LoadedSegment, field: str, window: Window) -> None:
        leading = segment.directories[field].leading
        blocks = [block for page, block in window if page >= leading]
        none: Keys = np.zeros(0, key_type(column_spec(segment.definition, field).kind))
        self.keys = np.concatenate([none, *(block.keys for block in blocks)])
        self.ordinals: Ordinals = np.concatenate(
            [np.zeros(0, np.uint32), *(block.ordinals for block in blocks)]
        )
        self.lengths: NDArray[np.int64] = np.concatenate(
            [np.zeros(0, np.int64), *(block.counts for block in blocks)]
        )
        self._ends = np.cumsum(self.lengths)

    def rows(self, at: int) -> Ordinals:
        """The rows of one key."""
        end = int(self._ends[at])
        return self.ordinals[end - int(self.lengths[at]) : end]

    def rows_of(self, keys: Mask) -> Ordinals:
        """The rows of the keys in a mask."""
        if not keys.any():
            return self.ordinals[:0]
        return self.ordinals[np.repeat(keys, self.lengths)]

    def key_of_entries(self) -> NDArray[np.intp]:
        """The index of each entry's key."""
        return np.repeat(np.arange(len(self.keys)), self.lengths)


def fill_up(segment: LoadedSegment, field: str, pages: Collection[int]) -> list[int]:
    """These pages of a column, filled up with other pages to a power of two. Single windows get no
    cover pages, because they are complete; without the other pages, the pages of a range would be
    visible. Every proxy draws the same pages (docs/SPEC.md, section 17).
    """
    directory, uid = segment.directories[field], segment.segment.uid
    total = 1 << (len(pages) - 1).bit_length() if pages else 0
    if total == len(pages):
        return [*pages]
    places = [uid + int(number).to_bytes(4, "big") for number in directory.numbers]
    needed = hashlib.sha256(b"".join(sorted(places[page] for page in pages))).digest()
    others = [page for page in range(len(directory.ends)) if page not in pages]
    others.sort(key=lambda page: segment.cover.draw(needed, b"left", places[page]))
    return [*pages, *others[: total - len(pages)]]


def _cut(
    directory: Outline, order: Sequence[int], pages: int, most: int
) -> Iterator[Sequence[int]]:
    """Batches of up to ``pages`` pages, with up to ``most`` entries unless a single page has
    more.
    """
    first = entries = 0
    for at, page in enumerate(order):
        page_entries = directory.start(page + 1) - directory.start(page)
        if at > first and (at - first == pages or entries + page_entries > most):
            yield order[first:at]
            first, entries = at, 0
        entries += page_entries
    if first < len(order):
        yield order[first:]


def read_column(
    segment: LoadedSegment,
    field: str,
    take: Callable[[Window], None],
    limits: ReadingLimits = STANDARD,
) -> Reading[None]:
    """Pass a whole column to ``take``; it must not be a word column.

    Raises:
        DoesNotOpen: it lists other rows than the segment has, or entries out of order; possibly
            raised only at the end.
    """
    directory = segment.directories[field]
    count = len(directory.ends)
    rows = np.zeros(segment.covered, np.bool_)
    outermost = np.zeros((count, 2), np.uint32)

    def check(window: Window) -> None:
        for page, block in window:
            # As in ``by_row``: numpy takes twice as long with indexes of another type.
            rows[block.ordinals.astype(np.intp)] = True
            outermost[page] = block.ordinals[[0, -1]]
        take(window)

    yield from read_pages(segment, field, range(count), check, limits)
    # The directory states as many rows as the segment has, so equal sets list each row once.
    if mask_digest(rows) != segment.stated_rows:
        raise DoesNotOpen("a column lists other rows than its segment has")
    same = _continues(directory)
    if np.any(outermost[:-1, 1][same] >= outermost[1:, 0][same]):
        raise DoesNotOpen("a column's pages are not in order")


def turn_round(
    segment: LoadedSegment, field: str, limits: ReadingLimits = STANDARD
) -> Reading[ByRow]:
    """A whole row-major column; the field's directory must be loaded.

    Raises:
        DoesNotOpen: as :func:`read_column`.
    """
    kind = column_spec(segment.definition, field).kind
    directory = segment.directories[field]
    builder = ByRowBuilder(kind, directory, segment.covered, limits.by_row)

    def take(window: Window) -> None:
        for page, block in window:
            builder.take(page, block)

    yield from read_column(segment, field, take, limits)
    return builder.finish()


def sum_column(
    segment: LoadedSegment, field: str, rows: BitMap, limits: ReadingLimits = STANDARD
) -> Reading[ColumnSums]:
    """Sum a column of numbers, and look up some rows in it; its directory must be loaded.

    Raises:
        DoesNotOpen: as :func:`read_column`.
    """
    halves = Halves()
    find = finder(rows, segment.covered)
    found: list[Ordinals] = [np.zeros(0, np.uint32)]
    keys: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]

    def take(window: Window) -> None:
        nonlocal halves
        for _, block in window:
            if not len(block.keys):
                continue
            halves += Halves.of(block.keys, block.counts)
            if rows:
                at = find(block.ordinals)
                found.append(block.ordinals[at])
                keys.append(block.keys[block.runs_of(at)])

    yield from read_column(segment, field, take, limits)
    present = np.concatenate(found)
    order = np.argsort(present)
    return ColumnSums(halves, BitMap(rows), present[order], np.concatenate(keys)[order])


def fits_by_row(
    segment: LoadedSegment, field: str, limits: ReadingLimits = STANDARD
) -> Reading[bool]:
    """Whether a row-major column with its keys is likely small enough to keep, estimated from a few
    pages. The field's directory must be loaded.

    Raises:
        DoesNotOpen: a page does not open.
    """
    directory = segment.directories[field]

    def fits(keys: int) -> bool:
        return by_row_bytes(keys, directory.key_bytes, segment.covered) <= limits.by_row

    if fits(directory.present) or directory.listed:
        return True
    keys, _ = yield from sample_column(segment, field, limits)
    return fits(keys)


def sample_column(
    segment: LoadedSegment, field: str, limits: ReadingLimits = STANDARD
) -> Reading[tuple[int, int]]:
    """Estimates from a few pages the number of distinct keys of a column, and the bytes of the
    longest. The field's directory must be loaded.

    Raises:
        DoesNotOpen: a page does not open.
    """
    directory, known = segment.directories[field], segment.opened.samples
    if field not in known:
        pages = range(directory.leading, len(directory.ends))
        chosen = runtime.chance.sample(pages, min(_SAMPLE, len(pages)))
        counts: list[int] = []
        longest = 1

        def take(window: Window) -> None:
            nonlocal longest
            for _, block in window:
                counts.append(len(block.keys))
                longest = max(longest, longest_of(block.keys))

        yield from read_pages(segment, field, chosen, take, limits)
        known[field] = sum(counts) * len(pages) // max(1, len(counts)), longest
    return known[field]


def _continues(directory: Outline) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each page except the first shares a value with the previous page, or both have absent
    rows."""
    same = np.zeros(max(0, len(directory.ends) - 1), np.bool_)
    same[: max(0, directory.leading - 1)] = True
    if directory.present_pages:
        same[directory.leading :] = directory.links(alike=False)
    return same
