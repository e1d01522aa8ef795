"""Handing out what is stored: the log, pages and rows as frames, records as sealed JSON.

Frames stream: what can be refused is refused before the first byte, from the small tables alone.
Should something asked for vanish in between, the generators raise, and :mod:`.views` spoils the
answer.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from encrypted_records.errors import BadInput, Conflict, NotFound, TooLarge
from encrypted_records.model import ids
from encrypted_records.model.records import (
    Commit,
    LogEntry,
    ManifestDelta,
    Page,
    PageRef,
    RowRef,
    SealedRow,
    StoredRow,
)
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.records import store
from encrypted_records.server.records.models import CommitLog, RecordGroup

MAX_PAGE_REFS = 4096
MAX_ROW_REFS = 1000
#: Log entries gathered into one ManifestDelta before the next begins, in bytes.
DELTA_BYTES = 32 << 20
_PAGES_AT_ONCE = 64
_ROWS_AT_ONCE = 250

T = TypeVar("T")


def manifest(schema: Schema, since: int) -> Iterator[ManifestDelta]:
    """The log after ``since``, in one delta or, where it is long, in several that follow on.

    Raises:
        Conflict: ``log_conflict``; this log does not reach that far.
    """
    if since > schema.version:
        raise Conflict(
            "the log ends before the version you have seen",
            code="log_conflict",
            hint="if the API was restored from a backup, restore its newest one",
        )
    # Most callers know it all already, and are spared a cursor on the server.
    return _deltas(schema, since) if since < schema.version else iter([_delta(schema, since, [])])


def _deltas(schema: Schema, since: int) -> Iterator[ManifestDelta]:
    log = CommitLog.objects.filter(schema=schema, version__gt=since, version__lte=schema.version)
    rows = log.order_by("version").values_list("version", "body", "mac")
    entries: list[LogEntry] = []
    size = 0
    for version, body, mac in rows.iterator(chunk_size=200):
        entries.append(LogEntry(version, Commit(bytes(body), bytes(mac))))
        size += len(body)
        if size >= DELTA_BYTES and version < schema.version:
            yield _delta(schema, version, entries)
            entries, size = [], 0
    yield _delta(schema, schema.version, entries)


def _delta(schema: Schema, version: int, entries: list[LogEntry]) -> ManifestDelta:
    key_id = None if schema.key_id is None else bytes(schema.key_id)
    return ManifestDelta(schema.uid, version, key_id, bytes(schema.definition_digest), entries)


def pages(schema: Schema, wanted: Sequence[PageRef]) -> Iterator[Page]:
    """The pages asked for, in that order.

    Raises:
        TooLarge: more than ``MAX_PAGE_REFS``.
        NotFound: ``segment_gone``; the schema has no such page, or no longer.
    """
    _limit(wanted, MAX_PAGE_REFS)
    found = store.segments_at(schema.uid, {ref.segment for ref in wanted})
    if any(ref.segment not in found or ref.number >= found[ref.segment][1] for ref in wanted):
        raise NotFound(
            "a page is not here, or no longer",
            code="segment_gone",
            hint="read the manifest again: a merge may have replaced the segment",
        )
    return _pages(wanted, {uid: pk for uid, (pk, _) in found.items()})


def _pages(wanted: Sequence[PageRef], segments: dict[bytes, int]) -> Iterator[Page]:
    for some in _cut(wanted, _PAGES_AT_ONCE):
        keys = [(segments[ref.segment], ref.number) for ref in some]
        found = store.pages_at(keys)
        for ref, key in zip(some, keys, strict=True):
            yield Page(ref.segment, ref.number, found[key])


def rows(schema: Schema, wanted: Sequence[RowRef]) -> Iterator[StoredRow]:
    """The rows asked for, in that order; dead ones too, for readers of an earlier version.

    Raises:
        TooLarge: more than ``MAX_ROW_REFS``.
        NotFound: ``row_gone``; the schema has no such row, or no longer.
    """
    _limit(wanted, MAX_ROW_REFS)
    found = store.groups_at(schema.uid, {ref.group for ref in wanted})
    if any(ref.group not in found or ref.ordinal >= found[ref.group][1] for ref in wanted):
        raise NotFound(
            "a row is not here, or no longer", code="row_gone", hint="read the manifest again"
        )
    return _rows(wanted, {uid: pk for uid, (pk, _) in found.items()})


def _rows(wanted: Sequence[RowRef], groups: dict[bytes, int]) -> Iterator[StoredRow]:
    for some in _cut(wanted, _ROWS_AT_ONCE):
        keys = [(groups[ref.group], ref.ordinal) for ref in some]
        found = store.rows_at(keys)
        for ref, key in zip(some, keys, strict=True):
            row = found[key]
            yield StoredRow(
                ref.group, ref.ordinal, SealedRow(row.record_id, row.version, row.fields)
            )


def _limit(wanted: Sequence[Any], most: int) -> None:
    if not wanted:
        raise BadInput("the body asks for nothing", code="malformed_frame")
    if len(wanted) > most:
        raise TooLarge(f"more than {most} in one request", hint="ask in several requests")


def _cut(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


# --- records as sealed JSON ----------------------------------------------------------------


def listing(schema: Schema, *, offset: int, limit: int) -> list[dict[str, Any]]:
    """Live records in the order of commit and ordinal.

    Each group knows how many of its rows live, so a late page costs no more than an early one.
    """
    found: list[dict[str, Any]] = []
    visible = RecordGroup.objects.filter(schema=schema, live__gt=0, staging=None)
    groups = visible.order_by("version", "pk")
    for group in groups.iterator():
        if offset >= group.live:
            offset -= group.live
            continue
        some = store.live_rows(group.pk, offset=offset, limit=limit - len(found))
        found += [sealed_record(schema, group, row) for row in some]
        offset = 0
        if len(found) >= limit:
            break
    return found


def sealed_record(schema: Schema, group: RecordGroup, row: store.StoredSealedRow) -> dict[str, Any]:
    names = msgspec.json.decode(group.fields, type=list[str])
    identifier = ids.to_text(row.record_id)
    return {
        "id": identifier,
        "url": ids.reference("records", identifier),
        "schema": schema.url,
        "version": row.version,
        "group": bytes(group.uid).hex(),
        "ordinal": row.ordinal,
        "key_id": bytes(group.key_id).hex(),
        "key_version": group.key_version,
        "fields": {
            name: base64.b64encode(sealed).decode()
            for name, sealed in zip(names, row.fields, strict=True)
        },
    }
