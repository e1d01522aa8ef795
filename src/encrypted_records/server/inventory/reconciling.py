"""Reconcile a database and a bulk store after one of them was restored to an earlier state.

A database from before an erasure refers to objects that were rewritten without the erased rows and
then deleted. The rewritten objects are in the store without a reference, but the head of each names
its group and its rows. So for every lost object, the unknown objects are searched. The rows found
must match the digests in the database, except for rows erased since, whose digests are at the end
of the object. They are written to a new object, with a name drawn by the database, without the rows
that are erased in either.

An object that is not found is lost. It is marked, so that a proxy can learn about it
(:mod:`..erasure.damage`): the proxy rebuilds the index from rows, and deletes records without
remaining data after a user has confirmed it.

Restored objects of groups and segments that the database has ended, or has in other objects, are
deleted, because their erasure may have been reported. Objects of groups and segments that the
database does not know stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import F

from encrypted_records.errors import InvalidSetting, ObjectAltered, ObjectLost
from encrypted_records.model import digests
from encrypted_records.model.digests import HOLE
from encrypted_records.server.erasure import erasing
from encrypted_records.server.erasure.erasing import rewritten
from encrypted_records.server.inventory import verifying
from encrypted_records.server.objects import choice, layout, objects
from encrypted_records.server.objects.layout import HEAD_BYTES, ObjectHead, RowsObject
from encrypted_records.server.objects.stores import BulkStore, Range
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    BulkObject,
    ChangedRow,
    IndexSegment,
    PagePart,
    RecordGroup,
    RowPart,
)
from encrypted_records.server.rows import contents


@dataclass(frozen=True)
class _Stranger:
    """An object in the store that the database does not know."""

    name: str
    size: int


class Reconciliation:
    """One run of the reconciliation. ``taken`` objects were found under other names, ``dropped``
    objects are not needed any more; ``rows`` and ``pages`` are lost objects of rows and of pages.
    """

    def __init__(self) -> None:
        self.taken = self.dropped = self.rows = self.pages = 0

    def run(self) -> None:
        """
        Raises:
            InvalidSetting: there is no bulk store.
            StoreFull, StoreUnavailable: it has no room, is away or fails; repeat it.
        """
        held = choice.chosen().store
        if held is None:
            raise InvalidSetting(
                "no bulk store is set, so there is nothing to reconcile",
                hint="name it with --bulk-url",
            )
        there = dict(held.listing())
        lost = [
            stored
            for stored in _named()
            if stored.name not in there and not _is_there(held, stored)
        ]
        numbers = {stored.pk: stored.name for stored in lost}
        parts = [part for part in _row_parts(numbers) if not self._find(held, there, part)]
        left = {part.object_id for part in parts}
        pages = {
            part.object_id
            for some in _cut(numbers)
            for part in PagePart.objects.filter(object_id__in=some)
        }
        self.rows, self.pages = len(left), len(pages)
        objects.note_lost({numbers[page] for page in left | pages})
        self._drop_ended(held, there)

    def _drop_ended(self, held: BulkStore, there: dict[str, int]) -> None:
        for head, every in self._strangers(held, there).items():
            if not _is_over(head):
                continue
            known = objects.known_among([stored.name for stored in every])
            for stored in every:
                if stored.name not in known:  # what was taken is
                    objects.adopt_doomed(stored.name, stored.size, at_once=True)
                    self.dropped += 1

    def _find(self, held: BulkStore, there: dict[str, int], part: RowPart) -> bool:
        """Whether the rows of a lost object are found, and the database has them again."""
        group = RecordGroup.objects.filter(pk=part.group_id, ended_at=None).first()
        if group is None:
            return True  # they have ended, and go
        place = ObjectHead(True, bytes(group.uid), part.first, part.count)
        for stranger in self._strangers(held, there).get(place, []):
            try:
                (data,) = held.read([Range(stranger.name, 0, stranger.size)])
                contents = layout.contents_of(data, stranger.name)
            except (ObjectLost, ObjectAltered):
                continue
            if _take(group, part, stranger, contents):
                self.taken += 1
                return True
        return False

    _by_place: dict[ObjectHead, list[_Stranger]] | None = None

    def _strangers(
        self, held: BulkStore, there: dict[str, int]
    ) -> dict[ObjectHead, list[_Stranger]]:
        if self._by_place is None:
            self._by_place = {}
            known = objects.known_among(there)
            for name in sorted(there.keys() - known):
                head = _head(held, name, there[name])
                if head is not None:
                    self._by_place.setdefault(head, []).append(_Stranger(name, there[name]))
        return self._by_place


def _named() -> Iterator[BulkObject]:
    states = (objects.NAMED, objects.LOST)
    return BulkObject.objects.filter(state__in=states).order_by("pk").iterator()


def _is_there(held: BulkStore, stored: BulkObject) -> bool:
    """Whether an object was stored while the store was listed."""
    try:
        held.read([Range(stored.name, stored.size - 1, stored.size)])
    except ObjectLost:
        return False
    return True


def _cut(numbers: dict[int, str]) -> Iterator[list[int]]:
    return (list(some) for some in store.cut(sorted(numbers)))


def _row_parts(numbers: dict[int, str]) -> list[RowPart]:
    return [
        part
        for some in _cut(numbers)
        for part in RowPart.objects.filter(object_id__in=some).order_by("group_id", "first")
    ]


def _is_over(head: ObjectHead) -> bool:
    """Whether nothing needs an object of this head that the database does not know."""
    if not head.rows:
        own = IndexSegment.objects.filter(uid=head.uid).exclude(superseded_at=None)
        return own.exists()
    group = RecordGroup.objects.filter(uid=head.uid, staging=None).first()
    if group is None:
        return False
    parts = RowPart.objects.filter(group_id=group.pk, first=head.first)
    lost = BulkObject.objects.filter(pk__in=parts.values("object_id"), state=objects.LOST)
    return not lost.exists()


def _head(held: BulkStore, name: str, size: int) -> ObjectHead | None:
    if size < HEAD_BYTES:
        return None
    try:
        (data,) = held.read([Range(name, 0, HEAD_BYTES)])
    except ObjectLost:
        return None
    return layout.head_of(data)


def _take(group: RecordGroup, part: RowPart, stranger: _Stranger, found: RowsObject) -> bool:
    """Have these rows be those of a part, if they are; whether they are."""
    salt = bytes(group.salt)
    end = part.first + part.count
    known = contents.erased_digests(group.pk, part.first, end)
    own = {
        at: digests.row_digest(salt, *row)
        for at, row in enumerate(found.rows, part.first)
        if row is not None
    }
    every = found.gone | own
    whole = b"".join([every.get(at, HOLE) for at in range(part.first, end)])
    if not salt or not verifying.is_as_kept(group, part.first, whole):
        return False
    rows = [None if at in known else row for at, row in enumerate(found.rows, part.first)]
    kept = b"".join([own.get(at, HOLE) for at in range(part.first, end)])
    gone = found.gone | known
    with rewritten(group, part, rows, kept, gone, at_once=True) as is_replaced:
        if not is_replaced:
            return True
        new = sorted(found.gone.keys() - known.keys())
        contents.note_erased((group.pk, at, found.gone[at]) for at in new)
        for some in store.cut(new):
            ChangedRow.objects.filter(group_id=group.pk, ordinal__in=some).delete()
        RecordGroup.objects.filter(pk=group.pk).update(
            erased=F("erased") + len(new), erase_at=erasing.soon()
        )
        # It has what this database knows to be erased, or nothing that is not here by now.
        objects.adopt_doomed(stranger.name, stranger.size, at_once=bool(known.keys() & own.keys()))
    return True
