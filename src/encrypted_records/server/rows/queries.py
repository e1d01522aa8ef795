"""Read stored data: the log, pages and rows as frames, records as sealed JSON.

Frames are streamed: refusals are decided before the first byte, from the small tables alone. If
requested data is swept or erased meanwhile, the generators raise the same errors:
:mod:`encrypted_records.server.http.bodies` answers with the error, or breaks off an answer that has
begun.

Rows and pages are read from a replica of the database, if a replica is configured and has them.

All decisions are made by the primary: who may read, which version the log has, which rows are gone,
which number a group or segment has. Rows and pages themselves never change once a commit has named
them. So a replica that has seen that commit has the right ones, however far it lags behind. The
primary is queried for rows and pages that the replica lacks, and while the replica is away or
fails. No answer shows which of the two it came from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import msgspec
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Length
from msgspec.structs import asdict

from encrypted_records.errors import BadInput, Conflict, NotFound, ObjectLost
from encrypted_records.model import ids, resources, wire
from encrypted_records.model.digests import DIGEST, HOLE, RUN, pack_fields, row_digest
from encrypted_records.model.records import (
    DELTA_BYTES,
    MAX_BLOCK_REFS,
    MAX_DIGEST_REFS,
    MAX_PAGE_REFS,
    MAX_ROW_REFS,
    BlockNames,
    BlockRef,
    Commit,
    LogEntry,
    ManifestDelta,
    Page,
    PageDigests,
    PageRef,
    RowDigests,
    RowName,
    RowRef,
    SealedRow,
    SegmentHeader,
    StoredRow,
)
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.databases import REPLICA
from encrypted_records.server.records import store
from encrypted_records.server.records.models import CommitLog, IndexSegment, RecordGroup
from encrypted_records.server.rows import contents

_PAGES_AT_ONCE = 256
_ROWS_AT_ONCE = 250
#: Bytes of a header's frame in addition to the header: uid, salt and lengths.
_BESIDE_HEADER = 64


#: Seconds for which a failed replica is not used.
AGAIN_SECONDS = 10.0

_log = logging.getLogger(__name__)


class _ReplicaPause:
    """The time until which this process does not use the replica."""

    until = 0.0


def rows_at(
    groups: Mapping[int, bytes], keys: Sequence[store.Key]
) -> dict[store.Key, store.StoredSealedRow]:
    """Rows from the replica, else from the primary; see :func:`.contents.rows_at`.

    Args:
        groups: the uid of each group, by its number.
    """
    return _at(RecordGroup, groups, keys, contents.rows_at)


def pages_at(segments: Mapping[int, bytes], keys: Sequence[store.Key]) -> dict[store.Key, bytes]:
    """Pages from the replica, else from the primary; see :func:`.contents.pages_at`.

    Args:
        segments: the uid of each segment, by its number.
    """
    return _at(IndexSegment, segments, keys, contents.pages_at)


def _at(
    kind: type[RecordGroup | IndexSegment],
    uids: Mapping[int, bytes],
    keys: Sequence[store.Key],
    read: Callable[[Sequence[store.Key]], dict[store.Key, T]],
) -> dict[store.Key, T]:
    if REPLICA not in settings.DATABASES:
        return read(keys)
    found = _of_replica(kind, uids, keys, read)
    left = [key for key in keys if key not in found]
    return found | read(left) if left else found


def _of_replica(
    kind: type[RecordGroup | IndexSegment],
    uids: Mapping[int, bytes],
    keys: Sequence[store.Key],
    read: Callable[[Sequence[store.Key]], dict[store.Key, T]],
) -> dict[store.Key, T]:
    """Rows or pages that the replica has."""
    if time.monotonic() < _ReplicaPause.until:
        return {}
    if _ReplicaPause.until:
        # Only this thread tries whether the replica is back; meanwhile others use the primary.
        _ReplicaPause.until = time.monotonic() + AGAIN_SECONDS
    try:
        with _on_replica():
            # Compare uids: a promoted replica may have reused numbers that the primary had
            # assigned. Staged data may still be replaced.
            known = kind._default_manager.filter(pk__in=list(uids), staging=None)
            identical = {
                number
                for number, uid in known.values_list("pk", "uid")
                if bytes(uid) == uids[number]
            }
            found = read([key for key in keys if key[0] in identical])
    except ObjectLost:
        return {}  # the replica may name an object that was rewritten since
    except Error as error:
        _ReplicaPause.until = time.monotonic() + AGAIN_SECONDS
        connections[REPLICA].close()
        _log.warning("the database replica failed (%s)", type(error).__name__)
        return {}
    _ReplicaPause.until = 0.0
    return found


@contextmanager
def _on_replica() -> Iterator[None]:
    """Route this thread's statements to the replica."""
    primary = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[REPLICA]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


T = TypeVar("T")


def manifest(schema: Schema, since: int, *, headers: bool = False) -> Iterator[ManifestDelta]:
    """The log after ``since``, in one delta or, if it is long, in several consecutive deltas.

    Args:
        headers: whether to include the headers of all live segments, also of those added before.

    Raises:
        Conflict: ``log_conflict``; this log does not reach that far.
    """
    if since > schema.version:
        raise Conflict(
            "the log ends before the version you have seen",
            code="log_conflict",
            hint="if the API was restored from a backup, restore its newest one",
        )
    if headers:
        return chain(_live_headers(schema, since), _deltas(schema, since))
    # Most callers know the whole log already; this spares them a server-side cursor.
    return (
        _deltas(schema, since)
        if since < schema.version
        else iter([_delta(schema, since, since, [])])
    )


def _live_headers(schema: Schema, since: int) -> Iterator[ManifestDelta]:
    """The headers of live segments that were added up to ``since``, in deltas without a commit."""
    headers: list[SegmentHeader] = []
    size = 0
    for header in _headers(schema, 0).filter(version__lte=since).iterator(chunk_size=200):
        headers.append(SegmentHeader(bytes(header.uid), bytes(header.salt), bytes(header.header)))
        size += len(header.header) + _BESIDE_HEADER
        if size >= DELTA_BYTES:
            yield _with(schema, since, headers)
            headers, size = [], 0
    if headers:
        yield _with(schema, since, headers)


def _with(schema: Schema, version: int, headers: list[SegmentHeader]) -> ManifestDelta:
    return msgspec.structs.replace(_delta(schema, version, version, []), headers=headers)


def _deltas(schema: Schema, since: int) -> Iterator[ManifestDelta]:
    log = CommitLog.objects.filter(schema=schema, version__gt=since, version__lte=schema.version)
    rows = log.order_by("version").values_list("version", "body", "mac", "signature")
    sizes = _headers(schema, since).values_list("version", Length("header"))
    of_headers: dict[int, int] = {}
    for version, length in sizes:
        of_headers[version] = of_headers.get(version, 0) + length + _BESIDE_HEADER
    entries: list[LogEntry] = []
    size = 0
    for version, body, mac, signature in rows.iterator(chunk_size=200):
        entries.append(LogEntry(version, Commit(bytes(body), bytes(mac), bytes(signature))))
        size += len(body) + of_headers.get(version, 0)
        if size >= DELTA_BYTES and version < schema.version:
            yield _delta(schema, since, version, entries)
            since, entries, size = version, [], 0
    yield _delta(schema, since, schema.version, entries)


def _headers(schema: Schema, since: int) -> QuerySet[IndexSegment]:
    """The segments that were added after ``since`` and are live at the schema's version."""
    return IndexSegment.objects.filter(
        Q(replaced=None) | Q(replaced__gt=schema.version),
        schema=schema,
        version__gt=since,
        version__lte=schema.version,
        pages__gt=0,
    ).order_by("version", "pk")


def _delta(schema: Schema, since: int, version: int, entries: list[LogEntry]) -> ManifestDelta:
    key_id = None if schema.key_id is None else bytes(schema.key_id)
    added = _headers(schema, since).filter(version__lte=version) if entries else ()
    return ManifestDelta(
        schema.uid,
        version,
        key_id,
        bytes(schema.definition_digest),
        entries,
        [
            SegmentHeader(bytes(segment.uid), bytes(segment.salt), bytes(segment.header))
            for segment in added
        ],
    )


def pages(schema: Schema, wanted: Sequence[PageRef]) -> Iterator[Page]:
    """The requested pages, in that order.

    Raises:
        TooLarge: more than ``MAX_PAGE_REFS``.
        NotFound: ``segment_gone``; the schema has no such page, or no longer.
    """
    wire.require_few(wanted, MAX_PAGE_REFS)
    segments = _segments_with(schema, wanted)
    return _pages(schema, wanted, {uid: pk for uid, (pk, _) in segments.items()})


def _segments_with(schema: Schema, wanted: Iterable[PageRef]) -> dict[bytes, tuple[int, int]]:
    """The number and page count of each of these pages' segments, by uid.

    Raises:
        NotFound: ``segment_gone``; the schema has no such page, or no longer.
    """
    segments = store.segments_at(schema.uid, {ref.segment for ref in wanted})
    if any(ref.segment not in segments or ref.number >= segments[ref.segment][1] for ref in wanted):
        raise NotFound(
            "a page does not exist here, or no longer",
            code="segment_gone",
            hint="read the manifest again: a merge may have replaced the segment",
        )
    return segments


def _pages(schema: Schema, wanted: Sequence[PageRef], segments: dict[bytes, int]) -> Iterator[Page]:
    uids = {number: uid for uid, number in segments.items()}
    for batch in store.cut(wanted, _PAGES_AT_ONCE):
        keys = [(segments[ref.segment], ref.number) for ref in batch]
        data = pages_at(uids, keys)
        if lost := [ref for ref, key in zip(batch, keys, strict=True) if key not in data]:
            _segments_with(schema, batch)  # raises if they were swept since
            raise _lost(f"page {lost[0].number} of segment {lost[0].segment.hex()}")
        for ref, key in zip(batch, keys, strict=True):
            yield Page(ref.segment, ref.number, data[key])


def _lost(missing: str) -> ObjectLost:
    return ObjectLost(
        f"{missing} is missing from the API's database",
        hint="restore the database from a backup; ers verify --stored names all that is missing",
    )


def rows(schema: Schema, wanted: Sequence[RowRef]) -> Iterator[StoredRow]:
    """The requested rows, in that order; dead rows too, for readers of an earlier version.

    Raises:
        TooLarge: more than ``MAX_ROW_REFS``.
        NotFound: ``row_gone``; the schema has no such row, or no longer.
    """
    wire.require_few(wanted, MAX_ROW_REFS)
    groups = _groups_with(schema, wanted)
    return _rows(schema, wanted, {uid: group.number for uid, group in groups.items()})


def _groups_with(schema: Schema, wanted: Sequence[RowRef]) -> dict[bytes, store.StoredGroup]:
    """The groups of these rows, by uid.

    Raises:
        NotFound: ``row_gone``; the schema has no such row, or no longer.
    """
    groups = store.groups_at(schema.uid, {ref.group for ref in wanted})
    gone = any(ref.group not in groups or not groups[ref.group].has(ref.ordinal) for ref in wanted)
    with_erased = [] if gone else [ref for ref in wanted if groups[ref.group].erased]
    if gone or (
        with_erased
        and (
            any(groups[ref.group].erased >= groups[ref.group].count for ref in with_erased)
            or contents.erased_among(
                [(groups[ref.group].number, ref.ordinal) for ref in with_erased]
            )
        )
    ):
        raise NotFound(
            "a row does not exist here, or no longer",
            code="row_gone",
            hint="read the manifest again",
        )
    return groups


def _rows(
    schema: Schema, wanted: Sequence[RowRef], groups: dict[bytes, int]
) -> Iterator[StoredRow]:
    uids = {number: uid for uid, number in groups.items()}
    for batch in store.cut(wanted, _ROWS_AT_ONCE):
        keys = [(groups[ref.group], ref.ordinal) for ref in batch]
        sealed_rows = rows_at(uids, keys)
        if lost := [ref for ref, key in zip(batch, keys, strict=True) if key not in sealed_rows]:
            _groups_with(schema, batch)  # as for pages
            raise _lost(f"row {lost[0].ordinal} of group {lost[0].group.hex()}")
        for ref, key in zip(batch, keys, strict=True):
            row = sealed_rows[key]
            yield StoredRow(
                ref.group, ref.ordinal, SealedRow(row.record_id, row.version, row.fields)
            )


def digests(
    schema: Schema, wanted: Sequence[RowRef | PageRef]
) -> Iterator[RowDigests | PageDigests]:
    """The proof of each row and, for each page, the digests of all pages of its segment, in that
    order.

    Raises:
        TooLarge: more than ``MAX_DIGEST_REFS``.
        NotFound: ``row_gone``, ``segment_gone``; the schema has no such row or page, or no longer.
    """
    wire.require_few(wanted, MAX_DIGEST_REFS)
    rows = [ref for ref in wanted if isinstance(ref, RowRef)]
    groups = _groups_with(schema, rows)
    runs = store.runs_of({group.number for group in groups.values()})
    # Every page of a segment has the same digests: those of all its pages.
    named = [PageRef(ref.segment, 0) for ref in wanted if isinstance(ref, PageRef)]
    segments = _segments_with(schema, named)
    return (
        _row_digests(
            schema, groups[ref.group], runs, ref, rows_by_run[_run_of(groups[ref.group], ref)]
        )
        if isinstance(ref, RowRef)
        else _page_digests(schema, *segments[ref.segment], ref)
        for batch in _with_few_rows(groups, wanted)
        for rows_by_run in [_rows_of_runs(groups, batch)]
        for ref in batch
    )


def _run_of(group: store.StoredGroup, ref: RowRef) -> contents.Range:
    """The range of the run that contains a row."""
    first = ref.ordinal - ref.ordinal % RUN
    return group.number, first, min(first + RUN, group.count)


def _with_few_rows(
    groups: Mapping[bytes, store.StoredGroup], wanted: Sequence[RowRef | PageRef]
) -> Iterator[list[RowRef | PageRef]]:
    """Batches of rows or pages; digesting a batch reads no more rows than a run has."""
    batch: list[RowRef | PageRef] = []
    count = 0
    for ref in wanted:
        size = 0
        if isinstance(ref, RowRef):
            _, first, end = _run_of(groups[ref.group], ref)
            size = end - first
        if batch and count + size > RUN:
            yield batch
            batch, count = [], 0
        batch.append(ref)
        count += size
    yield batch


def _rows_of_runs(
    groups: Mapping[bytes, store.StoredGroup], wanted: Sequence[RowRef | PageRef]
) -> dict[contents.Range, list[store.StoredSealedRow]]:
    """The rows of all runs that contain these rows."""
    rows = (ref for ref in wanted if isinstance(ref, RowRef))
    ranges = {_run_of(groups[ref.group], ref) for ref in rows}
    return contents.rows_in(sorted(ranges)) if ranges else {}


def _row_digests(
    schema: Schema,
    group: store.StoredGroup,
    runs: Mapping[int, bytes],
    ref: RowRef,
    rows: Sequence[store.StoredSealedRow],
) -> RowDigests:
    number, first, end = _run_of(group, ref)
    by_ordinal = {row.ordinal: row for row in rows}
    absent = [at for at in range(first, end) if at not in by_ordinal and group.has(at)]
    left = contents.erased_digests(number, first, end) if absent else {}
    if gone := [at for at in absent if at not in left]:
        _groups_with(schema, [RowRef(ref.group, at) for at in gone])  # as for pages
        raise _lost(f"row {gone[0]} of group {ref.group.hex()}")
    row_digests = [
        row_digest(
            group.salt, by_ordinal[at].record_id, by_ordinal[at].version, by_ordinal[at].sealed
        )
        if at in by_ordinal
        else left.get(at, HOLE)
        for at in range(first, end)
    ]
    return RowDigests(ref.group, group.salt, first, b"".join(row_digests), runs[number])


def _page_digests(schema: Schema, number: int, count: int, ref: PageRef) -> PageDigests:
    page_digests = contents.page_digests_of([number])[number]
    if len(page_digests) < count * DIGEST:
        _segments_with(schema, [PageRef(ref.segment, count - 1)])  # as for pages
        raise _lost(f"a page of segment {ref.segment.hex()}")
    return PageDigests(ref.segment, page_digests)


# --- records as sealed JSON ----------------------------------------------------------------


def list_live(schema: Schema, *, offset: int, limit: int) -> list[resources.SealedRecord]:
    """Live records in storage order.

    Each group has a count of its live rows, so a late page costs no more than an early page.
    """
    records: list[resources.SealedRecord] = []
    visible = RecordGroup.objects.filter(schema=schema, live__gt=0, staging=None)
    groups = visible.order_by("start")
    for group in groups.iterator():
        if offset >= group.live:
            offset -= group.live
            continue
        live_rows = contents.live_rows(group, offset=offset, limit=limit - len(records))
        records += [sealed_record(schema, group, row) for row in live_rows]
        offset = 0
        if len(records) >= limit:
            break
    return records


def list_stored(
    schema: Schema, *, offset: int, limit: int
) -> tuple[int, list[resources.UnfilteredRecord]]:
    """The number of all rows ever stored, and the rows at these positions, dead rows too, in
    storage order.

    For recovery after data loss: no log is read, and positions whose rows are lost are left out.
    """
    live = RecordGroup.objects.filter(schema=schema, staging=None, ended_at=None)
    groups = live.order_by("start")
    count = groups.aggregate(rows=Sum("count", default=0))["rows"]
    stored_rows: list[resources.UnfilteredRecord] = []
    for group in groups.iterator():
        if limit <= 0:
            break
        if offset >= group.count:
            offset -= group.count
            continue
        end = min(offset + limit, group.count)
        for row, dead in contents.rows_between(group.pk, offset, end, damaged=True):
            found = _whole_or_bare(schema, group, row)
            stored_rows.append(resources.UnfilteredRecord(**asdict(found), dead=dead))
        limit -= end - offset
        offset = 0
    return count, stored_rows


def _whole_or_bare(
    schema: Schema, group: RecordGroup, row: store.StoredSealedRow
) -> resources.SealedRecord:
    """A sealed record; without its fields if the stored row is damaged."""
    try:
        return sealed_record(schema, group, row)
    except (msgspec.DecodeError, ValueError, KeyError):
        return sealed_record(schema, group, replace(row, sealed=pack_fields([])), ())


def sealed_record(
    schema: Schema,
    group: RecordGroup,
    row: store.StoredSealedRow,
    names: Sequence[str] | None = None,
) -> resources.SealedRecord:
    if names is None:
        fields = schema.parse().by_id
        names = [fields[field].name for field in store.fields_of(group.fields)]
    identifier = ids.to_text(row.record_id)
    return resources.SealedRecord(
        id=identifier,
        url=ids.reference("records", identifier),
        schema=schema.url,
        version=row.version,
        group=bytes(group.uid).hex(),
        ordinal=row.ordinal,
        key_id=bytes(group.key_id).hex(),
        key_version=group.key_version,
        fields=dict(zip(names, row.fields, strict=True)),
    )


# Ids and versions of the rows of whole blocks, each with one sealed field of its row.
#
# A proxy that replaces many records knows their rows from its index, but not their ids and
# versions. The sealed field opens only with the right id and version, so that the proxy need not
# trust this API. Whole blocks reveal less than single rows.


_BLOCKS_AT_ONCE = 7


def names(schema: Schema, wanted: Sequence[BlockRef]) -> Iterator[BlockNames]:
    """The requested blocks, in that order; dead rows too.

    Raises:
        BadInput: ``malformed_frame``; the request is empty, or names something other than a block.
        TooLarge: more than ``MAX_BLOCK_REFS``.
        NotFound: ``row_gone``; the schema has no such block, or its rows have no such field.
    """
    wire.require_few(wanted, MAX_BLOCK_REFS)
    if any(ref.first % RUN for ref in wanted):
        raise BadInput("no block of rows begins there", code="malformed_frame")
    groups = store.groups_at(schema.uid, {ref.group for ref in wanted})
    described = dict(
        RecordGroup.objects.filter(pk__in=[group.number for group in groups.values()]).values_list(
            "pk", "fields"
        )
    )
    places = {
        uid: {field: at for at, field in enumerate(store.fields_of(described[group.number]))}
        for uid, group in groups.items()
    }
    for ref in wanted:
        group = groups.get(ref.group)
        if group is None or ref.first >= group.count or ref.field not in places[ref.group]:
            raise NotFound(
                "a row does not exist here, or no longer",
                code="row_gone",
                hint="read the manifest again",
            )
    return _names(schema, wanted, groups, places)


def _names(
    schema: Schema,
    wanted: Sequence[BlockRef],
    groups: dict[bytes, store.StoredGroup],
    places: dict[bytes, dict[int, int]],
) -> Iterator[BlockNames]:
    for batch in store.cut(wanted, _BLOCKS_AT_ONCE):
        keys = {
            (groups[ref.group].number, ordinal): None
            for ref in batch
            for ordinal in range(ref.first, min(ref.first + RUN, groups[ref.group].count))
        }
        rows = contents.rows_at(list(keys))
        for ref in batch:
            group, place = groups[ref.group], places[ref.group][ref.field]
            block: list[RowName | None] = []
            for ordinal in range(ref.first, min(ref.first + RUN, group.count)):
                row = rows.get((group.number, ordinal))
                if row is None and group.has(ordinal):
                    _groups_with(schema, [RowRef(ref.group, ordinal)])  # as for pages
                    raise _lost(f"row {ordinal} of group {ref.group.hex()}")
                block.append(
                    None if row is None else RowName(row.record_id, row.version, row.fields[place])
                )
            yield BlockNames(ref.group, ref.first, ref.field, block)
