"""Fields of a segment's rows, some rows at a time, in the form of columnar results.

Only one field's column is in memory at a time, row-major or as a window of pages. Only the keys of
the requested rows are kept, so that values of other rows, including dead rows, are not sent: for
texts a key for each distinct value, for other types the key of each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import INDEX_KEY_PREFIX
from encrypted_records.index.columns.column import OBJECT_BYTES, EntryBlock, Keys, key_type
from encrypted_records.index.columns.dictionary import (
    ColumnDictionary,
    PageMap,
    by_row_bytes,
    has_long,
)
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.query.asking import (
    Asking,
    Work,
    Workspace,
    ask_for,
    bring_by_row,
    bring_directories,
    bring_kept,
)
from encrypted_records.index.query.candidates import learn_texts
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.query.row_lookups import read_rows
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.index.segments.reading import Window, read_column, sample_column
from encrypted_records.model.definition import FieldSpec, column_spec
from encrypted_records.model.field_types.base import KeyKind

#: Share of a segment's rows up to which a column without keys is looked up page by page.
_FEW = 1 / 64
#: Bytes per row: in a row-major column of few values, and of its number here.
_ROW_BYTES, _CODE_BYTES = 2, 4
#: Bytes per row of a window: its number in the segment, its place, and a temporary copy of this
#: place.
_PLACE_BYTES = 12
#: Bytes of a value that is not a text, by the type in which it is sent; the maximum for other
#: types.
_VALUE_BYTES = {"bool": 1, "date32[day]": 4, "int64": 8, "time64[us]": 8, "timestamp[us]": 8}
_LONGEST_VALUE_BYTES = 16

Codes = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class FieldValues:
    """A field of some rows by its distinct values.

    Attributes:
        keys: the sorted keys of all values of the rows; texts may be narrower than index keys.
        codes: of each row, 0 if the field is absent, else 1 + the index of its key.
    """

    keys: Keys
    codes: Codes

    def part(self, first: int, end: int) -> FieldValues:
        """The field of some of the rows."""
        return _only_used(self.keys, self.codes[first:end])

    @property
    def long(self) -> NDArray[np.intp]:
        """The indexes of the keys of strings that are longer than a key."""
        if not has_long(self.keys):
            return np.zeros(0, np.intp)
        # The last bytes of a key are zero if it holds the whole string.
        return np.flatnonzero(matrix(self.keys)[:, INDEX_KEY_PREFIX:].any(axis=1))


@dataclass(frozen=True, slots=True)
class RowKeys:
    """A field of some rows by row; not of texts.

    Attributes:
        keys: the key of each row; zero if the field is absent.
        present: whether each row has the field; None if all have it.
    """

    keys: Keys
    present: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The plan for reading fields of a segment's rows.

    Attributes:
        row_bytes: approximate memory per row, while its fields are read one after the other.
        kept: the fields whose row-major columns stay for later queries, with keys.
        mapped: the fields of which the page of each row stays for later queries.
    """

    row_bytes: int
    kept: frozenset[str]
    mapped: frozenset[str] = frozenset()


def plan_windows(
    space: Workspace, segment: OpenedSegment, fields: Sequence[str], rows: int
) -> Asking[WindowPlan]:
    """Make a plan from directories and a few pages of texts.

    Args:
        rows: the number of rows to read. If they are few, a later query for other rows needs single
            pages of columns of too many values to be kept with their keys.

    Raises:
        DoesNotOpen: a page does not open.
    """
    value_bytes = work = 0
    sizes: dict[str, int] = {}
    if isinstance(segment, LoadedSegment):
        # Fetched together: a request for each field would cost more, and would reveal each page's
        # field.
        yield from bring_directories(segment, fields)
    for name in fields:
        spec = space.definition.fields[name]
        share, width = 1.0, key_type(spec.kind).itemsize
        if isinstance(segment, LoadedSegment) and segment.has_column(name):
            keys, width = yield from _count_keys(space, segment, name)
            size = by_row_bytes(keys, segment.directories[name].key_bytes, segment.covered)
            if size <= space.sizes.reading.by_row:
                sizes[name] = size
            share = min(1.0, keys / max(1, segment.count))
        if is_sent_as_text(spec):
            key_bytes = int(width * share)
            # Keys of pages and joined keys, and codes before and after the keys are sorted.
            work = max(work, 2 * key_bytes + 3 * _CODE_BYTES + _PLACE_BYTES)
            if spec.kind is not KeyKind.TEXT:
                # Numbers are written as Python's texts.
                key_bytes = int(_written_bytes(spec) * share)
                work = max(work, key_bytes + int(OBJECT_BYTES * share))
            value_bytes += _CODE_BYTES + key_bytes
            continue
        value_bytes += _VALUE_BYTES.get(spec.field_type.column_type(spec), _LONGEST_VALUE_BYTES)
        # Keys of each row, and a mask.
        work = max(work, width + 1 + _PLACE_BYTES)
    row_bytes = max(1, value_bytes + work)
    if isinstance(segment, LoadedSegment) and _are_few(rows, segment):
        # Keys stay where they take hardly more than the pages.
        most = 2 * segment.covered * _ROW_BYTES
        indexed = frozenset(filter(segment.has_column, fields))
        small = frozenset(name for name, size in sizes.items() if size <= most)
        if space.keeps_columns(space.snapshot.count, len(indexed) + len(small)):
            return WindowPlan(row_bytes, small, indexed - small)
    kept: set[str] = set()
    weight = 0
    for name in sorted(sizes, key=sizes.__getitem__):
        # A column with many values would evict several others.
        weight += -(-sizes[name] // (segment.segment.count * _ROW_BYTES))
        if not space.keeps_columns(space.snapshot.count, weight):
            break
        kept.add(name)
    return WindowPlan(row_bytes, frozenset(kept))


def _are_few(rows: int, segment: LoadedSegment) -> bool:
    return rows <= segment.covered * _FEW


def is_sent_as_text(spec: FieldSpec) -> bool:
    """Whether the field is sent as distinct values and codes."""
    return spec.field_type.column_type(spec) == "string"


def _written_bytes(spec: FieldSpec) -> int:
    """Maximum bytes of the text in which a number of the field is sent."""
    rules = spec.numbers
    digits = max(len(str(abs(point))) for point in (rules.lowest, rules.highest))
    # With a sign and a point, and a zero before it.
    return max(digits, rules.precision + 1) + 2


def _count_keys(space: Workspace, segment: LoadedSegment, name: str) -> Asking[tuple[int, int]]:
    """Estimates of the number of distinct keys of a column, and the bytes of a key."""
    directory = segment.directories[name]
    if directory.listed:
        return len(directory.starts), directory.key_bytes
    if space.definition.fields[name].kind is not KeyKind.TEXT:
        return directory.present, directory.key_bytes
    with scope(segment):
        return (yield from ask_for(segment, sample_column(segment, name, space.sizes.reading)))


def read_field(
    space: Workspace, segment: OpenedSegment, name: str, rows: Ordinals, plan: WindowPlan
) -> Asking[FieldValues | RowKeys]:
    """The values of a field for some rows: by row only if it is not sent as a text.

    Args:
        rows: of the segment, ascending.

    Raises:
        DoesNotOpen: the column does not open.
    """
    yield Work("read_columns", segment.segment.count + len(rows))
    with scope(segment):
        if isinstance(segment, LoadedSegment):
            return (yield from _read_paged(space, segment, name, rows, plan))
        return _of_dictionary(segment.dictionary(name), rows)


def _read_paged(
    space: Workspace, segment: LoadedSegment, name: str, rows: Ordinals, plan: WindowPlan
) -> Asking[FieldValues | RowKeys]:
    if not segment.has_column(name):  # it is older than the field
        kind = column_spec(segment.definition, name).kind
        return FieldValues(np.zeros(0, key_type(kind)), np.zeros(len(rows), np.uint8))
    yield from bring_directories(segment, [name])
    reading = space.sizes.reading
    if name in plan.kept:
        yield from bring_by_row(segment, name, reading, keys=True)
    elif name in plan.mapped:
        yield from bring_by_row(segment, name, replace(reading, by_row=0))
    else:
        # Making it row-major for a single query takes more memory, and no less time.
        yield from bring_kept(segment, name)
    if segment.has_keys(name):
        return _of_dictionary(segment.dictionary(name), rows)
    column = segment.columns.get(name)
    if isinstance(column, PageMap) and _are_few(len(rows), segment):
        partial_dictionary = yield from read_rows(segment, name, column, bitmap(rows), reading)
        return _only_used(partial_dictionary.keys, partial_dictionary.codes_of(rows))
    by_value = is_sent_as_text(space.definition.fields[name])
    pages = (_PagesByValue if by_value else _PagesByRow)(space, segment, name, rows)
    yield from ask_for(segment, read_column(segment, name, pages.take, reading))
    return pages.finish()


def _of_dictionary(dictionary: ColumnDictionary, rows: Ordinals) -> FieldValues:
    if len(rows) < len(dictionary.codes):
        return _only_used(dictionary.keys, dictionary.codes_of(rows))
    if dictionary.counts[1:].all():
        return FieldValues(dictionary.keys, dictionary.codes)
    return _only_used(dictionary.keys, dictionary.codes)


class _Pages:
    """A field of some rows, in one pass over all pages of its column, in any order."""

    def __init__(
        self, space: Workspace, segment: LoadedSegment, field: str, rows: Ordinals
    ) -> None:
        self._space = space
        self._kind = column_spec(segment.definition, field).kind
        self._leading = segment.directories[field].leading
        self._first = int(rows[0]) if len(rows) else 0
        #: for each ordinal from the first row on, its index among the rows, or -1; None for all
        #: rows
        self._place: NDArray[np.int32] | None = None
        if len(rows) < segment.covered:
            span = int(rows[-1]) - self._first + 1 if len(rows) else 0
            self._place = np.full(span, -1, np.int32)
            self._place[rows - self._first] = np.arange(len(rows), dtype=np.int32)

    def take(self, window: Window) -> None:
        self._space.go_on()
        for page, block in window:
            self._take_page(page, block)

    def _take_page(self, page: int, block: EntryBlock) -> None:
        raise NotImplementedError

    def _places(self, block: EntryBlock) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
        """The indexes among the rows of a page's entries, and a selection of these entries; None
        for all."""
        places = block.ordinals.astype(np.intp)
        if self._place is None:
            return places, None
        places -= self._first
        near = np.flatnonzero((places >= 0) & (places < len(self._place)))
        places = self._place[places[near]].astype(np.intp)
        return places[places >= 0], near[places >= 0]


class _PagesByRow(_Pages):
    """Collects the keys of rows."""

    def __init__(
        self, space: Workspace, segment: LoadedSegment, field: str, rows: Ordinals
    ) -> None:
        super().__init__(space, segment, field, rows)
        # Zeros, because old memory content must not be sent instead of an absent value.
        self._keys = np.zeros(len(rows), key_type(self._kind))
        self._present = np.ones(len(rows), np.bool_) if self._leading else None

    def _take_page(self, page: int, block: EntryBlock) -> None:
        places, entries = self._places(block)
        if page < self._leading:
            assert self._present is not None
            self._present[places] = False
            return
        keys = block.keys if len(block.keys) == len(block.ordinals) else block.expand()
        self._keys[places] = keys if entries is None else keys[entries]

    def finish(self) -> RowKeys:
        return RowKeys(self._keys, self._present)


class _PagesByValue(_Pages):
    """Collects distinct keys and the code of each row."""

    def __init__(
        self, space: Workspace, segment: LoadedSegment, field: str, rows: Ordinals
    ) -> None:
        super().__init__(space, segment, field, rows)
        self._codes = np.zeros(len(rows), np.uint32)
        #: by page index: the keys that the rows have, and the code of the first
        self._pages: dict[int, tuple[Keys, int]] = {}
        self._next = 1

    def _take_page(self, page: int, block: EntryBlock) -> None:
        if page < self._leading:
            return
        keys = block.keys
        key_of = np.repeat(np.arange(len(keys), dtype=np.uint32), block.counts)
        places, entries = self._places(block)
        if entries is not None:
            used = _only_used(keys, key_of[entries] + 1)
            keys, key_of = used.keys, used.codes.astype(np.uint32) - 1
        if len(keys):
            key_of += np.uint32(self._next)
            self._codes[places] = key_of
            self._pages[page] = (keys, self._next)
            self._next += len(keys)

    def finish(self) -> FieldValues:
        table = np.zeros(self._next, np.uint32)
        key_parts: list[Keys] = [np.zeros(0, key_type(self._kind))]
        if self._kind is KeyKind.TEXT:
            key_parts = [np.zeros(0, "S1")]
        count, last = 0, None
        for page in sorted(self._pages):
            keys, first = self._pages[page]
            # A key may end one page and begin the next.
            again = int(last is not None and bool(last == keys[0]))
            table[first : first + len(keys)] = np.arange(len(keys)) + (count + 1 - again)
            key_parts.append(keys[again:])
            count += len(keys) - again
            last = keys[-1]
        return FieldValues(np.concatenate(key_parts), table.take(self._codes))


def _only_used(keys: Keys, codes: Codes) -> FieldValues:
    """The values without unused keys."""
    used = np.zeros(len(keys) + 1, np.bool_)
    used[codes] = True
    used[0] = False
    chosen = np.flatnonzero(used)
    if len(chosen) == len(keys):
        return FieldValues(keys, codes)
    table = np.empty(len(keys) + 1, np.uint32)  # for the used keys, and for absent values
    table[0] = 0
    table[chosen] = np.arange(1, len(chosen) + 1)
    return FieldValues(keys.take(chosen - 1), table.take(codes))


def read_long_texts(
    space: Workspace,
    places: GroupPlaces,
    rows: Ordinals,
    values: Mapping[str, FieldValues],
) -> Asking[dict[str, dict[int, str]]]:
    """The texts that do not fit their keys, in the form in which they are compared: for each field
    by the index of the key. A record is opened for each.

    Args:
        rows: the rows of ``values``.

    Raises:
        DoesNotOpen: a record does not open, or has another text than the index.
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
    for name, keys_by_row in wanted.items():
        known = ((at, texts.get(name, key)) for at, key in keys_by_row.items())
        found[name] = {at: text for at, text in known if text is not None}
        assert len(found[name]) == len(keys_by_row)
    return found
