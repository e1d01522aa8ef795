"""A field of the rows of one segment that match, however its column is here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import (
    Codes,
    ColumnDictionary,
    Dictionary,
    has_long,
)
from encrypted_records.index.ordinals import Ordinals, mask_of
from encrypted_records.index.query.asking import Asking
from encrypted_records.index.query.bringing import ask_for
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.grouping import renumber
from encrypted_records.index.query.tallies import DIRECTORY, FieldTally, GroupValues
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import (
    ReadingLimits,
    Window,
    WindowEntries,
    read_column,
)


def dictionary_of(part: Candidates, field: str) -> Dictionary | None:
    """The column by row; None of a large segment where it is not here with its keys."""
    segment = part.segment
    if isinstance(segment, LoadedSegment) and not segment.has_keys(field):
        return None
    return part.dictionary(field)


def known_counts(part: Candidates, field: str, tally: FieldTally) -> GroupValues | None:
    """The values of all rows of a segment as far as its loaded directory tells them; None if the
    directory is not sufficient.
    """
    segment = part.segment
    if not isinstance(segment, LoadedSegment) or not part.is_whole:
        return None
    if not segment.has_column(field):
        return None
    directory = segment.directories[field]
    present = directory.present
    if directory.listed:
        counts = np.diff(np.append(directory.starts.astype(np.int64), present))
        keys = directory.runs
    elif tally.needs in DIRECTORY and present > 1:
        keys = directory.outermost
        counts = np.array([1, present - 1])
    else:
        return None
    if has_long(keys):
        return None
    return of_one_group(keys, counts.astype(np.int64))


def of_one_group(keys: Keys, counts: Codes) -> GroupValues:
    return GroupValues(np.zeros(len(keys), np.int64), keys, counts, np.full(len(keys), -1))


def count_values(part: Candidates, field: str, dictionary: Dictionary) -> GroupValues:
    """The values of all candidates as one group, from a column by row."""
    if isinstance(dictionary, ColumnDictionary):
        counts = part.counts(field)[1:]
    else:
        codes = dictionary.codes_of(part.rows)
        counts = np.bincount(codes, minlength=len(dictionary.keys) + 1)[1:]
    used = np.flatnonzero(counts)
    values = of_one_group(dictionary.keys[used], counts[used].astype(np.int64))
    if dictionary.long:
        row_of = np.zeros(len(dictionary.keys) + 1, np.int64)
        for rows in part.in_pieces():
            row_of[dictionary.codes_of(rows)] = rows
        values.positions = part.places.positions(row_of[1:][used].astype(np.uint32))
    return values


def group_values(
    part: Candidates,
    dictionary: Dictionary,
    rows: Ordinals,
    groups: Codes,
    count: int,
    tally: FieldTally,
) -> GroupValues:
    """The values of some candidates in their groups.

    Args:
        groups: of each row the number of its group, of which there are ``count``.
    """
    codes = dictionary.codes_of(rows).astype(np.int64)
    present = codes > 0
    codes, rows, groups = codes[present] - 1, rows[present], groups[present]
    if not tally.of_values:
        ones = np.ones(len(codes), np.int64)
        return GroupValues(groups, dictionary.keys[codes], ones, ones)
    width = len(dictionary.keys)
    together, at = renumber(groups * width + codes, count * width)
    counts = np.bincount(at, minlength=len(together))
    positions = np.full(len(together), -1)
    if dictionary.long:
        row_of = np.zeros(len(together), np.uint32)
        row_of[at] = rows
        positions = part.places.positions(row_of)
    keys = dictionary.keys[together % width] if width else dictionary.keys
    return GroupValues(together // max(1, width), keys, counts, positions)


def read_values(
    part: Candidates,
    field: str,
    tally: FieldTally,
    limits: ReadingLimits,
    groups: NDArray[np.unsignedinteger] | None = None,
) -> Asking[None]:
    """Take in the values of a column that is here without keys, from its pages.

    Args:
        groups: of each row of the segment 1 + the number of its group, 0 for others; all
            candidates are one group where it is None.
    """
    segment = part.segment
    assert isinstance(segment, LoadedSegment)
    is_one = groups is None
    if groups is None:
        groups = mask_of(part.matches.possible, segment.covered).view(np.uint8)

    def take(window: Window) -> None:
        entries = WindowEntries(segment, field, window)
        own = groups.take(entries.ordinals)
        if is_one and len(entries.keys) and not has_long(entries.keys):
            # Without what is made of each entry.
            starts = np.cumsum(entries.lengths) - entries.lengths
            counts = np.add.reduceat(own, starts, dtype=np.int64)
            used = np.flatnonzero(counts)
            tally.add(of_one_group(entries.keys[used], counts[used]))
            return
        at = np.flatnonzero(own)
        if not len(at):
            return
        key_of = np.repeat(np.arange(len(entries.keys)), entries.lengths)[at]
        numbers = own[at].astype(np.int64) - 1
        first = np.ones(len(at), np.bool_)
        first[1:] = (key_of[1:] != key_of[:-1]) | (numbers[1:] != numbers[:-1])
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, len(at)))
        keys = entries.keys[key_of[starts]]
        positions = np.full(len(starts), -1)
        if has_long(keys):
            positions = part.places.positions(entries.ordinals[at[starts]])
        tally.add(GroupValues(numbers[starts], keys, counts, positions))

    yield from ask_for(segment, read_column(segment, field, take, limits))
