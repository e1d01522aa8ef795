"""Access to rows and pages, in the database or in objects.

Small parts are in the tables (:mod:`..records.store`), larger ones in objects
(:mod:`..objects.parts`); one group or segment may have both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from encrypted_records.model.digests import DIGEST
from encrypted_records.server.objects import parts
from encrypted_records.server.records import store
from encrypted_records.server.records.bulk_tables import ChangedRow
from encrypted_records.server.records.models import RecordGroup
from encrypted_records.server.records.store import Key, StoredSealedRow
from encrypted_records.server.rows import row_ranges
from encrypted_records.server.rows.row_ranges import Range


def rows_at(keys: Sequence[Key]) -> dict[Key, StoredSealedRow]:
    """The rows at (group, ordinal), dead ones too; unknown keys are left out.

    Raises:
        ObjectLost, ObjectAltered: with the object's name.
        StoreUnavailable: the store is away or fails.
    """
    found = store.rows_at(keys)
    left = [key for key in keys if key not in found]
    return found | parts.rows_at(left) if left else found


def versions_at(keys: Sequence[Key]) -> dict[Key, tuple[bytes, int]]:
    """Record id and version at (group, ordinal), without the ciphertext."""
    found = store.versions_at(keys)
    left = [key for key in keys if key not in found]
    return found | parts.versions_at(left) if left else found


def versions_in(ranges: Sequence[Range]) -> dict[Range, list[tuple[int, bytes, int]]]:
    """Ordinal, id and version of each row of these ranges, by ordinal."""
    found = row_ranges.versions_in(ranges)
    for stretch, rows in found.items():
        group, first, end = stretch
        if len(rows) < end - first:
            # Once each: a row may move to an object between the two questions.
            found[stretch] = sorted({*rows, *parts.versions_between(group, first, end)})
    return found


def rows_in(ranges: Sequence[Range]) -> dict[Range, list[StoredSealedRow]]:
    """The rows of each of these ranges, by ordinal; one that is not there is left out.

    Raises:
        ObjectLost, ObjectAltered, StoreUnavailable: as :func:`rows_between`.
    """
    return {
        range_: rows
        if len(rows) == range_[2] - range_[1]
        else [row for row, _ in rows_between(*range_)]
        for range_, rows in row_ranges.rows_in(ranges).items()
    }


def pages_at(keys: Sequence[Key]) -> dict[Key, bytes]:
    """The pages at (segment, number); unknown keys are left out.

    Raises:
        ObjectLost, ObjectAltered: with the object's name.
        StoreUnavailable: the store is away or fails.
    """
    found = store.pages_at(keys)
    left = [key for key in keys if key not in found]
    return found | parts.pages_at(left) if left else found


def page_digests_of(segments: Collection[int]) -> dict[int, bytes]:
    """The digests of all pages of these segments, in order, by segment."""
    found: dict[int, dict[int, bytes]] = {segment: {} for segment in segments}
    for segment, first, own in (
        *store.page_digests_of(segments),
        *parts.page_digests_of(segments),
    ):
        for at in range(0, len(own), DIGEST):
            # Once each: a page may move to an object between the two questions.
            found[segment][first + at // DIGEST] = own[at : at + DIGEST]
    return {
        segment: b"".join([own for _, own in sorted(all_.items())])
        for segment, all_ in found.items()
    }


def live_rows(group: RecordGroup, *, offset: int, limit: int) -> list[StoredSealedRow]:
    """Live rows of one group by ordinal."""
    rows = store.live_rows(group.pk, offset=offset, limit=limit)
    if not parts.has_rows(group.pk):  # asked last: rows move to objects, and never back
        return rows
    dead = store.dead_of(group.pk) | store.hole_ordinals(group.holes)
    live = [ordinal for ordinal in range(group.count) if ordinal not in dead]
    keys = [(group.pk, ordinal) for ordinal in live[offset : offset + limit]]
    found = rows_at(keys)
    return [found[key] for key in keys]


def rows_between(
    group: int, first: int, end: int, *, damaged: bool = False
) -> list[tuple[StoredSealedRow, bool]]:
    """The rows of one group from ordinal ``first`` to below ``end``, each with whether it is dead;
    one that is not there is left out.

    Args:
        damaged: whether to give what is left where an object is lost or altered.

    Raises:
        ObjectLost, ObjectAltered: unless ``damaged``; with the object's name.
        StoreUnavailable: the store is away or fails.
    """
    found = store.rows_between(group, first, end)
    there = {row.ordinal for row, _ in found}
    left = [(group, ordinal) for ordinal in range(first, end) if ordinal not in there]
    if not left:
        return found
    rows = parts.rows_left(left) if damaged else parts.rows_at(left)
    dead = store.dead_of(group) if rows else set()
    found += [(row, row.ordinal in dead) for row in rows.values()]
    return sorted(found, key=lambda pair: pair[0].ordinal)


def live_rows_of(record_ids: Collection[bytes]) -> dict[bytes, list[StoredSealedRow]]:
    """The live rows of each record id, the newest first, of all users. An honest proxy draws no id
    twice, so there is at most one; a row of another user must not hide it.
    """
    rows = store.live_rows_of(record_ids)
    changed = ChangedRow.objects.filter(record_id__in=list(record_ids))
    keys = list(changed.values_list("group_id", "ordinal")) + parts.find_new(record_ids)
    visible = set(
        RecordGroup.objects.filter(
            pk__in={group for group, _ in keys}, staging=None, ended_at=None
        ).values_list("pk", flat=True)
    )
    keys = [key for key in keys if key[0] in visible]
    dead = store.dead_among(keys)
    read = {(row.group, row.ordinal) for row in rows}
    rows += parts.rows_at([key for key in keys if key not in dead and key not in read]).values()
    found: dict[bytes, list[StoredSealedRow]] = {}
    for row in sorted(rows, key=lambda row: (row.version, row.group), reverse=True):
        found.setdefault(row.record_id, []).append(row)
    return found
