"""Fields of a segment's rows, some rows at a time, as they are sent in columns.

Each field's column is in memory alone, by row or a window of pages at a time; what is left of it is
a key for each different value of the rows, so that values of other rows, dead ones among them, are
not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.index.columns.column import Keys, key_type
from encrypted_records.index.columns.dictionary import PageMap, has_long
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.log.snapshot import Places
from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.query.asking import Asking, Work
from encrypted_records.index.query.bringing import (
    ask_for,
    bring_by_row,
    bring_directories,
    bring_kept,
)
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.records import learn_texts
from encrypted_records.index.query.row_lookups import read_rows
from encrypted_records.index.query.workspace import Workspace
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.index.segments.reading import Window, WindowEntries, read_column
from encrypted_records.model.word_columns import column_spec

#: Up to this share of a segment's rows, a column without keys is looked up page by page.
_FEW = 1 / 64

RowCodes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FieldValues:
    """A field of some rows.

    Attributes:
        keys: of all values that the rows have, in any order; one may be there twice.
        codes: of each row 0 where the field is absent, else 1 + the index of its key.
    """

    keys: Keys
    codes: RowCodes

    def part(self, first: int, end: int) -> FieldValues:
        """The field of some of the rows."""
        return _only_used(self.keys, self.codes[first:end])

    @property
    def long(self) -> NDArray[np.intp]:
        """The indexes of the keys of strings that are longer than a key holds."""
        if not has_long(self.keys):
            return np.zeros(0, np.intp)
        # A key of a string that it holds has nothing in its last bytes.
        return np.flatnonzero(matrix(self.keys)[:, INDEX_KEY_PREFIX:].any(axis=1))


def read_window(
    space: Workspace, segment: OpenedSegment, fields: Sequence[str], rows: Ordinals
) -> Asking[dict[str, FieldValues]]:
    """The values of some fields for some rows.

    Args:
        rows: of the segment, ascending.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    values: dict[str, FieldValues] = {}
    for name in fields:
        yield Work("read_columns", segment.segment.count + len(rows))
        with scope(segment):
            if isinstance(segment, LoadedSegment):
                values[name] = yield from _read_paged(space, segment, name, rows, len(fields))
            else:
                held = segment.dictionary(name)
                values[name] = _only_used(held.keys, held.codes_of(rows).astype(np.int64))
    return values


def _read_paged(
    space: Workspace, segment: LoadedSegment, name: str, rows: Ordinals, fields: int
) -> Asking[FieldValues]:
    if not segment.has_column(name):  # it is older than the field
        kind = column_spec(segment.definition, name).kind
        return FieldValues(np.zeros(0, key_type(kind)), np.zeros(len(rows), np.int64))
    yield from bring_directories(segment, [name])
    if space.keeps_columns(space.snapshot.count, fields):
        yield from bring_by_row(segment, name, space.sizes.reading)
    else:
        # To turn it round for one question takes more memory, and no less time.
        yield from bring_kept(segment, name)
    if segment.has_keys(name):
        held = segment.dictionary(name)
        return _only_used(held.keys, held.codes_of(rows).astype(np.int64))
    column = segment.columns.get(name)
    if isinstance(column, PageMap) and len(rows) <= segment.covered * _FEW:
        some = yield from read_rows(segment, name, column, bitmap(rows), space.sizes.reading)
        return _only_used(some.keys, some.codes_of(rows))
    return (yield from _read_pages(space, segment, name, rows))


def _read_pages(
    space: Workspace, segment: LoadedSegment, name: str, rows: Ordinals
) -> Asking[FieldValues]:
    """A field of some rows, in one pass over all pages of its column."""
    kind = column_spec(segment.definition, name).kind
    keys: list[Keys] = [np.zeros(0, key_type(kind))]
    codes: RowCodes = np.zeros(len(rows), np.int64)
    first = int(rows[0]) if len(rows) else 0
    # The place among the rows of each ordinal from the first row on, else -1.
    place = np.full(int(rows[-1]) - first + 1 if len(rows) else 0, -1, np.int32)
    place[rows - first] = np.arange(len(rows))
    count = 0

    def take(window: Window) -> None:
        nonlocal count
        space.go_on()
        entries = WindowEntries(segment, name, window)
        at = entries.ordinals.astype(np.int64) - first
        near = np.flatnonzero((at >= 0) & (at < len(place)))
        own = place[at[near]]
        near, own = near[own >= 0], own[own >= 0]
        key_of = entries.key_of_entries()[near]
        used = np.zeros(len(entries.keys), np.bool_)
        used[key_of] = True
        codes[own] = count + np.cumsum(used)[key_of]
        keys.append(entries.keys[used])
        count += int(np.count_nonzero(used))

    yield from ask_for(segment, read_column(segment, name, take, space.sizes.reading))
    return FieldValues(np.concatenate(keys), codes)


def _only_used(keys: Keys, codes: RowCodes) -> FieldValues:
    """The same without keys that no row has."""
    used = np.zeros(len(keys) + 1, np.bool_)
    used[codes] = True
    if used[1:].all():
        return FieldValues(keys, codes)
    used[0] = False
    return FieldValues(keys[used[1:]], np.where(codes > 0, np.cumsum(used)[codes], 0))


def read_long_texts(
    space: Workspace,
    places: Places,
    rows: Ordinals,
    values: Mapping[str, FieldValues],
) -> Asking[dict[str, dict[int, str]]]:
    """The texts that keys do not hold, as they are compared: of each field by the index of its key.
    One record is opened for each.

    Args:
        rows: those of ``values``.

    Raises:
        DoesNotOpen: a record does not open, or holds another text than the index says.
    """
    texts = Texts(len(rows) * len(values))
    wanted: dict[str, dict[int, bytes]] = {}
    for name, field in values.items():
        if space.definition.fields[name].field_type.is_text and len(field.long):
            row_of = np.zeros(len(field.keys) + 1, np.int64)
            row_of[field.codes] = np.arange(len(rows))
            positions = places.positions(rows[row_of[field.long + 1]])
            wanted[name] = {int(at): bytes(field.keys[at]) for at in field.long}
            for key, position in zip(wanted[name].values(), positions.tolist(), strict=True):
                texts.want(name, key, position)
    if texts.wanted:
        yield from learn_texts(space, texts)
    found: dict[str, dict[int, str]] = {}
    for name, own in wanted.items():
        told = ((at, texts.get(name, key)) for at, key in own.items())
        found[name] = {at: text for at, text in told if text is not None}
        assert len(found[name]) == len(own)
    return found
