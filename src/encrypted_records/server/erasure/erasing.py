"""Erase the bytes of dead rows; this needs no key.

Small rows are deleted when their grace period is over. An object is rewritten without its dead rows
when many of its rows are dead, or some have been dead for long. Ordinals do not change. Of an
erased row, only its salted digest remains, so that its neighbours can be verified; digest and salt
are deleted with the last bytes of the group.

A user can request immediate erasure (:func:`ask`). Then only holds delay it, and for objects a
grace period that is longer than usual, because restoring a database relies on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, F, Min, OuterRef, QuerySet
from django.db.models.functions import Coalesce, Least
from django.utils import timezone

from encrypted_records.errors import ObjectLost, Unavailable
from encrypted_records.model import digests
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.statements import fetch, run
from encrypted_records.server.erasure import damage
from encrypted_records.server.objects import cache_files, layout, objects, parts
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    AskedErasure,
    CommitLog,
    Hold,
    IndexSegment,
    RecordGroup,
    RowPart,
)
from encrypted_records.server.rows import contents

# Choose the schema whose dead rows are erased next: schemas take turns, so that a large deletion
# does not delay others.


class Turn:
    """State of the queue: whether the last turn was for requested erasures, and the schemas served
    last.
    """

    requested = False
    of_requested: str | None = None
    of_all: str | None = None


turn = Turn()


def next_due() -> RecordGroup | None:
    """The next group that is due. Every other group is from a schema with a requested erasure, if
    there is one. The queries take no locks.
    """
    due = RecordGroup.objects.filter(erase_at__lte=timezone.now(), staging=None, ended_at=None)
    due = due.order_by("schema", "erase_at")
    waited_for = Exists(AskedErasure.objects.filter(schema=OuterRef("schema"), done__lt=F("up_to")))
    turn.requested = not turn.requested
    group = _after(due.filter(waited_for), turn.of_requested) if turn.requested else None
    if group is not None:
        turn.of_requested = group.schema_id
        return group
    group = _after(due, turn.of_all)
    if group is not None:
        turn.of_all = group.schema_id
    return group


def _after(due: QuerySet[RecordGroup], served: str | None) -> RecordGroup | None:
    after = due if served is None else due.filter(schema__gt=served)
    return after.first() or due.first()


#: A longer grace period serves to restore databases: then no object is deleted before it ends, even
#: if erasure was requested.
USUAL_GRACE = timedelta(minutes=15)
#: An object is rewritten when more than one in this many of its rows is dead.
ONE_IN = 20
#: Rows erased at a time.
MOST_ROWS = 2000
#: Time until a group is looked at again if a hold needs its dead rows.
_HELD_AGAIN = timedelta(seconds=30)
#: The same if its object cannot be rewritten now, because the store is away or full.
_UNAVAILABLE_AGAIN = timedelta(minutes=1)
#: The same if its object is lost or altered.
_DAMAGED_AGAIN = timedelta(hours=1)

_log = logging.getLogger(__name__)
#: When this process first saw that nothing is left of a requested erasure, by schema id and
#: version.
_emptied: dict[tuple[str, int], datetime] = {}
#: By the same key: for each API's cache, its latest look when the objects were gone.
_looks: dict[tuple[str, int], dict[str, int]] = {}


def soon() -> Any:
    """When to look for a group's dead rows, for a group in which rows die now."""
    due = timezone.now() + store.kept_for()
    return Coalesce(Least(F("erase_at"), due), due)


def ask(schema: Schema) -> AskedErasure:
    """Request immediate erasure of all data that has ended so far; the schema's row is locked."""
    now = timezone.now()
    entry, _ = AskedErasure.objects.update_or_create(
        schema=schema, defaults={"up_to": schema.version, "due": now}
    )
    # All groups, whenever they are due: a sweep that has not seen the request may postpone one.
    RecordGroup.objects.filter(schema=schema, erase_at__isnull=False).update(
        erase_at=Least(F("erase_at"), now)
    )
    if without_grace():
        objects.hurry()
    return entry


def without_grace() -> bool:
    """Whether objects are deleted without a grace period if an erasure was requested."""
    return store.kept_for() <= USUAL_GRACE


def requested(ended: str) -> Exists:
    """Whether erasure was requested for segments or groups that ended at the version in this
    column.
    """
    return Exists(
        AskedErasure.objects.filter(
            schema=OuterRef("schema"), up_to__gte=OuterRef(ended), due__lte=timezone.now()
        )
    )


def is_held(ended: str) -> Exists:
    """Whether a reader of an earlier version needs data that ended at the version in this
    column.
    """
    return Exists(active_holds().filter(schema=OuterRef("schema"), version__lt=OuterRef(ended)))


def active_holds() -> QuerySet[Hold]:
    """Holds that have been renewed in time."""
    return Hold.objects.filter(renewed__gt=timezone.now() - store.HELD_FOR)


@dataclass(frozen=True)
class _Limits:
    """Versions of a schema up to which dead rows are erased. ``soon``: small rows, and rows of
    objects with many dead rows; ``late``: rows of all objects; ``requested``: requested erasure;
    ``first_held``: the first version with a hold.
    """

    soon: int
    late: int
    requested: int
    first_held: int | None

    def capped(self, version: int) -> int:
        return version if self.first_held is None else min(version, self.first_held)


def _limits(schema: str) -> _Limits:
    now = timezone.now()
    entry = AskedErasure.objects.filter(schema=schema, due__lte=now).first()
    up_to = 0 if entry is None else entry.up_to
    least = active_holds().filter(schema=schema).aggregate(least=Min("version"))["least"]
    return _Limits(
        max(up_to, _newest_before(schema, now - store.kept_for())),
        max(up_to, _newest_before(schema, now - settings.ERASE_WITHIN - store.kept_for())),
        up_to,
        least,
    )


def _newest_before(schema: str, moment: datetime) -> int:
    log = CommitLog.objects.filter(schema=schema, created__lte=moment).order_by("-version")
    return log.values_list("version", flat=True).first() or 0


def sweep() -> bool:
    """Erase one batch of dead rows whose time is over; returns whether there may be more.

    Raises:
        StoreUnavailable, StoreFull: the bulk store is away or full; the rows stay for now.
        InterfaceError, OperationalError: the database is busy or away.
    """
    group = next_due()
    if group is None:
        return False
    try:
        limits = _limits(group.schema_id)
        if not _erase_small(group.pk, limits) and not _rewrite_one(group, limits):
            _finish(group.pk)
    except ObjectLost as error:
        # Other groups must not wait for it; it is erased once the object is restored.
        _log.warning("dead rows cannot be erased: %s", error.message)
        _put_off(group.pk, _DAMAGED_AGAIN)
    except Unavailable:
        _put_off(group.pk, _UNAVAILABLE_AGAIN)
        raise
    except (InterfaceError, OperationalError):
        raise
    except Exception as error:
        # A failure in one group must not stop the others.
        _log.exception("unexpected %s with dead rows", type(error).__name__)
        _put_off(group.pk, _DAMAGED_AGAIN)
    return True


def _put_off(number: int, time: timedelta) -> None:
    RecordGroup.objects.filter(pk=number, ended_at=None).update(erase_at=timezone.now() + time)


def _erase_small(number: int, limits: _Limits) -> bool:
    """Delete some dead rows in the database; returns whether there were any."""
    with transaction.atomic():
        group = RecordGroup.objects.select_for_update().filter(pk=number).first()
        if group is None or group.ended_at is not None:
            return False
        rows = fetch(
            "SELECT r.ordinal, record_id, r.version, sealed FROM dead_row d"
            " JOIN record_row r ON r.group_id = d.group_id AND r.ordinal = d.ordinal"
            " WHERE d.group_id = %s AND d.version <= %s LIMIT %s",
            *(number, limits.capped(limits.soon), MOST_ROWS),
        )
        salt = bytes(group.salt)
        contents.note_erased(
            number,
            {
                at: digests.row_digest(salt, bytes(record_id), version, bytes(sealed))
                for at, record_id, version, sealed in rows
            },
        )
        for batch in store.cut([at for at, *_ in rows]):
            within = f"group_id = %s AND ordinal IN {store.marks(len(batch))}"
            run(f"DELETE FROM record_row WHERE {within}", number, *batch)  # noqa: S608  no input
    return bool(rows)


def _rewrite_one(group: RecordGroup, limits: _Limits) -> bool:
    """Rewrite an object of the group without its dead rows; returns whether any needed this."""
    for part in RowPart.objects.filter(group_id=group.pk).order_by("first"):
        gone = _dead_in(part, limits.capped(limits.soon))
        if len(gone) * ONE_IN <= part.count:
            gone = _dead_in(part, limits.capped(limits.late))
        if gone:
            _rewrite(group, part, gone, limits)
            return True
    return False


def _dead_in(part: RowPart, limit: int) -> set[int]:
    """The ordinals of a part's rows that died up to version ``limit`` and are not erased."""
    rows = fetch(
        "SELECT ordinal FROM dead_row d WHERE group_id = %s AND ordinal >= %s AND ordinal < %s"
        " AND version <= %s AND NOT EXISTS (SELECT 1 FROM erased_row e"
        " WHERE e.group_id = d.group_id AND e.ordinal = d.ordinal)",
        *(part.group_id, part.first, part.first + part.count, limit),
    )
    return {ordinal for (ordinal,) in rows}


def _rewrite(group: RecordGroup, part: RowPart, gone: set[int], limits: _Limits) -> None:
    """Rewrite a part's object without these rows."""
    if objects.is_lost(part.object_id):
        damage.forget(group, part)
        return
    end = part.first + part.count
    stored = parts.rows_at([(group.pk, at) for at in range(part.first, end)])
    salt = bytes(group.salt)
    of_row = {
        at: digests.row_digest(salt, row.record_id, row.version, row.sealed)
        for (_, at), row in stored.items()
    }
    rows = [
        None if at in gone or row is None else (row.record_id, row.version, row.sealed)
        for at in range(part.first, end)
        for row in [stored.get((group.pk, at))]
    ]
    row_digests = b"".join([of_row.get(at, digests.HOLE) for at in range(part.first, end)])
    new = {at: of_row.get(at, digests.HOLE) for at in gone}
    left = new | contents.erased_digests(group.pk, part.first, end)
    at_once = bool(limits.requested) and without_grace()
    with rewritten(group, part, rows, row_digests, left, at_once=at_once) as is_replaced:
        if is_replaced:
            contents.note_erased(group.pk, new)


def _finish(number: int) -> None:
    """Set when to look at a group again; delete the details of a group that has no bytes left."""
    now = timezone.now()
    with transaction.atomic():
        group = RecordGroup.objects.select_for_update().filter(pk=number).first()
        if group is None or group.ended_at is not None:
            return
        limits = _limits(group.schema_id)  # erasure may have been requested meanwhile
        rows = fetch(
            "SELECT DISTINCT version FROM dead_row d WHERE group_id = %s AND NOT EXISTS"
            " (SELECT 1 FROM erased_row e"
            " WHERE e.group_id = d.group_id AND e.ordinal = d.ordinal)",
            number,
        )
        left = [version for (version,) in rows]
        if not left and not group.live:
            for table in ("row_run", "erased_row", "dead_row"):
                # From now on the group's row itself says that all of its rows are dead.
                run(f"DELETE FROM {table} WHERE group_id = %s", number)  # noqa: S608  no input
            RecordGroup.objects.filter(pk=number).update(
                salt=b"", erased=group.count, erase_at=None
            )
            return
        again = (
            [_HELD_AGAIN + now] if any(version > limits.capped(version) for version in left) else []
        )
        created = dict(
            CommitLog.objects.filter(schema=group.schema_id, version__in=left).values_list(
                "version", "created"
            )
        )
        grace = store.kept_for()
        again += [created[version] + grace for version in left if version > limits.soon]
        again += [created[version] + grace + settings.ERASE_WITHIN for version in left]
        again += [now for version in left if version <= limits.capped(limits.requested)]
        RecordGroup.objects.filter(pk=number).update(
            erase_at=max(now + timedelta(seconds=1), min(again)) if again else None
        )


# --- what is left --------------------------------------------------------------------------


@dataclass(frozen=True)
class Remainder:
    """The part of ended data that is left, up to a version: dead rows that have bytes, replaced
    segments with pages, ended groups with rows.
    """

    rows: int
    segments: int
    groups: int
    #: when a commit ended the oldest of these rows
    since: datetime | None

    @property
    def nothing(self) -> bool:
        return not (self.rows or self.segments or self.groups)


def left_of(schema: Schema, up_to: int) -> Remainder:
    """The part of a schema's ended data up to a version that is left."""
    [(rows, oldest)] = fetch(
        "SELECT COUNT(*), MIN(d.version) FROM record_group g"
        " JOIN dead_row d ON d.group_id = g.id"
        " WHERE g.schema_id = %s AND erase_at IS NOT NULL AND d.version <= %s AND NOT EXISTS"
        " (SELECT 1 FROM erased_row e WHERE e.group_id = d.group_id AND e.ordinal = d.ordinal)",
        *(schema.uid, up_to),
    )
    segments = IndexSegment.objects.filter(
        schema=schema, pages__gt=0, superseded_at__isnull=False, replaced__lte=up_to
    )
    groups = RecordGroup.objects.filter(
        schema=schema, count__gt=0, ended_at__isnull=False, ended__lte=up_to
    )
    since = CommitLog.objects.filter(schema=schema, version=oldest).values_list(
        "created", flat=True
    )
    return Remainder(rows, segments.count(), groups.count(), since.first() if rows else None)


def note_done(bytes_are_gone: Callable[[], bool]) -> bool:
    """Mark requested erasures as done once nothing is left; returns whether to look again soon.

    Args:
        bytes_are_gone: called before marking; whether the database files have no bytes of the data.
    """
    again = 0
    done = []
    for erasure in _unfinished().select_related("schema"):
        if not left_of(erasure.schema, erasure.up_to).nothing:
            continue
        moment = _emptied.setdefault((erasure.pk, erasure.up_to), timezone.now())
        if without_grace():  # for objects doomed by a process that did not know of the request yet
            again += objects.hurry()
        if objects.waits(moment):
            continue
        if (erasure.pk, erasure.up_to) not in _looks:
            _looks[erasure.pk, erasure.up_to] = begun = cache_files.begun()
            again += len(begun)
        if cache_files.looked_since(_looks[erasure.pk, erasure.up_to]):
            done.append(erasure)
    if done and bytes_are_gone():
        for erasure in done:
            AskedErasure.objects.filter(pk=erasure.pk, done__lt=erasure.up_to).update(
                done=erasure.up_to
            )
            _emptied.pop((erasure.pk, erasure.up_to), None)
            _looks.pop((erasure.pk, erasure.up_to), None)
    return again > 0


def is_requested() -> bool:
    """Whether an erasure was requested."""
    return _unfinished().exists()


def _unfinished() -> QuerySet[AskedErasure]:
    return AskedErasure.objects.filter(done__lt=F("up_to"))


@contextmanager
def rewritten(
    group: RecordGroup,
    part: RowPart,
    rows: Sequence[layout.Row | None],
    row_digests: bytes,
    gone: Mapping[int, bytes],
    *,
    at_once: bool,
) -> Iterator[bool]:
    """Replace the content of a part by these rows, in the transaction that runs inside the block,
    with the group's row locked; yields whether that was possible. If not, another API has rewritten
    the part, or its group has ended, and nothing was changed.

    The new object is written before the transaction and taken over in it, like every object. The
    part's previous object is doomed. A part without rows is dropped.

    Args:
        rows: of all ordinals of the part.
        row_digests: of these rows, concatenated.
        gone: the digests of the erased rows, by ordinal.
        at_once: whether the previous object is deleted without a grace period.

    Raises:
        StoreFull, StoreUnavailable: nothing was changed.
    """
    made = layout.row_objects(bytes(group.uid), part.first, rows, row_digests, gone)
    # At most one object: it is no longer than the previous object, which was within the limit.
    written = list(made) if any(rows) else []
    with objects.written([piece.data for piece in written]) as numbers, transaction.atomic():
        locked = RecordGroup.objects.select_for_update().filter(pk=group.pk, ended_at=None)
        mine = RowPart.objects.filter(group_id=group.pk, first=part.first, object_id=part.object_id)
        if not locked.exists() or not mine.exists():
            objects.give_up(numbers)
            yield False
            return
        for written_object, number in zip(written, numbers, strict=True):
            objects.replace(part.object_id, number, at_once=at_once)
            mine.update(
                object_id=number,
                blocks=written_object.entries,
                first_id=written_object.first_id,
                last_id=written_object.last_id,
            )
        if not written:
            objects.drop(mine, at_once=at_once)
        yield True
