"""Build and open a mini, and the code that segments of both forms share (docs/SPEC.md, section 6).

A segment of up to 4,096 rows is a *mini*: one page that is the concatenation of its sealed
columns, in the order of its fields. Its length depends only on the number of rows, the fields'
types, and the room of word columns, which follows from the lengths of sealed texts; so two data
sets of the same shape look alike. Larger segments: :mod:`encrypted_records.index.segments.builder`
and :mod:`encrypted_records.index.segments.paged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
from cryptography.hazmat.primitives import hashes
from pyroaring import BitMap

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_MINI
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.columns.column import OBJECT_BYTES, Column, measure
from encrypted_records.index.columns.dictionary import ColumnDictionary, build_column_dictionary
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.segments.headers import (
    PLAIN,
    WORDS,
    ColumnKind,
    MiniHeader,
    named_column,
    open_header,
    seal_header,
)
from encrypted_records.model.ciphertext_lengths import SEAL_VERSION, TAG_BYTES
from encrypted_records.model.definition import (
    SchemaDefinition,
    column_spec,
    length_prefixed,
    same_column,
)
from encrypted_records.model.digests import page_digest, segment_digest
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.records import MAX_MINI_RECORDS, Page, Segment, SegmentHeader

_SEALED_OVERHEAD = len(bytes((SEAL_VERSION,))) + TAG_BYTES


@dataclass(frozen=True, slots=True)
class Built:
    """A new segment with all data that the API is to store."""

    segment: Segment
    header: SegmentHeader
    pages: tuple[Page, ...]
    #: of a mini: its columns by the names of its definition, and its rows
    columns: Mapping[str, Column] | None = field(default=None, compare=False)
    rows: Ordinals | None = field(default=None, compare=False)


def build_mini(
    key: SchemaKey,
    definition: SchemaDefinition,
    *,
    groups: Sequence[tuple[bytes, int]],
    column_of: Mapping[str, Column],
    rows: Ordinals,
    purged: int = 0,
    inputs: Sequence[bytes] = (),
) -> Built:
    """Seal the columns of up to 4,096 rows.

    Args:
        groups: (uid, base) of each group covered.
        column_of: each column of the definition, by name, over exactly ``rows``.
        rows: the local ordinals indexed, ascending.
        purged: the number of dead rows of the groups that are left out.
        inputs: uids of the segments that this segment replaces.
    """
    assert 0 <= len(rows) <= MAX_MINI_RECORDS
    specs = [column_spec(definition, name) for name in column_of]
    encoded = [_encode(column_of[spec.name], spec.kind) for spec in specs]
    ids = [spec.id for spec in specs]
    kinds = [_kind_of(column_of[spec.name], spec.kind) for spec in specs]
    header = msgspec.msgpack.encode(
        MiniHeader(1, "mini", list(groups), ids, _runs(rows), list(inputs), kinds)
    )
    uid = key.uids.uid(_digest(length_prefixed(header, *encoded)))
    where = sealing.context_of(key)
    blob = b"".join(
        sealing.seal_page(
            key.field(spec).index(uid),
            PAGE_MINI,
            0,
            plain,
            schema_context=where,
            segment=uid,
            field=spec.id_bytes,
        )
        for spec, plain in zip(specs, encoded, strict=True)
    )
    sealed = seal_header(key, uid, header)
    segment = Segment(
        uid=uid,
        form="mini",
        key_version=key.version,
        count=len(rows),
        purged=purged,
        groups=list(groups),
        pages=1,
        digest=segment_digest(sealed.salt, sealed.data, page_digest(blob)),
        definition=definition.digest,
    )
    return Built(segment, sealed, (Page(uid, 0, blob),), dict(column_of), rows)


def _encode(column: Column, kind: KeyKind) -> bytes:
    return words.encode(column) if kind is KeyKind.WORDS else columns.encode(column, kind)


def _kind_of(column: Column, kind: KeyKind) -> ColumnKind:
    return (WORDS, words.count_entries(column)) if kind is KeyKind.WORDS else PLAIN


def _digest(data: bytes) -> bytes:
    state = hashes.Hash(hashes.SHA256())
    state.update(data)
    return state.finalize()


def _runs(rows: Ordinals) -> list[tuple[int, int]]:
    """Ascending ordinals as (first, count) runs."""
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(run[0]), len(run)) for run in np.split(rows, breaks)]


def _check_runs(runs: Sequence[tuple[int, int]], segment: Segment) -> None:
    """Check that :func:`_runs` could have made these, before memory of the stated size is
    allocated.

    Raises:
        DoesNotOpen: they have more rows than a mini, are out of order, or are outside the segment's
            groups.
    """
    if segment.count > MAX_MINI_RECORDS:
        raise DoesNotOpen("a mini segment states more rows than it can have")
    end = -1
    for first, count in runs:
        # Adjacent runs would have been joined.
        if first <= end or count < 1:
            raise DoesNotOpen("a segment's header lists rows out of order")
        end = first + count
    if end > segment.count + segment.purged:
        raise DoesNotOpen("a segment's header lists rows that its groups lack")


class MiniSegment:
    """A mini with its header opened; columns are opened on first use."""

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        segment: Segment,
        sealed: SegmentHeader,
        page: Page,
        made: SchemaDefinition | None = None,
    ) -> None:
        """Check that page and header belong to ``segment``. Whether its commit names them is
        checked by :func:`encrypted_records.model.digests.check_mini`.

        Args:
            definition: gives fields their names, and keys their grids.
            made: the definition under which the segment was made, if it is another.

        Raises:
            DoesNotOpen: header or page was altered, or is of another segment, schema or key.
            Unsupported: as :func:`open_header`.
        """
        assert segment.form == "mini"
        header = open_header(key, segment, sealed, MiniHeader)
        if header.groups != segment.groups:
            raise DoesNotOpen("a segment's header states other groups than its commit")
        if sum(count for _, count in header.rows) != segment.count:
            raise DoesNotOpen("a segment's header states another count than its commit")
        _check_runs(header.rows, segment)
        self.segment = segment
        self._key = key
        self._definition = definition
        self._made = made or definition
        self.rows: Ordinals = np.concatenate(
            [
                np.zeros(0, np.uint32),
                *(np.arange(first, first + count, dtype=np.uint32) for first, count in header.rows),
            ]
        )
        #: the number of entries for which each word column has room
        self._rooms: dict[str, int] = {}
        self._sealed = self._cut(header, page.data)
        self._columns: dict[str, Column] = {}
        self._dictionaries: dict[str, ColumnDictionary] = {}

    @property
    def view(self) -> bytes:
        """Identifies the opened segment with the names and grids of its definition."""
        return self.segment.uid + self._definition.digest

    @property
    def definition(self) -> SchemaDefinition:
        """The same as :attr:`PagedSegment.definition`."""
        return self._definition

    @property
    def count(self) -> int:
        return self.segment.count

    @cached_property
    def everything(self) -> BitMap:
        """:attr:`rows` as a set."""
        return bitmap(self.rows)

    @property
    def size(self) -> int:
        """Bytes of sealed columns in memory."""
        return sum(len(sealed) for sealed in self._sealed.values())

    def _cut(self, header: MiniHeader, blob: bytes) -> dict[str, bytes]:
        sealed: dict[str, bytes] = {}
        at = 0
        for number, kind in zip(header.fields, header.kinds, strict=True):
            spec, room = named_column(self._definition, self._made, number, kind)
            if room is None:
                size = columns.encoded_size(spec.kind, self.count)
            else:
                self._rooms[spec.name] = room
                size = words.encoded_size(room)
            end = at + size + _SEALED_OVERHEAD
            sealed[spec.name] = blob[at:end]
            at = end
        if at != len(blob):
            raise DoesNotOpen("a segment's page has another length than its shape demands")
        return sealed

    def has_column(self, name: str) -> bool:
        """Whether the segment has the column; false if the field is younger."""
        return name in self._sealed

    def missing_directories(self, names: Iterable[str]) -> set[int]:
        """Empty, because a mini has no directories."""
        return set()

    def missing_columns(self, names: Iterable[str]) -> set[int]:
        """Empty, because all of a mini is in memory."""
        return set()

    def lookup(self, name: str) -> Column:
        """The whole column of a field."""
        return self.column(name)

    def column(self, name: str) -> Column:
        """The column of a field; all absent if the field is younger than the segment.

        Raises:
            DoesNotOpen: the column was altered, or is of another segment, field or key.
        """
        column = self._columns.get(name)
        if column is None:
            column = self._open(name) if self.has_column(name) else self._missing(name)
            self._columns[name] = column
        return column

    def dictionary(self, name: str) -> ColumnDictionary:
        """The row-major column of a field.

        Raises:
            DoesNotOpen: as :meth:`column`.
        """
        dictionary = self._dictionaries.get(name)
        if dictionary is None:
            covered = self.segment.count + self.segment.purged
            dictionary = self._dictionaries[name] = build_column_dictionary(
                self.column(name), covered
            )
        return dictionary

    def _missing(self, name: str) -> Column:
        kind = column_spec(self._definition, name).kind
        return (
            words.undecided(self.rows) if kind is KeyKind.WORDS else columns.absent(self.rows, kind)
        )

    def _open(self, name: str) -> Column:
        spec = column_spec(self._definition, name)
        stored_spec = same_column(self._made, spec)
        assert stored_spec is not None
        plain = sealing.open_page(
            self._key.field(stored_spec).index(self.segment.uid),
            PAGE_MINI,
            0,
            self._sealed[name],
            schema_context=sealing.context_of(self._key),
            segment=self.segment.uid,
            field=spec.id_bytes,
        )
        if name in self._rooms:
            return words.decode(plain, self.rows, self._rooms[name])
        column = columns.decode(plain, spec.kind, self.count)
        if not np.array_equal(np.sort(column.ordinals), self.rows):
            raise DoesNotOpen("a column lists other rows than its segment has")
        rebase = Rebase.between(stored_spec, spec)
        return rebase.column(column) if rebase else column


class KnownMini(MiniSegment):
    """A mini that was built by this process: nothing has to be fetched or opened."""

    def __init__(self, definition: SchemaDefinition, built: Built) -> None:
        """
        Args:
            definition: the definition under which it was built.
        """
        assert built.columns is not None and built.rows is not None, "it is a mini"
        self.segment = built.segment
        self.rows = built.rows
        self._definition = self._made = definition
        self._known = frozenset(built.columns)
        self._columns = dict(built.columns)
        self._dictionaries = {}
        self._size = measure(self.rows) + sum(
            measure(column.ordinals, column.keys) + OBJECT_BYTES
            for column in built.columns.values()
        )

    @property
    def size(self) -> int:
        """Bytes of columns in memory."""
        return self._size

    def has_column(self, name: str) -> bool:
        return name in self._known
