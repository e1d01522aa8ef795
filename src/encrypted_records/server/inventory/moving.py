"""Move all data to the configured bulk store: rows and pages from the database, objects from the
previously configured store.

An API may run meanwhile. A copy is read back and checked against its digests before the original is
dropped. Each piece is taken over in one transaction: a killed move has moved a piece or has not,
and the next move goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from encrypted_records.errors import ObjectLost
from encrypted_records.model import digests
from encrypted_records.model.records import Page
from encrypted_records.server.db.statements import fetch, run
from encrypted_records.server.inventory import verifying, walk
from encrypted_records.server.objects import choice, layout, objects, stores
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


@dataclass(frozen=True)
class _MovedTable:
    """A table of rows or pages: its columns of owners, numbers and bytes; the rows of the database
    that take its place; and how many numbers an object has at least.
    """

    table: str
    owner: str
    number: str
    data: str
    parts: type[RowPart | PagePart]
    together: int

    def sizes(self, owner: int) -> list[tuple[int, int]]:
        """The bytes of each run or page of this owner that is in the table, in order."""
        return fetch(
            f"SELECT {self.number} / {self.together}, SUM(length({self.data})) FROM {self.table}"  # noqa: S608
            f" WHERE {self.owner} = %s GROUP BY 1 ORDER BY 1",
            owner,
        )

    def count(self, *within: int) -> int:
        [(count,)] = fetch(f"SELECT count(*) {self._within}", *within)
        return int(count)

    def delete(self, *within: int) -> None:
        run(f"DELETE {self._within}", *within)

    @property
    def _within(self) -> str:
        return (
            f"FROM {self.table}"
            f" WHERE {self.owner} = %s AND {self.number} >= %s AND {self.number} < %s"
        )


_ROWS = _MovedTable("record_row", "group_id", "ordinal", "sealed", RowPart, digests.RUN)
_PAGES = _MovedTable("index_page", "segment_id", "number", "data", PagePart, 1)


class Move:
    """One move, with counts of the objects, rows and pages moved so far. ``damaged`` names the data
    that was left because it is damaged. ``waiting`` counts unneeded objects of the old store, which
    are deleted after their grace period, and ``missing`` needed ones that no configured store has.
    """

    def __init__(self) -> None:
        self.objects = self.rows = self.pages = self.waiting = self.missing = 0
        self.damaged: list[str] = []

    def run(self) -> None:
        """Move all data.

        Raises:
            StoreFull, StoreUnavailable: a store has no room, is away or fails.
        """
        chosen = choice.chosen().store
        self._move_objects()
        self.missing = sum(
            entry.size is None
            and entry.stored is not None
            and walk.is_missing(chosen, entry.stored)
            for entry in walk.walk(chosen)
        )
        if chosen is None:
            return
        for batch in walk.numbers(RecordGroup.objects.all()):
            for number in store.owners_with_any(_ROWS.table, _ROWS.owner, batch):
                self._move_rows(number)
        for batch in walk.numbers(IndexSegment.objects.all()):
            for number in store.owners_with_any(_PAGES.table, _PAGES.owner, batch):
                self._move_pages(number)

    # --- from one store to the other -----------------------------------------------------------

    def _move_objects(self) -> None:
        both = choice.chosen().store
        if not isinstance(both, choice.Both):
            return
        for name, row, size in walk.walk(both.before):
            if row is None or size is None:
                continue
            stored = BulkObject.objects.filter(pk=row.pk, state__in=_STAY).first()
            if stored is not None and self._move_object(both, stored):
                self.objects += 1
            elif BulkObject.objects.filter(name=name).exclude(state__in=_STAY).exists():
                self.waiting += 1

    def _move_object(self, both: choice.Both, stored: BulkObject) -> bool:
        try:
            if not _is_whole(both.new, stored):
                (data,) = both.before.read([stores.Range(stored.name, 0, stored.size)])
                _check(both.before, stored)
                self._put(both.new, stored, data)
        except ObjectLost:
            if BulkObject.objects.filter(pk=stored.pk, state__in=_STAY).exists():
                self.damaged.append(f"object {stored.name}")
            return False
        state = BulkObject.objects.filter(pk=stored.pk).values_list("state", flat=True).first()
        if state in _STAY:
            both.before.delete([stored.name])
            return True
        # A sweep may have deleted it in both stores before it was put here; the old store's copy is
        # deleted with its row.
        both.new.delete([stored.name])
        return False

    def _put(self, new: stores.BulkStore, stored: BulkObject, data: bytes) -> None:
        """
        Raises:
            ObjectLost, ObjectAltered: the store does not return what was just stored.
        """
        new.put(stored.name, data)
        try:
            _check(new, stored)
        except ObjectLost:
            new.delete([stored.name])  # it would be read instead of the intact object
            raise

    # --- from the database ---------------------------------------------------------------------

    def _move_rows(self, number: int) -> None:
        group = RecordGroup.objects.filter(pk=number, staging=None, ended_at=None).first()
        if group is None:
            return
        for sizes in _stretches(_ROWS.sizes(number)):
            if _is_enough(sizes):
                for first, end in _cut(sizes):
                    self._move_runs(group, first * digests.RUN, min(end * digests.RUN, group.count))

    def _move_runs(self, group: RecordGroup, first: int, end: int) -> None:
        """Move consecutive rows, none of which is in an object."""
        rows = {row.ordinal: row for row, _ in store.rows_between(group.pk, first, end)}
        salt, uid = bytes(group.salt), bytes(group.uid)
        packed = [
            (row.record_id, row.version, row.sealed) if row is not None else None
            for at in range(first, end)
            for row in [rows.get(at)]
        ]
        row_digests = digests.packed_digests(salt, packed)
        if not verifying.is_as_kept(group, first, row_digests):
            self.damaged.append(f"rows from {first} of group {uid.hex()} in the database")
            return
        made = list(layout.row_objects(uid, first, packed, row_digests))
        changed = [
            (uid, at, row[0], row[1])
            for at, row in enumerate(packed, first)
            if row is not None and row[1] > 1
        ]
        draft = objects.draft_rows(uid, made, changed)
        owner = RecordGroup.objects.filter(pk=group.pk, staging=None, ended_at=None)
        if _take_over(_ROWS, owner, (group.pk, first, end), len(rows), draft, uid):
            self.rows += len(rows)

    def _move_pages(self, number: int) -> None:
        owner = IndexSegment.objects.filter(pk=number, staging=None, superseded_at=None)
        segment = owner.filter(pages__gt=0).first()
        sizes = _PAGES.sizes(number)
        if segment is None or not _is_enough(sizes):
            return
        for _, same_size in groupby(
            sizes, lambda sized: sized[1]
        ):  # an object's pages have one length
            for stretch in _stretches(list(same_size)):
                for first, end in _cut(stretch):
                    self._move_some_pages(owner, segment, first, end)

    def _move_some_pages(
        self, owner: QuerySet[IndexSegment], segment: IndexSegment, first: int, end: int
    ) -> None:
        uid = bytes(segment.uid)
        rows = fetch(
            "SELECT number, digest, data FROM index_page WHERE segment_id = %s AND number >= %s"
            " AND number < %s ORDER BY number",
            *(segment.pk, first, end),
        )
        if len(rows) != end - first:
            return  # the pages were deleted meanwhile
        pages = [(Page(uid, at, bytes(data)), bytes(digest)) for at, digest, data in rows]
        if any(digests.page_digest(page.data) != digest for page, digest in pages):
            self.damaged.append(f"pages of segment {uid.hex()} in the database")
            return
        draft = objects.draft_pages(uid, pages)
        if _take_over(_PAGES, owner, (segment.pk, first, end), len(rows), draft, uid):
            self.pages += len(rows)


def _take_over(
    source: _MovedTable,
    owner: QuerySet[Any],
    place: tuple[int, int, int],
    count: int,
    draft: objects.CommitDraft,
    uid: bytes,
) -> bool:
    """Write a draft's objects, which take the place of rows or pages in the database; returns false
    if their group or segment ended meanwhile, or another command was first.

    Args:
        place: the number of the owner, the first row or page, and the end.
        count: the number of rows or pages there.
        uid: the uid of the owner.
    """
    with objects.written(draft.contents) as numbers:
        _read_again(numbers, draft.contents)
        with transaction.atomic():
            if not owner.select_for_update().exists() or source.count(*place) != count:
                objects.give_up(numbers)
                return False
            draft.enter(numbers, {uid: place[0]}, {uid: place[0]})
            objects.name(source.parts._default_manager.filter(object_id__in=numbers))
            source.delete(*place)
    return True


def _is_enough(sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether these are enough bytes for an object."""
    return sum(size for _, size in sizes) >= max(1, choice.chosen().least)


def _stretches(sizes: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Consecutive numbers, with their sizes."""
    for _, consecutive in groupby(enumerate(sizes), lambda placed: placed[1][0] - placed[0]):
        yield [sized for _, sized in consecutive]


def _cut(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Cut consecutive numbers, by their sizes, into pieces no longer than an object: the first, and
    the end after the last.
    """
    first, total = sizes[0][0], 0
    for number, size in sizes:
        if total and total + size > layout.MOST_BYTES - layout.HEAD_BYTES:
            yield first, number
            first, total = number, 0
        total += size
    yield first, sizes[-1][0] + 1


def _check(bulk_store: stores.BulkStore, stored: BulkObject) -> None:
    """Check an object, in this store, against all digests that the database has of it.

    Raises:
        ObjectLost, ObjectAltered: it is missing, or not as it was stored.
    """
    if len(bulk_store.read([stores.Range(stored.name, 0, stored.size)])[0]) != stored.size:
        raise layout.altered(stored.name)
    for rows in RowPart.objects.filter(object_id=stored.pk):
        group = RecordGroup.objects.filter(pk=rows.group_id).first()
        if group is None:
            raise stores.lost(stored.name)
        uid, salt = bytes(group.uid), bytes(group.salt)
        for _ in verifying.row_runs_of(bulk_store, stored.name, rows, uid, salt, {}):
            pass
    for pages in PagePart.objects.filter(object_id=stored.pk):
        segment = IndexSegment.objects.filter(pk=pages.segment_id).first()
        if segment is None:
            raise stores.lost(stored.name)
        verifying.check_pages(bulk_store, stored.name, pages, bytes(segment.uid))


def _is_whole(bulk_store: stores.BulkStore, stored: BulkObject) -> bool:
    try:
        _check(bulk_store, stored)
    except ObjectLost:
        return False
    return True


def _read_again(numbers: list[int], contents: list[bytes]) -> None:
    """
    Raises:
        ObjectLost, ObjectAltered: the store does not return what was just stored.
    """
    bulk_store = choice.chosen().store
    assert bulk_store is not None
    names = dict(BulkObject.objects.filter(pk__in=numbers).values_list("pk", "name"))
    for number, data in zip(numbers, contents, strict=True):
        if bulk_store.read([stores.Range(names[number], 0, len(data))]) != [data]:
            raise layout.altered(names[number])
