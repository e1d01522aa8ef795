"""Move all data to the configured bulk store: rows and pages from the database, objects from the
previously configured store.

An API may run meanwhile. A copy is read back and checked against its digests before the original is
dropped. Each piece is taken over in one transaction: a killed move has moved a piece or has not,
and the next move goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from django.db import connection, transaction

from encrypted_records.errors import ObjectAltered, ObjectLost
from encrypted_records.model import digests
from encrypted_records.model.digests import RUN
from encrypted_records.server.inventory import verifying, walk
from encrypted_records.server.objects import choice, layout, objects
from encrypted_records.server.objects.choice import Both
from encrypted_records.server.objects.stores import BulkStore, Range, lost
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    BulkObject,
    IndexSegment,
    PagePart,
    RecordGroup,
    RowPart,
)

#: States of objects that move; others are deleted soon.
_STAY = (objects.STORED, objects.NAMED)


class Move:
    """One move, with counts of the objects, rows and pages moved so far. ``damaged`` names the data
    that was left because it is damaged. ``waiting`` counts unneeded objects of the old store, which
    are deleted after their grace period.
    """

    def __init__(self) -> None:
        self.objects = self.rows = self.pages = self.waiting = 0
        self.damaged: list[str] = []

    def run(self) -> None:
        """Move all data.

        Raises:
            StoreFull, StoreUnavailable: a store has no room, is away or fails.
        """
        self._move_objects()
        if choice.chosen().store is None:
            return
        groups = RecordGroup.objects.order_by("pk").values_list("pk", flat=True)
        for number in _with_any("record_row", "group_id", list(groups)):
            self._move_rows(number)
        segments = IndexSegment.objects.order_by("pk").values_list("pk", flat=True)
        for number in _with_any("index_page", "segment_id", list(segments)):
            self._move_pages(number)

    # --- from one store to the other -----------------------------------------------------------

    def _move_objects(self) -> None:
        held = choice.chosen().store
        if not isinstance(held, Both):
            return
        for name, row, size in walk.walk(held.before):
            if row is None or size is None:
                continue
            stored = BulkObject.objects.filter(pk=row.pk, state__in=_STAY).first()
            if stored is not None and self._move_object(held, stored):
                self.objects += 1
            elif BulkObject.objects.filter(name=name).exclude(state__in=_STAY).exists():
                self.waiting += 1

    def _move_object(self, held: Both, stored: BulkObject) -> bool:
        try:
            if not _is_whole(held.new, stored):
                (data,) = held.before.read([Range(stored.name, 0, stored.size)])
                _check(held.before, stored)
                self._put(held.new, stored, data)
        except (ObjectLost, ObjectAltered):
            if BulkObject.objects.filter(pk=stored.pk, state__in=_STAY).exists():
                self.damaged.append(f"object {stored.name}")
            return False
        state = BulkObject.objects.filter(pk=stored.pk).values_list("state", flat=True).first()
        if state in _STAY:
            held.before.delete([stored.name])
            return True
        # A sweep may have deleted it in both stores before it was put here; the old store's copy is
        # deleted with its row.
        held.new.delete([stored.name])
        return False

    def _put(self, new: BulkStore, stored: BulkObject, data: bytes) -> None:
        """
        Raises:
            ObjectLost, ObjectAltered: the store does not return what was just stored.
        """
        new.put(stored.name, data)
        try:
            _check(new, stored)
        except (ObjectLost, ObjectAltered):
            new.delete([stored.name])  # it would be read instead of the intact object
            raise

    # --- from the database ---------------------------------------------------------------------

    def _move_rows(self, number: int) -> None:
        group = RecordGroup.objects.filter(pk=number, staging=None, ended_at=None).first()
        if group is None:
            return
        for first, end in _stretches(_runs_with_rows(number)):
            self._move_stretch(group, first * RUN, min(end * RUN, group.count))

    def _move_stretch(self, group: RecordGroup, first: int, end: int) -> None:
        """Move consecutive rows, none of which is in an object."""
        rows = {row.ordinal: row for row, _ in store.rows_between(group.pk, first, end)}
        if sum(len(row.sealed) for row in rows.values()) < max(1, choice.chosen().least):
            return
        salt, uid = bytes(group.salt), bytes(group.uid)
        packed = [
            (row.record_id, row.version, row.sealed) if row is not None else None
            for at in range(first, end)
            for row in [rows.get(at)]
        ]
        own = digests.packed_digests(salt, packed)
        if not verifying.is_as_kept(group, first, own):
            self.damaged.append(f"rows from {first} of group {uid.hex()} in the database")
            return
        made = list(layout.row_objects(uid, first, packed, own))
        changed = [
            (uid, at, row[0], row[1])
            for at, row in enumerate(packed, first)
            if row is not None and row[1] > 1
        ]
        draft = objects.draft_rows(uid, made, changed)
        with objects.written(draft.contents) as numbers:
            _read_again(numbers, draft.contents)
            with transaction.atomic():
                locked = RecordGroup.objects.select_for_update().filter(
                    pk=group.pk, staging=None, ended_at=None
                )
                if not locked.exists() or _count(group.pk, first, end) != len(rows):
                    objects.give_up(numbers)  # the group ended, or another command was first
                    return
                draft.enter(numbers, {uid: group.pk}, {})
                objects.name(RowPart.objects.filter(object_id__in=numbers))
                _run(
                    "DELETE FROM record_row WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
                    group.pk,
                    first,
                    end,
                )
        self.rows += len(rows)

    def _move_pages(self, number: int) -> None:
        segment = IndexSegment.objects.filter(
            pk=number, staging=None, superseded_at=None, pages__gt=0
        ).first()
        if segment is None:
            return
        uid = bytes(segment.uid)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT number, length(data) FROM index_page WHERE segment_id = %s ORDER BY number",
                [number],
            )
            sizes = cursor.fetchall()
        if sum(size for _, size in sizes) < max(1, choice.chosen().least):
            return
        # Consecutive pages of the same length.
        for _, some in groupby(
            enumerate(sizes), lambda numbered: (numbered[1][0] - numbered[0], numbered[1][1])
        ):
            own = [place for _, place in some]
            at_once = max(1, (layout.MOST_BYTES - layout.HEAD_BYTES) // max(1, own[0][1]))
            for begin in range(0, len(own), at_once):
                part = own[begin : begin + at_once]
                self._move_run(number, uid, part[0][0], part[-1][0] + 1)

    def _move_run(self, segment: int, uid: bytes, first: int, end: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT digest, data FROM index_page WHERE segment_id = %s AND number >= %s"
                " AND number < %s ORDER BY number",
                [segment, first, end],
            )
            rows = [(bytes(digest), bytes(data)) for digest, data in cursor.fetchall()]
        if len(rows) != end - first:
            return  # the pages were deleted meanwhile
        if any(digests.page_digest(data) != digest for digest, data in rows):
            self.damaged.append(f"pages of segment {uid.hex()} in the database")
            return
        data = layout.page_object(uid, first, [page for _, page in rows])
        with objects.written([data]) as numbers:
            _read_again(numbers, [data])
            with transaction.atomic():
                locked = IndexSegment.objects.select_for_update().filter(
                    pk=segment, superseded_at=None
                )
                with connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT count(*) FROM index_page"
                        " WHERE segment_id = %s AND number >= %s AND number < %s",
                        [segment, first, end],
                    )
                    (count,) = cursor.fetchone()
                if not locked.exists() or count != len(rows):
                    objects.give_up(numbers)
                    return
                objects.take_over(numbers)
                PagePart.objects.create(
                    segment_id=segment,
                    first=first,
                    count=len(rows),
                    object_id=numbers[0],
                    page_bytes=len(rows[0][1]),
                    digests=b"".join([digest for digest, _ in rows]),
                )
                objects.name(PagePart.objects.filter(object_id__in=numbers))
                _run(
                    "DELETE FROM index_page WHERE segment_id = %s AND number >= %s AND number < %s",
                    segment,
                    first,
                    end,
                )
        self.pages += len(rows)


def _check(held: BulkStore, stored: BulkObject) -> None:
    """Check an object, in this store, against all digests that the database has of it.

    Raises:
        ObjectLost, ObjectAltered: it is missing, or not as it was stored.
    """
    if len(held.read([Range(stored.name, 0, stored.size)])[0]) != stored.size:
        raise layout.altered(stored.name)
    for rows in RowPart.objects.filter(object_id=stored.pk):
        group = RecordGroup.objects.filter(pk=rows.group_id).first()
        if group is None:
            raise lost(stored.name)
        uid, salt = bytes(group.uid), bytes(group.salt)
        for _ in verifying.row_runs_of(held, stored.name, rows, uid, salt, {}):
            pass
    for pages in PagePart.objects.filter(object_id=stored.pk):
        segment = IndexSegment.objects.filter(pk=pages.segment_id).first()
        if segment is None:
            raise lost(stored.name)
        verifying.check_pages(held, stored.name, pages, bytes(segment.uid))


def _is_whole(held: BulkStore, stored: BulkObject) -> bool:
    try:
        _check(held, stored)
    except (ObjectLost, ObjectAltered):
        return False
    return True


def _read_again(numbers: list[int], contents: list[bytes]) -> None:
    """
    Raises:
        ObjectLost, ObjectAltered: the store does not return what was just stored.
    """
    held = choice.chosen().store
    assert held is not None
    names = dict(BulkObject.objects.filter(pk__in=numbers).values_list("pk", "name"))
    for number, data in zip(numbers, contents, strict=True):
        if held.read([Range(names[number], 0, len(data))]) != [data]:
            raise layout.altered(names[number])


def _with_any(table: str, column: str, numbers: list[int]) -> Iterator[int]:
    """The groups or segments among these numbers that have rows in the table, in order."""
    for some in store.cut(numbers):
        marks = ", ".join(["%s"] * len(some))
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} IN ({marks})",  # noqa: S608
                list(some),
            )
            found = cursor.fetchall()
        yield from sorted(number for (number,) in found)


def _runs_with_rows(group: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT ordinal / {RUN} FROM record_row WHERE group_id = %s",  # noqa: S608
            [group],
        )
        return sorted(int(run) for (run,) in cursor.fetchall())


def _stretches(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers: the first, and the end after the last."""
    for _, some in groupby(enumerate(numbers), lambda numbered: numbered[1] - numbered[0]):
        own = [number for _, number in some]
        yield own[0], own[-1] + 1


def _count(group: int, first: int, end: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM record_row"
            " WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
            [group, first, end],
        )
        (count,) = cursor.fetchone()
    return int(count)


def _run(statement: str, *parameters: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
