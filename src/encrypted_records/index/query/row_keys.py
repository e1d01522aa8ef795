"""A field of a few rows of a large segment, looked up in its column by row."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.columns.column import Keys, key_type
from encrypted_records.index.columns.dictionary import (
    Dictionary,
    PageMap,
    PartialDictionary,
    build_partial_dictionary,
    has_long,
)
from encrypted_records.index.ordinals import (
    Ordinals,
    bitmap,
    finder,
    in_parts,
    in_pieces,
    ordinals,
)
from encrypted_records.index.query.asking import Asking
from encrypted_records.index.query.bringing import ask_for, bring_by_row, bring_kept
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits, Window, read_pages
from encrypted_records.model.word_columns import column_spec

#: Of so many rows it takes longer to find those of one value than to keep the value of each.
_FEW = 64


def look_up_keys(
    segment: LoadedSegment, name: str, rows: BitMap, limits: ReadingLimits = STANDARD
) -> Asking[Keys]:
    """The keys of some rows, of those that have one, in any order; rows that the segment does not
    index have none. The column by row is left in the segment.

    Raises:
        DoesNotOpen: the column, or a page of it, does not open.
    """
    # A kept one takes no memory more.
    yield from bring_kept(segment, name)
    yield from bring_by_row(segment, name, limits)
    column = segment.columns.get(name)
    if isinstance(column, PageMap):
        # A merge may have left out millions.
        rows = bitmap(*(some[column.pages.take(some) > 0] for some in in_pieces(rows)))
        held: Dictionary = yield from read_rows(segment, name, column, rows, limits)
    else:
        held = segment.dictionary(name)
    found: list[Keys] = [np.zeros(0, held.keys.dtype)]
    for some in in_pieces(rows):
        codes = held.codes_of(some).astype(np.intp)
        found.append(held.keys[codes[codes > 0] - 1])
    return np.concatenate(found)


def read_rows(
    segment: LoadedSegment,
    name: str,
    held: PageMap,
    rows: BitMap,
    limits: ReadingLimits = STANDARD,
) -> Asking[PartialDictionary]:
    """A field of some rows, out of the pages that have their keys.

    Raises:
        DoesNotOpen: a page does not open.
    """
    directory = segment.directories[name]
    used = np.zeros(directory.present_pages + 1, np.bool_)
    absent: list[Ordinals] = [np.zeros(0, np.uint32)]
    for some in in_parts(rows):
        own = held.pages.take(some)
        used[own] = True
        absent.append(some[own == 0])
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
            own = np.arange(len(runs))
            if len(runs) > _FEW:
                # Millions of rows may have one value.
                runs, own = np.unique(runs, return_inverse=True)
            key_of.append((own + count).astype(np.uint32))
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


def only_rows(held: Dictionary, rows: BitMap) -> Dictionary:
    """A field of some rows, with no keys but theirs if there are many others: what is done with
    all of a million keys takes longer than anything with a few rows."""
    if len(rows) > len(held.keys) // 4:
        return held
    every = ordinals(rows)
    used, codes = np.unique(held.codes_of(every), return_inverse=True)
    has_absent = int(len(used) and used[0] == 0)
    keys = held.keys[used[has_absent:].astype(np.intp) - 1]
    return PartialDictionary(keys, every, codes + (1 - has_absent), has_long(keys))
