"""Build and open a mini, and what segments of both forms share (docs/SPEC.md, section 6).

A segment of up to 4,096 rows is a *mini*: one page that is the concatenation of its sealed
columns, in the order of its fields. Its length follows from the number of rows and the fields'
types and from nothing else, so two data sets of one shape look alike. Larger segments:
:mod:`encrypted_records.index.building` and :mod:`encrypted_records.index.paged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from cryptography.hazmat.primitives import hashes
from pyroaring import BitMap

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_MINI
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index import columns
from encrypted_records.index.bitmaps import bitmap
from encrypted_records.index.coded import Coded, coded
from encrypted_records.index.columns import Column, Ordinals
from encrypted_records.model.definition import SchemaDefinition, length_prefixed
from encrypted_records.model.records import MAX_MINI_RECORDS, Page, Segment
from encrypted_records.model.shapes import SEAL_VERSION, TAG_BYTES

_SEALED_OVERHEAD = len(bytes((SEAL_VERSION,))) + TAG_BYTES


class _Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a segment's header says, sealed; the visible Segment must say the same.

    ``rows`` are the local ordinals that are indexed, as (first, count) runs. ``inputs`` are the
    segments that a merge replaced by this one.
    """

    format: int
    form: str
    groups: list[tuple[bytes, int]]
    fields: list[str]
    rows: list[tuple[int, int]]
    inputs: list[bytes]


_headers = msgspec.msgpack.Decoder(_Header)


@dataclass(frozen=True, slots=True)
class Built:
    """A new segment and everything the API is to store of it."""

    segment: Segment
    pages: tuple[Page, ...]


def build_mini(
    key: SchemaKey,
    definition: SchemaDefinition,
    *,
    groups: Sequence[tuple[bytes, int]],
    found: Mapping[str, Column],
    rows: Ordinals,
    purged: int = 0,
    inputs: Sequence[bytes] = (),
) -> Built:
    """Seal the columns of up to 4,096 rows.

    Args:
        groups: (uid, base) of each group covered.
        found: a column per field of the definition; every one over exactly ``rows``.
        rows: the local ordinals indexed, ascending.
        purged: how many dead rows of the groups are left out.
        inputs: uids of the segments this one replaces.
    """
    assert 0 <= len(rows) <= MAX_MINI_RECORDS
    names = list(found)
    encoded = [columns.encode(found[name], definition.fields[name].type) for name in names]
    header = msgspec.msgpack.encode(
        _Header(1, "mini", list(groups), names, _runs(rows), list(inputs))
    )
    uid = key.uids.uid(_digest(length_prefixed(header, *encoded)))
    where = sealing.place(key)
    blob = b"".join(
        sealing.seal_page(
            key.field(definition.fields[name]).index(uid),
            PAGE_MINI,
            0,
            plain,
            schema_place=where,
            segment=uid,
            name=name.encode(),
        )
        for name, plain in zip(names, encoded, strict=True)
    )
    segment = Segment(
        uid=uid,
        form="mini",
        key_version=key.version,
        count=len(rows),
        purged=purged,
        groups=list(groups),
        pages=1,
        header=sealing.seal_header(key.meta(uid), header, schema_place=where, segment=uid),
    )
    return Built(segment, (Page(uid, 0, blob),))


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
    """Whether :func:`_runs` could have made these; nothing is as long as they say before that.

    Raises:
        DoesNotOpen: they are more than a mini's, out of order, or outside the segment's groups.
    """
    if segment.count > MAX_MINI_RECORDS:
        raise DoesNotOpen("a mini states more rows than a mini can have")
    end = -1
    for first, count in runs:
        # Two runs that touch would have been one.
        if first <= end or count < 1:
            raise DoesNotOpen("a segment's header lists rows out of order")
        end = first + count
    if end > segment.count + segment.purged:
        raise DoesNotOpen("a segment's header lists rows that its groups lack")


class OpenSegment:
    """A mini with its header opened; columns open when they are asked for."""

    def __init__(
        self, key: SchemaKey, definition: SchemaDefinition, segment: Segment, page: Page
    ) -> None:
        """Check that page and header belong to ``segment``.

        Raises:
            DoesNotOpen: header or page altered, or of another segment, schema or key.
        """
        assert segment.form == "mini"
        plain = sealing.open_header(
            key.meta(segment.uid),
            segment.header,
            schema_place=sealing.place(key),
            segment=segment.uid,
        )
        try:
            header = _headers.decode(plain)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise DoesNotOpen("a segment's header is of an unknown format") from None
        if header.format != 1 or header.form != segment.form or header.groups != segment.groups:
            raise DoesNotOpen("a segment's header states other groups than its commit")
        if sum(count for _, count in header.rows) != segment.count:
            raise DoesNotOpen("a segment's header states another count than its commit")
        _check_runs(header.rows, segment)
        self.segment = segment
        self._key = key
        self._definition = definition
        self.rows: Ordinals = np.concatenate(
            [
                np.zeros(0, np.uint32),
                *(np.arange(first, first + count, dtype=np.uint32) for first, count in header.rows),
            ]
        )
        self._sealed = self._cut(header.fields, page.data)
        self._columns: dict[str, Column] = {}
        self._coded: dict[str, Coded] = {}

    @property
    def count(self) -> int:
        return self.segment.count

    @cached_property
    def everything(self) -> BitMap:
        """:attr:`rows` as a set."""
        return bitmap(self.rows)

    @property
    def size(self) -> int:
        """Bytes of sealed columns held."""
        return sum(len(sealed) for sealed in self._sealed.values())

    def _cut(self, names: Sequence[str], blob: bytes) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        at = 0
        for name in names:
            spec = self._definition.fields.get(name)
            if spec is None:
                raise DoesNotOpen("a segment indexes a field that the definition lacks")
            end = at + columns.encoded_size(spec.type, self.count) + _SEALED_OVERHEAD
            found[name] = blob[at:end]
            at = end
        if at != len(blob):
            raise DoesNotOpen("a segment's page has another length than its shape demands")
        return found

    def missing_directories(self, names: Iterable[str]) -> set[int]:
        """None: a mini has no directories."""
        return set()

    def missing_columns(self, names: Iterable[str]) -> set[int]:
        """None: a mini is here as a whole."""
        return set()

    def lookup(self, name: str) -> Column:
        """The column of a field, all of which is here."""
        return self.column(name)

    def column(self, name: str) -> Column:
        """The column of a field; of one that is younger than the segment, all absent.

        Raises:
            DoesNotOpen: altered, or of another place or key.
        """
        column = self._columns.get(name)
        if column is None:
            column = self._open(name) if name in self._sealed else columns.absent(self.rows)
            self._columns[name] = column
        return column

    def coded(self, name: str) -> Coded:
        """The column of a field by row.

        Raises:
            DoesNotOpen: as :meth:`column`.
        """
        found = self._coded.get(name)
        if found is None:
            covered = self.segment.count + self.segment.purged
            found = self._coded[name] = coded(self.column(name), covered)
        return found

    def _open(self, name: str) -> Column:
        spec = self._definition.fields[name]
        plain = sealing.open_page(
            self._key.field(spec).index(self.segment.uid),
            PAGE_MINI,
            0,
            self._sealed[name],
            schema_place=sealing.place(self._key),
            segment=self.segment.uid,
            name=name.encode(),
        )
        column = columns.decode(plain, spec.type, self.count)
        if not np.array_equal(np.sort(column.ordinals), self.rows):
            raise DoesNotOpen("a column lists other rows than its segment has")
        return column
