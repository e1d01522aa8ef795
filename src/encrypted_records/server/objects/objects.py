"""The life cycle of objects, as rows of the database, and the drafts that fill them.

``writing``  the name is drawn and stored; the first byte is written after that
``stored``   it is complete, and its content is staged or about to be
``named``    a commit has named its content
``doomed``   nothing new needs it; readers of an earlier version still may
``lost``     it was named, and was found missing from the store after a restore

A doomed object is deleted when its grace period is over and nothing in the database refers to it
any more. So a crash at any moment leaves only objects that the sweep deletes. The content of the
store is never decisive.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from encrypted_records.errors import StoreUnavailable
from encrypted_records.model.records import Page
from encrypted_records.server.objects import block_cache, choice, layout
from encrypted_records.server.records import store
from encrypted_records.server.records.bindings import BoundPart, PackedBatch
from encrypted_records.server.records.models import BulkObject, PagePart, RowPart
from encrypted_records.server.records.store import certain_now, cut

WRITING, STORED, NAMED, DOOMED, LOST = "writing", "stored", "named", "doomed", "lost"
#: An object that has been written for this long is given up.
WRITING_FOR = timedelta(hours=1)
#: Stored as the time of dooming if an object has no grace period.
AT_ONCE = datetime(2000, 1, 1, tzinfo=UTC)
#: The most objects that one sweep deletes.
MOST_AT_ONCE = 100


@contextmanager
def written(contents: Sequence[bytes]) -> Iterator[list[int]]:
    """Write these as objects; yields their numbers, for a transaction that takes them over.

    Called outside of any transaction, because the names must stay if anything else fails. The
    objects are doomed if the block fails.

    Raises:
        StoreFull, StoreUnavailable: none is stored.
    """
    now = timezone.now()
    rows = BulkObject.objects.bulk_create(
        BulkObject(name=secrets.token_hex(16), state=WRITING, since=now, size=len(data))
        for data in contents
    )
    numbers = [row.pk for row in rows]
    try:
        for row, data in zip(rows, contents, strict=True):
            store = choice.chosen().store
            assert store is not None  # without a store, nothing is too large for the database
            store.put(row.name, data)
        yield numbers
    except BaseException:
        # If the database is away too, the sweep finds them.
        with suppress(DatabaseError):
            give_up(numbers)
        raise


def give_up(numbers: Collection[int]) -> None:
    """Doom objects that no transaction has taken over."""
    left = BulkObject.objects.filter(pk__in=numbers, state=WRITING)
    left.update(state=DOOMED, since=timezone.now())


def take_over(numbers: Collection[int]) -> None:
    """Keep written objects, in the transaction that records their content.

    Raises:
        StoreUnavailable: the writes took so long that the objects were given up.
    """
    taken = BulkObject.objects.filter(pk__in=numbers, state=WRITING).update(
        state=STORED, since=timezone.now()
    )
    if taken != len(numbers):
        raise StoreUnavailable("writing an object took too long and was given up")


def name(parts: QuerySet[Any, Any]) -> None:
    """Mark the objects of these parts as named by a commit."""
    BulkObject.objects.filter(pk__in=parts.values("object_id"), state=STORED).update(
        state=NAMED, since=timezone.now()
    )


def doom(parts: QuerySet[Any, Any], *, at_once: bool = False) -> None:
    """Mark the objects of these parts as no longer needed by new commits.

    Args:
        at_once: whether they are deleted without a grace period.
    """
    bulk_objects = BulkObject.objects.filter(pk__in=parts.values("object_id"))
    if at_once:
        bulk_objects.update(state=DOOMED, since=AT_ONCE)
    else:
        bulk_objects.exclude(state=DOOMED).update(state=DOOMED, since=timezone.now())


def drop(parts: QuerySet[Any, Any], *, at_once: bool = False) -> None:
    """Delete these parts, and doom their objects, if not doomed yet.

    Args:
        at_once: as for :func:`doom`.
    """
    doom(parts, at_once=at_once)
    parts.delete()


def hurry() -> int:
    """End the grace period of doomed objects to which nothing refers any more, so that the next
    sweep deletes them; returns their number.
    """
    with transaction.atomic():
        # Others update several of these rows, too: lock them in order, and skip locked rows.
        waiting = _pointless().exclude(since=AT_ONCE).order_by("pk")
        rows = waiting.select_for_update(skip_locked=True, of=("self",))
        numbers = list(rows.values_list("pk", flat=True))
        return sum(
            BulkObject.objects.filter(pk__in=batch).update(since=AT_ONCE) for batch in cut(numbers)
        )


def doomed_before(moment: datetime) -> QuerySet[BulkObject]:
    """Doomed objects without references, doomed before this moment with a grace period."""
    return _pointless().filter(since__gt=AT_ONCE, since__lt=moment)


def waits(moment: datetime) -> bool:
    """Whether the store still has an object without references that was doomed by this moment."""
    return _pointless().filter(since__lte=moment).exists()


def _pointless() -> QuerySet[BulkObject]:
    return BulkObject.objects.filter(
        ~Exists(RowPart.objects.filter(object_id=OuterRef("pk"))),
        ~Exists(PagePart.objects.filter(object_id=OuterRef("pk"))),
        state=DOOMED,
    )


def note_lost(names: Collection[str]) -> None:
    """Mark exactly these of the objects that a commit named as missing from the store, and the
    others as present.
    """
    now = timezone.now()
    known = set(BulkObject.objects.filter(state=LOST).values_list("name", flat=True))
    for batch in cut(sorted(known.difference(names))):
        BulkObject.objects.filter(name__in=batch, state=LOST).update(state=NAMED, since=now)
    for batch in cut(sorted(set(names) - known)):
        BulkObject.objects.filter(name__in=batch, state=NAMED).update(state=LOST, since=now)


def is_lost(number: int) -> bool:
    """Whether an object was found to be lost."""
    return BulkObject.objects.filter(pk=number, state=LOST).exists()


def adopt_doomed(name: str, size: int, *, at_once: bool) -> None:
    """Schedule the deletion of an object in the store that the database did not know, because its
    content has ended or is now in another object.
    """
    since = AT_ONCE if at_once else timezone.now()
    BulkObject.objects.create(name=name, state=DOOMED, since=since, size=size)


def replace(number: int, new: int, *, at_once: bool) -> None:
    """Replace an object by a written object with its content; the old object is doomed."""
    take_over([new])
    BulkObject.objects.filter(pk=new).update(state=NAMED)
    BulkObject.objects.filter(pk=number).update(
        state=DOOMED, since=AT_ONCE if at_once else timezone.now()
    )


def sweep(grace: timedelta) -> bool:
    """Delete some objects whose time is over; returns whether there may be more.

    The row is deleted after the object, so that a crash in between only repeats the deletion.

    Raises:
        StoreUnavailable: the objects stay for now.
    """
    now = certain_now()
    late = BulkObject.objects.filter(state=WRITING, since__lt=now - WRITING_FOR)
    if late.exists():  # this query takes no lock
        late.update(state=DOOMED, since=timezone.now())
    over = _pointless().filter(since__lt=now - grace)
    rows = list(over.order_by("since")[:MOST_AT_ONCE])
    store = choice.chosen().store
    if not rows or store is None:
        return False
    names = [row.name for row in rows]
    store.delete(names)
    if (cache := block_cache.opened()) is not None:
        cache.forget(names)
    BulkObject.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows) == MOST_AT_ONCE


def known_among(names: Collection[str]) -> set[str]:
    """The names among these that the database knows."""
    return {
        name
        for batch in cut(sorted(names))
        for name in BulkObject.objects.filter(name__in=batch).values_list("name", flat=True)
    }


# Drafts: parts, divided into objects and rows small enough for the database.

_CHANGED = store.RowTable(
    "changed_row", "group_id, ordinal, record_id, version", ("int8", "int8", "bytea", "int8")
)


@dataclass(frozen=True)
class _PageObject:
    segment: bytes
    first: int
    count: int
    page_bytes: int
    digests: bytes
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class CommitDraft:
    """``batches`` and ``pages`` (with their digests) are for the database, the rest is for objects.
    ``changed`` are the objects' rows of a version above 1: uid of the group, ordinal, id and
    version.
    """

    batches: list[PackedBatch]
    pages: list[tuple[Page, bytes]]
    changed: list[tuple[bytes, int, bytes, int]]
    _rows: list[tuple[bytes, layout.RowObject]]
    _pages: list[_PageObject]

    @property
    def contents(self) -> list[bytes]:
        """The bytes of each object."""
        return [part.data for _, part in self._rows] + [page.data for page in self._pages]

    def enter(
        self, numbers: Sequence[int], groups: Mapping[bytes, int], segments: Mapping[bytes, int]
    ) -> None:
        """Take the written objects over, in the transaction of their part.

        Args:
            numbers: of the objects, in the order of ``contents``.
            groups, segments: their numbers in the database, by uid.

        Raises:
            django.db.IntegrityError: rows or pages that begin there are stored already.
            StoreUnavailable: writing them took too long.
        """
        if not numbers:
            return
        take_over(numbers)
        RowPart.objects.bulk_create(
            RowPart(
                group_id=groups[group],
                first=rows.first,
                count=rows.count,
                object_id=number,
                blocks=rows.entries,
                first_id=rows.first_id,
                last_id=rows.last_id,
            )
            for number, (group, rows) in zip(numbers, self._rows, strict=False)
        )
        PagePart.objects.bulk_create(
            PagePart(
                segment_id=segments[pages.segment],
                first=pages.first,
                count=pages.count,
                object_id=number,
                page_bytes=pages.page_bytes,
                digests=pages.digests,
            )
            for number, pages in zip(numbers[len(self._rows) :], self._pages, strict=True)
        )
        store.insert(_CHANGED, ((groups[group], *row) for group, *row in self.changed))


def draft_rows(
    group: bytes, made: Sequence[layout.RowObject], changed: Sequence[tuple[bytes, int, bytes, int]]
) -> CommitDraft:
    """A draft of a group's objects alone.

    Args:
        changed: as in :class:`CommitDraft`.
    """
    return CommitDraft([], [], list(changed), [(group, part) for part in made], [])


def draft_pages(segment: bytes, pages: Sequence[tuple[Page, bytes]]) -> CommitDraft:
    """A draft of the objects of a segment's pages, with their digests."""
    return CommitDraft([], [], [], [], list(_page_objects(segment, pages)))


def draft_part(bound: BoundPart, pages: Sequence[Page]) -> CommitDraft:
    """Divide a part by the size of its content of each group and segment."""
    chosen = choice.chosen()
    draft = CommitDraft([], [], [], [], [])
    for batch in bound.batches:
        packed = sum(len(row[2]) for row in batch.rows if row is not None)
        if chosen.store is None or packed < chosen.least:
            draft.batches.append(batch)
            continue
        draft._rows.extend(
            (batch.group, stored)
            for stored in layout.row_objects(batch.group, batch.first, batch.rows, batch.digests)
        )
        draft.changed.extend(
            (batch.group, ordinal, row[0], row[1])
            for ordinal, row in enumerate(batch.rows, batch.first)
            if row is not None and row[1] > 1
        )
    with_digests = zip(pages, bound.pages, strict=True)
    for segment, paired_pages in groupby(with_digests, lambda paired: paired[0].segment):
        pages_of_segment = list(paired_pages)
        size = sum(len(page.data) for page, _ in pages_of_segment)
        if chosen.store is None or size < chosen.least:
            draft.pages.extend(pages_of_segment)
        else:
            draft._pages.extend(_page_objects(segment, pages_of_segment))
    return draft


def _page_objects(segment: bytes, pages: Sequence[tuple[Page, bytes]]) -> Iterator[_PageObject]:
    digest_of = {page.number: digest for page, digest in pages}
    for first, run in layout.cut_pages((page.number, page.data) for page, _ in pages):
        yield _PageObject(
            segment,
            first,
            len(run),
            len(run[0]),
            b"".join([digest_of[first + at] for at in range(len(run))]),
            layout.page_object(segment, first, run),
        )
