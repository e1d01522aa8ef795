"""Access to rows and pages, in the database or in objects, including dead and erased rows.

Small parts are in the tables (:mod:`..records.store`), larger parts in objects
(:mod:`..objects.parts`); a group or segment may have both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from django.db.models import F

from encrypted_records.model.digests import DIGEST
from encrypted_records.server.db.statements import as_driver_has_it, executed, fetch
from encrypted_records.server.objects import parts
from encrypted_records.server.records import store
from encrypted_records.server.records.models import ChangedRow, RecordGroup

#: Rows of a group from an ordinal to below another: (group, first, end).
Range = tuple[int, int, int]
#: Ranges per statement.
_RANGES_AT_ONCE = 64


def _stored_rows_in(ranges: Sequence[Range]) -> dict[Range, list[store.StoredSealedRow]]:
    """The rows of each range, by ordinal; missing rows are left out."""
    found = _columns_in("group_id, ordinal, record_id, version, sealed", ranges)
    return {range_: [store.row_of(row) for row in rows] for range_, rows in found.items()}


def _stored_versions_in(ranges: Sequence[Range]) -> dict[Range, list[tuple[int, bytes, int]]]:
    """Ordinal, id and version of each row of these ranges, by ordinal."""
    found = _columns_in("group_id, ordinal, record_id, version", ranges)
    return {
        range_: [(at, bytes(record_id), version) for _, at, record_id, version in rows]
        for range_, rows in found.items()
    }


def _columns_in(columns: str, ranges: Sequence[Range]) -> dict[Range, list[tuple[Any, ...]]]:
    found: dict[Range, list[tuple[Any, ...]]] = {span: [] for span in ranges}
    for batch in store.cut(list(found), _RANGES_AT_ONCE):
        of_group: dict[int, list[Range]] = {}
        for place in batch:
            of_group.setdefault(place[0], []).append(place)
        # Each condition names its group, so that only partitions with these groups are queried.
        within = "(group_id = %s AND ordinal >= %s AND ordinal < %s)"
        wheres = " OR ".join([within] * len(batch))
        statement = f"SELECT {columns} FROM record_row WHERE {wheres}"  # noqa: S608  no input
        for row in fetch(statement, *(part for run in batch for part in run)):
            for place in of_group[row[0]]:
                if place[1] <= row[1] < place[2]:
                    found[place].append(row)
    for rows in found.values():
        rows.sort(key=lambda row: int(row[1]))
    return found


_ERASED = store.RowTable("erased_row", "group_id, ordinal, digest", ("int8", "int8", "bytea"))


def note_erased(group: int, row_digests: Mapping[int, bytes]) -> None:
    """Note and count rows of a group whose bytes are erased, with their digests by ordinal."""
    store.insert(_ERASED, ((group, at, row_digests[at]) for at in sorted(row_digests)))
    for batch in store.cut(sorted(row_digests)):
        ChangedRow.objects.filter(group_id=group, ordinal__in=batch).delete()
    RecordGroup.objects.filter(pk=group).update(erased=F("erased") + len(row_digests))


def erased_among(keys: Sequence[store.Key]) -> set[store.Key]:
    """The rows among these that are known to be erased."""
    columns = "group_id, ordinal"
    rows = store.select(lambda wanted: store.lookup(columns, "erased_row", wanted), keys)
    return {(row[0], row[1]) for row in rows}


def erased_digests(group: int, first: int, end: int) -> dict[int, bytes]:
    """The digests kept of a group's erased rows, by ordinal, from ``first`` to below ``end``."""
    rows = fetch(
        "SELECT ordinal, digest FROM erased_row"
        " WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
        *(group, first, end),
    )
    return {at: bytes(digest) for at, digest in rows}


def rows_at(keys: Sequence[store.Key]) -> dict[store.Key, store.StoredSealedRow]:
    """The rows at (group, ordinal), dead rows too; unknown keys are left out.

    Raises:
        ObjectLost, ObjectAltered: with the object's name.
        StoreUnavailable: the store is away or fails.
    """
    found = store.rows_at(keys)
    left = [key for key in keys if key not in found]
    return found | parts.rows_at(left) if left else found


def versions_at(keys: Sequence[store.Key]) -> dict[store.Key, tuple[bytes, int]]:
    """Record id and version at (group, ordinal), without the ciphertext."""
    found = store.versions_at(keys)
    left = [key for key in keys if key not in found]
    return found | parts.versions_at(left) if left else found


def versions_in(ranges: Sequence[Range]) -> dict[Range, list[tuple[int, bytes, int]]]:
    """Ordinal, id and version of each row of these ranges, by ordinal."""
    found = _stored_versions_in(ranges)
    for stretch, rows in found.items():
        group, first, end = stretch
        if len(rows) < end - first:
            # A set, because a row may move to an object between the two queries.
            found[stretch] = sorted({*rows, *parts.versions_between(group, first, end)})
    return found


def rows_in(ranges: Sequence[Range]) -> dict[Range, list[store.StoredSealedRow]]:
    """The rows of each range, by ordinal; missing rows are left out.

    Raises:
        ObjectLost, ObjectAltered, StoreUnavailable: as :func:`rows_between`.
    """
    return {
        range_: rows
        if len(rows) == range_[2] - range_[1]
        else [row for row, _ in rows_between(*range_)]
        for range_, rows in _stored_rows_in(ranges).items()
    }


def pages_at(keys: Sequence[store.Key]) -> dict[store.Key, bytes]:
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
    for segment, first, page_digests in (
        *store.page_digests_of(segments),
        *parts.page_digests_of(segments),
    ):
        for at in range(0, len(page_digests), DIGEST):
            # By number, because a page may move to an object between the two queries.
            found[segment][first + at // DIGEST] = page_digests[at : at + DIGEST]
    return {
        segment: b"".join([page_digests for _, page_digests in sorted(all_.items())])
        for segment, all_ in found.items()
    }


def live_rows(group: RecordGroup, *, offset: int, limit: int) -> list[store.StoredSealedRow]:
    """Live rows of one group by ordinal; missing rows are left out."""
    rows = store.live_rows(group.pk, offset=offset, limit=limit)
    if not parts.has_rows(group.pk):  # queried last: rows move to objects, and never back
        return rows
    dead = store.dead_of(group.pk) | store.hole_ordinals(group.holes)
    live = [ordinal for ordinal in range(group.count) if ordinal not in dead]
    keys = [(group.pk, ordinal) for ordinal in live[offset : offset + limit]]
    found = rows_at(keys)
    # The log of a database that was restored may call an erased row live.
    return [found[key] for key in keys if key in found]


def rows_between(
    group: int, first: int, end: int, *, damaged: bool = False
) -> list[tuple[store.StoredSealedRow, bool]]:
    """The rows of a group from ordinal ``first`` to below ``end``, each with whether it is dead;
    missing rows are left out.

    Args:
        damaged: whether to return the remaining rows if an object is lost or altered.

    Raises:
        ObjectLost, ObjectAltered: unless ``damaged``; with the object's name.
        StoreUnavailable: the store is away or fails.
    """
    found = store.rows_between(group, first, end)
    present = {row.ordinal for row, _ in found}
    left = [(group, ordinal) for ordinal in range(first, end) if ordinal not in present]
    if not left:
        return found
    rows = parts.rows_left(left) if damaged else parts.rows_at(left)
    dead = store.dead_of(group) if rows else set()
    found += [(row, row.ordinal in dead) for row in rows.values()]
    return sorted(found, key=lambda pair: pair[0].ordinal)


def live_rows_of(record_ids: Collection[bytes]) -> dict[bytes, list[store.StoredSealedRow]]:
    """The live rows of each record id, of all users, the newest first. An honest proxy draws no id
    twice, so there is at most one row per id; a row of another user must not hide it.
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
    found: dict[bytes, list[store.StoredSealedRow]] = {}
    for row in sorted(rows, key=lambda row: (row.version, row.group), reverse=True):
        found.setdefault(row.record_id, []).append(row)
    return found


#: (record id, version)
Identity = tuple[bytes, int]
#: Ids begin with the time. If more other ids than this are between the ids of a part, each of its
#: ids is looked up by itself.
_MOST_BETWEEN = 1000


def is_any_stored(wanted: Set[bytes]) -> bool:
    """Whether a row of any schema, including staged rows, has one of these ids."""
    if not wanted:
        return False
    span = min(wanted), max(wanted)
    return (
        _is_any_in("record_row", wanted, span)
        or _is_any_in("changed_row", wanted, span)
        or parts.is_any_new(wanted, span)
    )


def _is_any_in(table: str, wanted: Collection[bytes], span: tuple[bytes, bytes]) -> bool:
    between_them = as_driver_has_it(
        f"SELECT record_id FROM {table} WHERE record_id >= %s AND record_id <= %s"  # noqa: S608
        " ORDER BY record_id LIMIT %s"
    )
    with executed(between_them, [*span, _MOST_BETWEEN + 1]) as cursor:
        between = cursor.fetchall()
    if len(between) <= _MOST_BETWEEN:
        return any(bytes(record_id) in wanted for (record_id,) in between)
    first = f"SELECT 1 FROM {table} WHERE record_id IN {{values}} LIMIT 1"  # noqa: S608  no input
    return any(store.select_in(first, sorted(wanted)))


def list_changed_in(groups: Sequence[int]) -> list[Identity]:
    """The rows of these groups with a version above 1."""
    return [
        identity
        for table in ("record_row", "changed_row")
        for group in groups
        for identity in _changed_in(table, group)
    ]


def _changed_in(table: str, group: int) -> list[Identity]:
    statement = f"SELECT record_id, version FROM {table} WHERE group_id = %s AND version > 1"  # noqa: S608
    return [(bytes(record_id), version) for record_id, version in fetch(statement, group)]
