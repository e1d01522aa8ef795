"""Look up some rows of a segment in a row-major column: whether they match a comparison, and their
keys.

Making the set of all matching rows takes time proportional to the segment. A caller that already
has some thousands of rows, because they are next in a column's order or because they are dead,
needs to know only about these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.column import (
    Edge,
    EntryBlock,
    KeyRange,
    Keys,
    key_type,
    search,
)
from encrypted_records.index.columns.dictionary import (
    ColumnDictionary,
    Dictionary,
    Mask,
    PageMap,
    PartialDictionary,
    RowCodes,
    build_partial_dictionary,
    has_long,
)
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.ordinals import (
    Ordinals,
    bitmap,
    finder,
    in_parts,
    in_pieces,
    of_masks,
    ordinals,
    take_masks,
)
from encrypted_records.index.query.asking import Asking, ask_for, bring_by_row, bring_kept
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import (
    STANDARD,
    Reading,
    ReadingLimits,
    Window,
    fill_up,
    read_pages,
)
from encrypted_records.model.definition import column_spec

#: Up to this many rows, keeping each row's value is faster than finding equal values.
_FEW = 64


# --- which rows match ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class ColumnFilter:
    """The rows whose code is ``chosen``, and ``others``. ``count`` is their number, including dead
    rows."""

    codes: RowCodes
    chosen: Mask
    others: BitMap
    count: int

    def of(self, rows: BitMap) -> BitMap:
        """The matching rows among ``rows``."""
        pieces = (part[self.chosen.take(self.codes.take(part))] for part in in_parts(rows))
        return bitmap(*pieces) | (self.others & rows)

    def all_rows(self) -> BitMap:
        """All matching rows, including dead rows."""
        return of_masks(take_masks(self.chosen, self.codes)) | self.others


def filter_column(
    segment: LoadedSegment,
    field: str,
    range_lists: Sequence[Sequence[KeyRange]],
    limits: ReadingLimits = STANDARD,
) -> Reading[list[ColumnFilter]]:
    """Filters for several lists of key ranges, by a loaded row-major column. If the column has no
    keys, the pages at the ends of ranges are read, once for all lists.

    Raises:
        DoesNotOpen: a page does not open.
    """
    by_row, directory = segment.columns[field], segment.directories[field]
    if isinstance(by_row, ColumnDictionary):
        return [_by_keys(by_row, ranges) for ranges in range_lists]
    inner = [np.zeros(directory.present_pages + 1, np.bool_) for _ in range_lists]
    others: list[list[Ordinals]] = [[] for _ in range_lists]
    wanted: dict[int, list[tuple[int, KeyRange]]] = {}
    for at, ranges in enumerate(range_lists):
        for key_range in ranges:
            pages: Sequence[int] = directory.pages(key_range)
            if len(pages) > 1:
                # All rows of pages between the outermost two are in the range.
                code = 1 - directory.leading
                inner[at][pages[0] + 1 + code : pages[-1] + code] = True
                pages = (pages[0], pages[-1])
            for page in pages:
                wanted.setdefault(page, []).append((at, key_range))

    def take(window: Window) -> None:
        for page, block in window:
            for at, key_range in wanted.get(page, ()):
                others[at].append(entries_between(block, key_range))

    yield from read_pages(segment, field, fill_up(segment, field, wanted), take, limits)
    return [
        ColumnFilter(by_row.pages, chosen, rows, _count_rows(directory, chosen) + len(rows))
        for chosen, rows in zip(inner, (bitmap(*row_arrays) for row_arrays in others), strict=True)
    ]


def entries_between(block: EntryBlock, key_range: KeyRange) -> Ordinals:
    """The rows of a page whose keys are in a range."""
    first, last = (_entries_before(block, edge) for edge in key_range)
    return block.ordinals[first:last]


def _by_keys(by_row: ColumnDictionary, ranges: Sequence[KeyRange]) -> ColumnFilter:
    chosen = np.zeros(len(by_row.keys) + 1, np.bool_)
    for key_range in ranges:
        first, last = (search(by_row.keys, edge) for edge in key_range)
        chosen[first + 1 : last + 1] = True
    return ColumnFilter(by_row.codes, chosen, BitMap(), int(by_row.counts[chosen].sum()))


def _count_rows(directory: Outline, chosen: NDArray[np.bool_]) -> int:
    """The number of rows of the chosen pages of present rows, which are counted from 1."""
    return int(directory.page_entries[directory.leading :][chosen[1:]].sum())


def _entries_before(block: EntryBlock, edge: Edge) -> int:
    run = search(block.keys, edge)
    return int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)


# --- which keys rows have -----------------------------------------------------------------------


def look_up_keys(
    segment: LoadedSegment, name: str, rows: BitMap, limits: ReadingLimits = STANDARD
) -> Asking[Keys]:
    """The keys of those of some rows that have a key, in any order; rows that the segment does not
    index have no key. The row-major column is left in the segment.

    Raises:
        DoesNotOpen: the column, or a page of it, does not open.
    """
    # A kept column takes no further memory.
    yield from bring_kept(segment, name)
    yield from bring_by_row(segment, name, limits)
    column = segment.columns.get(name)
    if isinstance(column, PageMap):
        # A merge may have left out millions of rows.
        rows = bitmap(*(part[column.pages.take(part) > 0] for part in in_pieces(rows)))
        dictionary: Dictionary = yield from read_rows(segment, name, column, rows, limits)
    else:
        dictionary = segment.dictionary(name)
    found: list[Keys] = [np.zeros(0, dictionary.keys.dtype)]
    for part in in_pieces(rows):
        codes = dictionary.codes_of(part).astype(np.intp)
        found.append(dictionary.keys[codes[codes > 0] - 1])
    return np.concatenate(found)


def read_rows(
    segment: LoadedSegment,
    name: str,
    page_map: PageMap,
    rows: BitMap,
    limits: ReadingLimits = STANDARD,
) -> Asking[PartialDictionary]:
    """A field of some rows, from the pages with their keys.

    Raises:
        DoesNotOpen: a page does not open.
    """
    directory = segment.directories[name]
    used = np.zeros(directory.present_pages + 1, np.bool_)
    absent: list[Ordinals] = [np.zeros(0, np.uint32)]
    for part in in_parts(rows):
        page_of = page_map.pages.take(part)
        used[page_of] = True
        absent.append(part[page_of == 0])
    pages = (np.flatnonzero(used[1:]) + directory.leading).tolist()
    find = finder(rows, segment.covered)
    none: Keys = np.zeros(0, key_type(column_spec(segment.definition, name).kind))
    found: list[Ordinals] = [np.zeros(0, np.uint32)]
    key_of: list[Ordinals] = [np.zeros(0, np.uint32)]
    keys: list[Keys] = [none]
    count = 0

    def take(window: Window) -> None:
        nonlocal count
        for _, block in window:
            at = find(block.ordinals)
            found.append(block.ordinals[at])
            runs = block.runs_of(at)
            page_of = np.arange(len(runs))
            if len(runs) > _FEW:
                # Millions of rows may have the same value.
                runs, page_of = np.unique(runs, return_inverse=True)
            key_of.append((page_of + count).astype(np.uint32))
            keys.append(block.keys[runs])
            count += len(runs)

    reading = read_pages(segment, name, pages, take, limits)
    yield from ask_for(segment, reading, passing=False)
    return build_partial_dictionary(
        np.concatenate(found),
        np.concatenate(keys),
        np.concatenate(absent),
        np.concatenate(key_of),
    )


def only_rows(dictionary: Dictionary, rows: BitMap) -> Dictionary:
    """A field of some rows, reduced to their keys if there are many others: processing a million
    keys takes longer than processing a few rows."""
    if len(rows) > len(dictionary.keys) // 4:
        return dictionary
    row_ordinals = ordinals(rows)
    used, codes = np.unique(dictionary.codes_of(row_ordinals), return_inverse=True)
    has_absent = int(len(used) and used[0] == 0)
    keys = dictionary.keys[used[has_absent:].astype(np.intp) - 1]
    return PartialDictionary(keys, row_ordinals, codes + (1 - has_absent), has_long(keys))
