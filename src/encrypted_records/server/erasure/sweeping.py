"""Delete data that cannot be requested any more, and manage the holds that delay this.

Sweeping deletes pages of replaced segments, rows of ended groups, abandoned stagings, and objects
that none of these need. It neither delays requests nor depends on them: schemas without new data
are swept like all others. A thread of the worker deletes a bounded amount at a time, so that no
step blocks the database for long; several APIs on one database share the work.

A hold keeps the data that a long read of one version of a log needs.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from django.db import Error, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from encrypted_records.errors import BadInput, Conflict, Flaw, TooLarge, Unavailable
from encrypted_records.model.resources import Held
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.statements import run
from encrypted_records.server.erasure import erasing, removing
from encrypted_records.server.objects import block_cache, cache_files, objects
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    AskedErasure,
    CommitLog,
    Hold,
    IndexSegment,
    RecordGroup,
)

#: No hold counts for longer, however often it is renewed, or for longer after its version was
#: replaced: otherwise consecutive holds, of any user, would keep dead rows for longer.
LONGEST_HOLD = timedelta(days=1)
#: The most holds of one schema, and of one user in it, that count at the same time.
MOST_HOLDS = 100
MOST_HOLDS_OF_USER = 10
#: The purposes of holds.
HOLD_REASONS = ("export", "job", "backup", "reading")


def keep_hold(user: User, schema: Schema, uid: uuid.UUID, version: int, reason: str) -> Hold:
    """Begin or renew a hold.

    Raises:
        BadInput: there is no such version, or reason.
        Conflict: ``hold_over``; the hold belongs to another user or another version, has lasted a
            day, or was not renewed in time; the version was replaced a day ago; or the hold is new,
            and erasure of its data was requested.
        TooLarge: the schema has too many holds of this user, or of all users.
    """
    if not 0 <= version <= schema.version:
        raise _invalid_hold("version", "expected a version of the schema's log")
    if reason not in HOLD_REASONS:
        raise _invalid_hold("reason", f"expected one of {', '.join(HOLD_REASONS)}")
    now = timezone.now()
    with transaction.atomic():
        hold = Hold.objects.select_for_update().filter(schema=schema, uid=uid).first()
        if _is_long_gone(schema, version, now):
            raise _hold_over("the version was replaced more than a day ago")
        if hold is None:
            if AskedErasure.objects.filter(schema=schema, up_to__gt=version).exists():
                raise _hold_over("an erasure was requested that removes what this version needs")
            counting = Hold.objects.filter(schema=schema, renewed__gt=now - store.HELD_FOR)
            if counting.count() >= MOST_HOLDS:
                raise TooLarge(f"more than {MOST_HOLDS} hold versions of this schema")
            if counting.filter(user=user).count() >= MOST_HOLDS_OF_USER:
                raise TooLarge(f"more than {MOST_HOLDS_OF_USER} holds of this schema are yours")
            Hold.objects.filter(schema=schema, renewed__lte=now - LONGEST_HOLD).delete()
            return Hold.objects.create(
                schema=schema,
                uid=uid,
                user=user,
                version=version,
                reason=reason,
                begun=now,
                renewed=now,
            )
        lasted = hold.begun <= now - LONGEST_HOLD or hold.renewed <= now - store.HELD_FOR
        if hold.user_id != user.pk or hold.version != version or lasted:
            raise _hold_over("the hold has ended, or is a different one")
        hold.renewed = now
        hold.save(update_fields=["renewed"])
        return hold


def end_hold(user: User, schema: Schema, uid: uuid.UUID) -> None:
    """End a hold of the user. A missing hold is not an error."""
    Hold.objects.filter(schema=schema, uid=uid, user=user).delete()


def list_holds(schema: Schema) -> list[Held]:
    """The active holds of a schema, the oldest first."""
    now = timezone.now()
    counting = Hold.objects.filter(
        schema=schema, renewed__gt=now - store.HELD_FOR, begun__gt=now - LONGEST_HOLD
    )
    return [
        Held(
            hold.version,
            hold.reason,
            hold.user.email,
            hold.begun,
            min(hold.renewed + store.HELD_FOR, hold.begun + LONGEST_HOLD),
        )
        for hold in counting.select_related("user").order_by("begun")
    ]


def _is_long_gone(schema: Schema, version: int, now: datetime) -> bool:
    """Whether the version was replaced so long ago that no reader still uses it."""
    following = CommitLog.objects.filter(schema=schema, version=version + 1)
    return following.filter(created__lte=now - LONGEST_HOLD).exists()


def _hold_over(detail: str) -> Conflict:
    return Conflict(detail, code="hold_over", hint="begin again with a hold of the current version")


def _invalid_hold(member: str, detail: str) -> BadInput:
    return BadInput(detail, flaws=(Flaw("invalid_value", detail, pointer=f"/{member}"),))


# Rows that are deleted in SQLite, but still in its write-ahead log.


#: The longest time that writers have to wait.
_BUSY_MILLISECONDS = 100


def empty_log() -> bool:
    """Checkpoint and truncate SQLite's write-ahead log; returns whether no other connection
    prevented it.

    PostgreSQL keeps deleted rows until a vacuum, which operators run.
    """
    if connection.vendor != "sqlite":
        return True
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        (usual,) = cursor.fetchone()
        # Copies most of the log while others read and write. The rest blocks writers for as long as
        # it waits for readers, which may be long.
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS:d}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (busy, *_) = cursor.fetchone()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {usual:d}")
    return not busy


#: Minimum seconds between two checks for requested erasures, and between two batches.
CHECK_INTERVAL = 5.0
PAUSE_SECONDS = 0.02
#: Seconds until the first chores.
CHORES_WAIT = 60.0
#: The most batches of one kind of work before the other kinds have their turn.
MOST_PIECES = 10
#: The most pages per batch; a page has at most 16 KiB.
MOST_PAGES = 500
MOST_SEGMENTS = 100
MOST_ROWS = 5000
MOST_GROUPS = 100
MOST_REQUESTS = 5000
#: How long the ids of requests are kept. A request may be sent again for a day, and a job may last
#: for several days; after that, proxies see in the log what was stored.
REQUESTS_KEPT_FOR = timedelta(days=30)
#: Seconds between two deletions of expired request ids: each reads all ids.
REQUESTS_SECONDS = 3600.0

_log = logging.getLogger(__name__)
_request_came = threading.Event()


class _NextRuns:
    """When each kind of work is due, by :func:`time.monotonic`."""

    requests = 0.0


_next_runs = _NextRuns()


def sweep_for_ever(chores: Mapping[Callable[[], object], float]) -> None:
    """Sweep again and again, even while the database fails.

    Args:
        chores: further work, each with the seconds between two times.
    """
    due = dict.fromkeys(chores, time.monotonic() + CHORES_WAIT)
    while True:
        for chore in chores:
            if time.monotonic() >= due[chore]:
                due[chore] = time.monotonic() + chores[chore]
                _try(chore)
        look()
        _request_came.wait(CHECK_INTERVAL)
        _request_came.clear()


def look() -> None:
    """Sweep all data whose time is over.

    A failure of one kind of work does not stop the others: rows can leave an object only if there
    is room to rewrite it, and deleting objects makes this room. Each kind of work has its turn, and
    finished erasures are noted between turns, so that a backlog of one kind does not delay the
    rest.
    """
    more = True
    while more:
        more = False
        for work in (sweep, sweep_rows, erasing.sweep, _drop_expired, _sweep_objects):
            for _ in range(MOST_PIECES):
                # Other APIs wait for this process to drop its cached copies, however long a batch
                # takes.
                _try(_drop_copies)
                begun = time.monotonic()
                if not _try(work):
                    break
                # Leave the database to others for most of the time, however long a batch takes.
                time.sleep(max(PAUSE_SECONDS, 2 * (time.monotonic() - begun)))
            else:
                more = True
        if _try(lambda: erasing.note_done(empty_log)):
            look_soon()


def _drop_expired() -> bool:
    removing.drop_expired()
    return drop_requests()


def drop_requests() -> bool:
    """Delete one batch of expired request ids; returns whether there are more.

    The first 48 bits of an id are the time of its request (docs/SPEC.md, section 2.2).
    """
    if time.monotonic() < _next_runs.requests:
        return False
    before = int((store.certain_now() - REQUESTS_KEPT_FOR).timestamp() * 1000).to_bytes(6, "big")
    deleted = run(
        "DELETE FROM commit_request WHERE (schema_id, request) IN (SELECT schema_id, request"
        " FROM commit_request WHERE request < %s LIMIT %s)",
        *(before, MOST_REQUESTS),
    )
    if not (more := deleted == MOST_REQUESTS):
        _next_runs.requests = time.monotonic() + REQUESTS_SECONDS
    return more


def _drop_copies() -> None:
    if (cache := block_cache.opened()) is not None:
        cache.look(cache_files, soon=erasing.is_requested())


def _sweep_objects() -> bool:
    return objects.sweep(store.kept_for())


def _try(work: Callable[[], object]) -> bool:
    """Whether there may be more of this work; false if it fails."""
    try:
        return bool(work())
    except Exception as error:
        # The database or store is busy or away; requests get the same error.
        if isinstance(error, Error | Unavailable):
            _log.info("expired data could not be swept yet: %s", type(error).__name__)
        else:
            _log.exception("unexpected %s while sweeping", type(error).__name__)
        connection.close()
        return False


def look_soon() -> None:
    """Let the next sweep of this process begin now."""
    _request_came.set()


def _is_over(since: str, ended: str) -> Q:
    """Whether the grace period of a segment or group is over, or its erasure was requested.

    Args:
        since: the column with the time at which it ended.
        ended: the column with the version that ended it.
    """
    over = Q(**{f"{since}__lt": store.certain_now() - store.kept_for()})
    if not erasing.is_requested():
        return over  # an index answers this; otherwise all rows in their grace period are read
    return over | Q(erasing.requested(ended), **{f"{since}__isnull": False})


def sweep() -> bool:
    """Delete one batch of the pages whose time is over; returns whether there may be more.

    Their segments stay, without pages, header and salt, so that their uids stay taken.
    """
    old = IndexSegment.objects.filter(
        _is_over("superseded_at", "replaced"), ~erasing.is_held("replaced"), pages__gt=0
    ).order_by("superseded_at")
    if not old.exists():
        return False  # this query takes no lock
    emptied: list[int] = []
    at_once = erasing.without_grace() and old.filter(erasing.requested("replaced")).exists()
    left = MOST_PAGES
    with transaction.atomic():
        for segment in old.select_for_update(skip_locked=True)[:MOST_SEGMENTS]:
            if segment.pages > left:
                if not emptied:
                    _shorten_segment(segment, left, at_once=at_once)
                break
            emptied.append(segment.pk)
            left -= segment.pages
        removing.drop_pages(emptied, at_once=at_once)
        IndexSegment.objects.filter(pk__in=emptied).update(pages=0, header=b"", salt=b"")
    return True


def sweep_rows() -> bool:
    """Delete one batch of the rows whose time is over; returns whether there may be more.

    Their groups stay, without rows and their description, so that their uids stay taken.
    """
    old = RecordGroup.objects.filter(
        _is_over("ended_at", "ended"), ~erasing.is_held("ended"), count__gt=0
    ).order_by("ended_at")
    if not old.exists():
        return False  # this query takes no lock
    emptied: list[int] = []
    left = MOST_ROWS
    with transaction.atomic():
        for group in old.select_for_update(skip_locked=True)[:MOST_GROUPS]:
            if group.count > left:
                if not emptied:
                    _shorten_group(group, left, at_once=bool(_requested_among(old, [group.pk])))
                break
            emptied.append(group.pk)
            left -= group.count
        requested = _requested_among(old, emptied)
        removing.drop_groups(requested, at_once=True)
        removing.drop_groups(set(emptied) - requested)
        # Nothing needs the description of the fields any more; it is as long as a definition.
        RecordGroup.objects.filter(pk__in=emptied).update(
            count=0, salt=b"", fields="[]", holes="[]", key_id=b""
        )
    return True


def _requested_among(old: QuerySet[RecordGroup], groups: Collection[int]) -> set[int]:
    """The groups among these that are deleted without a grace period."""
    if not groups or not erasing.without_grace():
        return set()
    requested = old.filter(erasing.requested("ended"), pk__in=groups)
    return set(requested.values_list("pk", flat=True))


def _shorten_group(group: RecordGroup, count: int, *, at_once: bool) -> None:
    """Delete the last rows of a group, down to a lower ordinal."""
    kept = group.count - count
    removing.drop_rows(group.pk, kept, count, at_once=at_once)
    RecordGroup.objects.filter(pk=group.pk).update(count=kept)


def _shorten_segment(segment: IndexSegment, count: int, *, at_once: bool) -> None:
    """Delete the last pages of a segment, down to a lower number."""
    kept = segment.pages - count
    removing.drop_pages_from(segment.pk, kept, at_once=at_once)
    IndexSegment.objects.filter(pk=segment.pk).update(pages=kept)
