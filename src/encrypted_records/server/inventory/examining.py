"""Check for an operator whether the database and the bulk store can do what an API needs.

Changes nothing, except that it stores, reads and deletes an object.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from django.conf import settings
from django.db import DatabaseError, ProgrammingError, connection, connections, transaction
from django.db.models import F, Max
from django.utils import timezone

from encrypted_records.errors import ErsError, ObjectLost, StoreUnavailable
from encrypted_records.server.db import databases
from encrypted_records.server.db.databases import REPLICA
from encrypted_records.server.erasure import erasing
from encrypted_records.server.inventory import walk
from encrypted_records.server.objects import choice, objects, stores
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    AskedErasure,
    BulkObject,
    IndexSegment,
    RecordGroup,
)

#: Number of the database's objects that are looked for in the store.
SAMPLE = 20
#: An API sweeps every few seconds. Data overdue for this long means that no API runs, or sweeping
#: fails.
OVERDUE = timedelta(days=1)
_PROBE_BYTES = 64
#: A replica further behind the primary's log than this does not just lag for a moment.
BEHIND_BYTES = 64 << 20
#: The time of the first migration. It differs between databases, and replicas have the same.
_MADE = "SELECT min(applied) FROM django_migrations"
_FOLLOWS = """
SELECT pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN pg_get_wal_replay_pause_state() <> 'not paused' END,
    pg_wal_lsn_diff(%s, pg_last_wal_replay_lsn())
"""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; ``hint`` says what to do about a problem."""

    check: Literal["database", "replica", "bulk store", "sweeps"]
    state: Literal["ok", "warning", "failed"]
    message: str
    hint: str = ""


def check_all(little_space: int) -> Iterator[CheckResult]:
    """Check the database first: all other checks need it.

    Args:
        little_space: free space in bytes at or below which a warning is given.
    """
    database = _check_database(little_space)
    yield database
    if database.state == "failed":
        return
    if REPLICA in settings.DATABASES:
        yield _check_replica()
    yield from _check_store(little_space)
    yield _check_sweeps()


def _check_database(little_space: int) -> CheckResult:
    vendor = "SQLite" if connection.vendor == "sqlite" else "PostgreSQL"
    try:
        with transaction.atomic():
            # Updates no row; a read-only file or a replica refuses it all the same.
            BulkObject.objects.filter(pk=-1).update(size=F("size"))
            count = BulkObject.objects.count()
    except DatabaseError as error:
        if fault := databases.meaning_of(error):
            return CheckResult("database", "failed", fault.message, fault.hint)
        return CheckResult(
            "database",
            "failed",
            f"{vendor} cannot be read and written: {type(error).__name__}",
            "check that it runs, that ERS_DATABASE_URL names it, its log and its disk; a replica"
            " cannot be used; on a new database, start this version's API once",
        )
    message = f"{vendor} can be read and written, and knows of {count} objects"
    if connection.vendor != "sqlite":
        return CheckResult(
            "database", "ok", f"{message}; only its server knows how much space is free"
        )
    free = stores.free_below(settings.DATA_DIR)
    message += f"; {_gibibytes(free)} are free below its folder"
    if free <= little_space:
        return CheckResult("database", "warning", message, "make room there")
    return CheckResult("database", "ok", message)


def _check_replica() -> CheckResult:
    """Check that the replica belongs to this database, and how far it lags.

    A replica only takes load off the primary, which answers if the replica fails. So a problem here
    is at most a warning.
    """

    def warn(message: str, hint: str) -> CheckResult:
        return CheckResult(
            "replica", "warning", message, f"{hint}; the primary answers in the meantime"
        )

    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_lsn()")
            (written,) = cursor.fetchone()
            cursor.execute(_MADE)
            made = cursor.fetchone()
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(_FOLLOWS, [written])
            follows, paused, behind = cursor.fetchone()
            cursor.execute(_MADE)
            same = cursor.fetchone() == made
    except ProgrammingError:
        same = False
    except DatabaseError as error:
        return warn(
            f"it does not answer: {type(error).__name__}",
            "check its log, and whether ERS_REPLICA_URL names it",
        )
    finally:
        connections[REPLICA].close()
    if not same:
        return warn("it replicates another database", "correct ERS_REPLICA_URL")
    if not follows:
        return warn(
            "it replicates nothing: it is the primary, or was promoted",
            "name a standby in ERS_REPLICA_URL",
        )
    if paused:
        return warn("its replication is paused", "run SELECT pg_wal_replay_resume() there")
    message = f"it answers, and is {max(0, int(behind)):,} bytes of log behind"
    if behind > BEHIND_BYTES:
        hint = "check its log, and the network between the two"
        return CheckResult("replica", "warning", message, hint)
    return CheckResult("replica", "ok", message)


def _check_store(little_space: int) -> Iterator[CheckResult]:
    try:
        bulk_store = choice.chosen().store
        if bulk_store is None:
            if BulkObject.objects.exists():
                hint = "name their store with --bulk-url"
                yield CheckResult(
                    "bulk store", "failed", "none is set, and there are objects", hint
                )
            else:
                yield CheckResult("bulk store", "ok", "none is set: everything is in the database")
            return
        kept = _try(bulk_store)
        sample = _sample()
        lost = [stored.name for stored in sample if walk.is_missing(bulk_store, stored)]
        free = bulk_store.free()
    except ErsError as error:
        hint = error.hint or (
            "check whether it is running, and check its credentials, permissions and free space"
        )
        yield CheckResult("bulk store", "failed", error.message, hint)
        return
    if lost:
        yield CheckResult(
            "bulk store",
            "failed",
            f"{len(lost)} of {len(sample)} objects are lost or cut short: {lost[0]}",
            "check all of them with ers verify --stored; restore them from a backup",
        )
    if noted := BulkObject.objects.filter(state=objects.LOST).count():
        yield CheckResult(
            "bulk store",
            "warning",
            f"{noted} objects were reported as lost by ers storage reconcile",
            "have a writer of each schema run ers schema repair",
        )
    if kept:
        yield CheckResult(
            "bulk store",
            "warning",
            "it keeps versions of objects: deleted and erased data stays there",
            "suspend versioning of the bucket, or have old versions expire soon",
        )
    room = "" if free is None else f"; {_gibibytes(free)} are free"
    if free is not None and free <= little_space:
        yield CheckResult("bulk store", "warning", f"little space is left{room}", "make room there")
    elif not lost and not kept and not noted:
        yield CheckResult("bulk store", "ok", f"an object can be stored, read and deleted{room}")


def _try(bulk_store: stores.BulkStore) -> bool:
    """Store, read and delete an object; returns whether the store reports that it keeps deleted
    objects.

    Raises:
        StoreFull, StoreUnavailable: an operation failed.
    """
    data = secrets.token_bytes(_PROBE_BYTES)
    with objects.written([data]) as numbers:
        stored = BulkObject.objects.get(pk=numbers[0])
        try:
            if bulk_store.read([stores.Range(stored.name, 0, len(data))]) != [data]:
                raise StoreUnavailable(
                    "the bulk store did not return the object that was just stored"
                )
        except ObjectLost:
            raise StoreUnavailable(
                "the bulk store did not keep the object that was just stored"
            ) from None
        kept = bulk_store.keeps_versions(stored.name)
        bulk_store.delete([stored.name])
        stored.delete()
    return kept


def _sample() -> list[BulkObject]:
    named = BulkObject.objects.filter(state=objects.NAMED)
    most = named.aggregate(most=Max("pk"))["most"] or 0
    places = sorted(random.sample(range(1, most + 1), min(SAMPLE, most)))
    found = (named.filter(pk__gte=at).order_by("pk").first() for at in places)
    return list({stored.pk: stored for stored in found if stored is not None}.values())


def _check_sweeps() -> CheckResult:
    now = timezone.now()
    ago = now - OVERDUE
    replaced = ago - store.kept_for()
    late = {
        "groups with dead rows": RecordGroup.objects.filter(
            erase_at__lt=ago, staging=None, ended_at=None
        ),
        "replaced segments": IndexSegment.objects.filter(
            ~erasing.is_held("replaced"), superseded_at__lt=replaced, pages__gt=0
        ),
        "ended groups": RecordGroup.objects.filter(
            ~erasing.is_held("ended"), ended_at__lt=replaced, count__gt=0
        ),
        "objects": objects.doomed_before(replaced),
        "requested erasures": AskedErasure.objects.filter(done__lt=F("up_to"), due__lt=replaced),
    }
    counts = {kind: rows.count() for kind, rows in late.items()}
    overdue = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    if overdue:
        hint = (
            "check whether an API is running on this database, and what its log says about sweeping"
        )
        return CheckResult("sweeps", "warning", f"overdue for more than a day: {overdue}", hint)
    return CheckResult("sweeps", "ok", "nothing is overdue for more than a day")


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
