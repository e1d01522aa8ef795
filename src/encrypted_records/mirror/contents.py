"""The bytes of segments and groups in a mirror, and their check against the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from encrypted_records.errors import Altered, Malformed, NotFound, Unsupported
from encrypted_records.mirror.copy import altered, frames
from encrypted_records.mirror.layout import MirrorPages, MirrorRows, SchemaObjects
from encrypted_records.mirror.store import Store
from encrypted_records.model import digests, wire
from encrypted_records.model.digests import RUN
from encrypted_records.model.ids import ID_BYTES
from encrypted_records.model.records import (
    Group,
    Page,
    PageDigests,
    RowDigests,
    SealedRow,
    Segment,
    SegmentHeader,
    StoredRow,
)

#: An entry of an index of record ids: an id, and the ordinal of its row.
ENTRY_BYTES = ID_BYTES + 4


@dataclass(frozen=True, slots=True)
class RowContents:
    """The rows of one object by ordinal, and by the first ordinal of a run the digests of all of
    its rows, of runs that are not here as a whole."""

    rows: Mapping[int, SealedRow]
    digests: Mapping[int, bytes] = field(default_factory=dict)

    def check(self, group: Group, told: RowDigests) -> None:
        """
        Args:
            told: the digests of all runs of the group.

        Raises:
            Altered: a row is not the one that the log names.
        """
        shown = [
            RowDigests(group.uid, told.salt, first, own, told.runs)
            for first, own in self.digests.items()
        ]
        whole = RowDigests(group.uid, told.salt, -1, b"", told.runs)
        digests.check_rows(group, self.rows, [whole, *shown])

    def without_dead(self, place: MirrorRows, salt: bytes) -> RowContents:
        """The same, of the rows that live alone."""
        live = set(place.live)
        kept = {ordinal: row for ordinal, row in self.rows.items() if ordinal in live}
        proofs: dict[int, bytes] = {}
        for first in range(place.ordinals.start, place.ordinals.stop, RUN):
            run = range(first, min(first + RUN, place.ordinals.stop))
            here = [ordinal for ordinal in run if ordinal in kept]
            if here and len(here) < len(run):
                proofs[first] = self.digests.get(first) or digests.row_digests(
                    salt, [self.rows.get(ordinal) for ordinal in run]
                )
        return RowContents(kept, proofs)

    def encode(self, group: Group, salt: bytes) -> bytes:
        stored = [StoredRow(group.uid, ordinal, row) for ordinal, row in sorted(self.rows.items())]
        proofs = [
            RowDigests(group.uid, salt, first, own, b"") for first, own in self.digests.items()
        ]
        return wire.encode([*stored, *proofs])


def decode_rows(group: Group, name: str, data: bytes) -> RowContents:
    """The content of an object of rows of a group.

    Raises:
        MirrorBroken: it is not an object of rows, or of others.
    """
    rows: dict[int, SealedRow] = {}
    proofs: dict[int, bytes] = {}
    try:
        for item in wire.decode(data):
            if isinstance(item, StoredRow) and item.group == group.uid:
                rows[item.ordinal] = item.row
            elif isinstance(item, RowDigests) and item.group == group.uid:
                proofs[item.first] = item.rows
            else:
                raise altered(name)
    except (Malformed, Unsupported):
        raise altered(name) from None
    return RowContents(rows, proofs)


def read_rows(store: Store, place: MirrorRows, told: RowDigests) -> RowContents:
    """The rows of an object, checked against the log.

    Args:
        told: what :func:`read_runs` has read of the group.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or a row is not the one that was stored.
    """
    contents = decode_rows(place.group, place.name, store.read(place.name))
    if sorted(contents.rows) != place.live:
        raise altered(place.name)
    with named(place.name):
        contents.check(place.group, told)
    return contents


def read_header(store: Store, objects: SchemaObjects, segment: Segment) -> SegmentHeader:
    """The header of a segment, not checked yet. Raises as :func:`frames`."""
    return read_one(store, objects.header(segment), SegmentHeader)


def read_page_digests(store: Store, objects: SchemaObjects, segment: Segment) -> PageDigests:
    """The digests of a segment's pages, checked against the log.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or they, or the segment's header, are not
            those that were stored.
    """
    header = read_header(store, objects, segment)
    told = read_one(store, objects.page_digests(segment), PageDigests)
    with named(f"{objects.header(segment)}, or {objects.page_digests(segment)}"):
        check_pages(segment, header, told)
    return told


def read_pages(store: Store, place: MirrorPages, told: PageDigests) -> list[Page]:
    """The pages of an object, checked against the log.

    Args:
        told: what :func:`read_page_digests` has read of the segment.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or a page is not the one that was stored.
    """
    pages = frames(store, place.name, Page)
    if [(page.segment, page.number) for page in pages] != [
        (place.segment.uid, number) for number in place.numbers
    ]:
        raise altered(place.name)
    with named(place.name):
        for page in pages:
            digests.check_page(page.segment, page.number, page.data, told.pages)
    return pages


@contextmanager
def named(name: str) -> Iterator[None]:
    """Have what is not as it was stored named by the object of the mirror that has it."""
    try:
        yield
    except Altered:
        raise altered(name) from None


def read_one(store: Store, name: str, kind: type[wire.T]) -> wire.T:
    """The only frame of an object. Raises as :func:`frames`."""
    every = frames(store, name, kind)
    if len(every) != 1:
        raise altered(name)
    return every[0]


def read_runs(store: Store, objects: SchemaObjects, group: Group) -> RowDigests:
    """The digests of all runs of a group, checked against the log.

    Raises:
        MirrorBroken, Unavailable: as :func:`frames`; or they are not those of the group's commit.
    """
    told = read_one(store, objects.digests(group), RowDigests)
    with named(objects.digests(group)):
        require_runs(group, told)
    return told


def require_runs(group: Group, told: RowDigests) -> None:
    """
    Raises:
        Altered: these are not the runs that the group's commit names.
    """
    if told.group != group.uid or digests.group_digest(told.runs) != group.rows:
        raise Altered(f"the records are not as they were stored: group {group.uid.hex()}")


def check_pages(
    segment: Segment, header: SegmentHeader, told: PageDigests, pages: Iterable[Page] = ()
) -> None:
    """
    Raises:
        Altered: header, digests or pages are not those that the segment's commit names.
    """
    digests.check_pages(segment, header, told.pages)
    for page in pages:
        digests.check_page(segment.uid, page.number, page.data, told.pages)


def index_ids(rows: Iterable[Mapping[int, SealedRow]]) -> bytes:
    """The rows of a group by the id of their record: sorted entries of id and ordinal."""
    entries = [
        row.record_id + ordinal.to_bytes(4, "big") for some in rows for ordinal, row in some.items()
    ]
    return b"".join(sorted(entries))


def find_id(index: bytes, record_id: bytes) -> int | None:
    """The ordinal of a record's row in an index of ids; None if it has none."""
    places = range(0, len(index), ENTRY_BYTES)
    at = bisect_left(places, record_id, key=lambda place: index[place : place + ID_BYTES])
    entry = index[at * ENTRY_BYTES : (at + 1) * ENTRY_BYTES]
    return int.from_bytes(entry[ID_BYTES:], "big") if entry[:ID_BYTES] == record_id else None


def gone(what: str, code: str) -> NotFound:
    """Something that the log of this version does not have, or no longer."""
    return NotFound(
        f"a {what} is not here, or no longer",
        code=code,
        hint="read the manifest again: the mirror may have been copied again",
    )


def missing_runs(place: MirrorRows, rows: Sequence[int]) -> list[int]:
    """The first ordinals of the runs of which some rows, and not all, are among ``rows``."""
    held = set(rows)
    found = []
    for first in range(place.ordinals.start, place.ordinals.stop, RUN):
        run = range(first, min(first + RUN, place.ordinals.stop))
        here = sum(ordinal in held for ordinal in run)
        if 0 < here < len(run):
            found.append(first)
    return found
