"""Delete rows and pages with all their details, in SQL. Callers decide and hold the transaction, as
for :mod:`..records.store`.

Also find data under older keys and data that may not be stored any more, and drop staged data that
will not be published. A late request with the token of an ended job is refused, or its data is
dropped with the rest: no data stays after the job's end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

from django.db import connection, transaction

from encrypted_records.errors import Conflict
from encrypted_records.model import ids
from encrypted_records.server import permissions
from encrypted_records.server.accounts import authentication
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.db.statements import fetch, run
from encrypted_records.server.objects import objects
from encrypted_records.server.records.models import (
    AskedErasure,
    ChangedRow,
    IndexSegment,
    PagePart,
    RecordGroup,
    RowPart,
    StagedPart,
    Staging,
)
from encrypted_records.server.records.store import certain_now, cut, marks, owners_with_any


def drop_rows(group: int, first: int, count: int, *, at_once: bool = False) -> None:
    """Delete the rows of the parts that begin in this range."""
    end = first + count
    row_parts = RowPart.objects.filter(group_id=group, first__gte=first, first__lt=end)
    objects.drop(row_parts, at_once=at_once)
    ChangedRow.objects.filter(group_id=group, ordinal__gte=first, ordinal__lt=end).delete()
    run("DELETE FROM row_run WHERE group_id = %s AND first = %s", group, first)
    run(
        "DELETE FROM record_row WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
        group,
        first,
        end,
    )


#: Tables of the rows of groups.
_OF_GROUPS = ("changed_row", "dead_row", "erased_row", "row_run", "record_row")


def drop_groups(groups: Iterable[int], *, at_once: bool = False) -> None:
    """Delete all rows of these groups, with their digests and deaths."""
    for batch in cut(sorted(groups)):
        objects.drop(RowPart.objects.filter(group_id__in=batch), at_once=at_once)
        for table in _OF_GROUPS:
            _drop_of(table, "group_id", batch)


def drop_page(segment: int, number: int) -> None:
    """Delete a page, or the part that begins with it."""
    objects.drop(PagePart.objects.filter(segment_id=segment, first=number))
    run("DELETE FROM index_page WHERE segment_id = %s AND number = %s", segment, number)


def drop_empty(staging: int) -> None:
    """Delete the groups and segments of a staging that have no row or page."""
    for parents, beside in (
        ("record_group", ("group_id", "row_run")),
        ("index_segment", ("segment_id", "index_page", "page_part")),
    ):
        column, *tables = beside
        staged = fetch(f"SELECT id FROM {parents} WHERE staging_id = %s", staging)  # noqa: S608
        numbers = {number for (number,) in staged}
        full = {number for table in tables for number in owners_with_any(table, column, numbers)}
        _drop_of(parents, "id", numbers - full)


def _drop_of(table: str, column: str, numbers: Iterable[int]) -> None:
    """Delete a table's rows of these groups or segments. The statement names each, so that only
    their partitions are queried.
    """
    for batch in cut(sorted(numbers)):
        run(f"DELETE FROM {table} WHERE {column} IN {marks(len(batch))}", *batch)  # noqa: S608


def drop_pages(segments: Iterable[int], *, at_once: bool = False) -> None:
    """Delete all pages of these segments."""
    for batch in cut(sorted(segments)):
        objects.drop(PagePart.objects.filter(segment_id__in=batch), at_once=at_once)
        _drop_of("index_page", "segment_id", batch)


def drop_pages_from(segment: int, first: int, *, at_once: bool = False) -> None:
    """Delete the pages of a segment from number ``first`` on, except those of a part that begins
    before it.
    """
    page_parts = PagePart.objects.filter(segment_id=segment, first__gte=first)
    objects.drop(page_parts, at_once=at_once)
    run("DELETE FROM index_page WHERE segment_id = %s AND number >= %s", segment, first)


#: Statements for a schema itself, children before parents.
_ERASE = (
    "DELETE FROM record_group WHERE schema_id = %s",
    "DELETE FROM staged_part WHERE staging_id IN (SELECT id FROM staging WHERE schema_id = %s)",
    "DELETE FROM index_segment WHERE schema_id = %s",
    "DELETE FROM staging WHERE schema_id = %s",
    "DELETE FROM writer_head WHERE schema_id = %s",
    "DELETE FROM commit_request WHERE schema_id = %s",
    "DELETE FROM commit_log WHERE schema_id = %s",
    "DELETE FROM log_checkpoint WHERE schema_id = %s",
    "DELETE FROM hold WHERE schema_id = %s",
    "DELETE FROM asked_erasure WHERE schema_id = %s",
)


def erase(schema: bytes) -> None:
    """Delete everything stored for a schema, by the 16 bytes of its id."""
    # Lock groups and segments before their content, in the order of sweeps and moves: otherwise
    # there would be deadlocks.
    groups, segments = (
        list(
            parents._default_manager.filter(schema=ids.to_text(schema))
            .order_by("pk")
            .select_for_update(of=("self",))
            .values_list("pk", flat=True)
        )
        for parents in (RecordGroup, IndexSegment)
    )
    drop_groups(groups)
    drop_pages(segments)
    for statement in _ERASE:
        run(statement, schema)


def of_older_keys(schema: Schema, first: int) -> Iterator[str]:
    """Reasons why key versions before ``first`` cannot be forgotten, in words; none if no stored
    data needs them. The schema's row is locked.

    Ended data is gone once its erasure is done, from the files of the database, too. Data under an
    older key ended at the version of the latest full reseal, or before.
    """
    stored = (schema.key_version or first, schema.first_key_version or first)
    if min(stored) < first:
        yield f"has records that were encrypted under epoch {min(stored)}"
        return
    erasure = AskedErasure.objects.filter(schema=schema).first()
    if schema.resealed_at > (0 if erasure is None else erasure.done):
        yield (
            "still has the data from before the re-encryption: it is not erased, or somebody"
            " reads it"
        )
    older = RecordGroup.objects.filter(schema=schema, key_version__lt=first, count__gt=0)
    if older.filter(staging__isnull=False).exists():
        yield "has a running job that began under an older key"
    # Staged segments without groups do not record their key version.
    elif schema.resealed_at and _staged_merges(schema):
        yield "has a running merge of its index"


def _staged_merges(schema: Schema) -> bool:
    return Staging.objects.filter(schema=schema).exclude(groups__isnull=False).exists()


def require_not_forgotten(schema: Schema, versions: Collection[int]) -> None:
    """Check that nothing is staged under an epoch that was forgotten. On PostgreSQL, the row lock
    makes this transaction and the one that forgets the epoch wait for each other; SQLite has one
    writer.

    Raises:
        Conflict: ``key_mismatch``.
    """
    wait = " FOR SHARE" if connection.vendor == "postgresql" else ""
    found = fetch(
        f'SELECT "first" FROM roster_dataset WHERE dataset = %s{wait}',  # noqa: S608
        as_stored(schema.dataset_id),
    )
    if any(version < first for (first,) in found for version in versions):
        raise Conflict(
            f"the dataset's keys before epoch {found[0][0]} were forgotten",
            code="key_mismatch",
            hint="read the roster to its end, and encrypt it again under its newest keys",
        )


#: A staging that received no part for this long is dropped: its job will not go on.
KEPT_FOR = timedelta(days=7)


def end(user: User, job: bytes) -> None:
    """Revoke a job's token, and drop the staged data under its id; late requests are refused."""
    with transaction.atomic():
        # Revoke the token first: a part that is being stored holds a lock on it, and can be dropped
        # once the lock is released.
        authentication.revoke_job_token(user, job)
        drop(user, job)


def drop(user: User, uid: bytes) -> None:
    """Drop the user's staged data under this id, of all schemas."""
    mine = Staging.objects.filter(user=user, uid=uid)
    if user.acting is not None:
        mine = mine.filter(schema__in=permissions.schemas(user).values("pk"))
    with transaction.atomic():
        for staging in mine.select_for_update():
            drop_staging(staging)


def drop_copies(schema: Schema) -> None:
    """Drop staged groups that would replace others and have no staged index: copies of rows, some
    of which may have ended since. The job that staged them begins again.
    """
    parts = StagedPart.objects.filter(staging__schema=schema)
    numbers = set(parts.filter(stands=True).values_list("staging_id", flat=True))
    numbers -= set(parts.exclude(pages="[]").values_list("staging_id", flat=True))
    with transaction.atomic():
        for staging in Staging.objects.filter(pk__in=numbers).order_by("pk").select_for_update():
            drop_staging(staging)


def drop_stale_merges(schema: Schema, moment: datetime) -> None:
    """Drop segments that were staged before ``moment``, when all segments were replaced: no commit
    can publish them any more.
    """
    stale = Staging.objects.filter(schema=schema, touched__lte=moment)
    with transaction.atomic():
        for staging in stale.exclude(groups__isnull=False).order_by("pk").select_for_update():
            drop_staging(staging)


def drop_expired() -> None:
    """Drop stagings that received no part for a week."""
    old = Staging.objects.filter(touched__lt=certain_now() - KEPT_FOR)
    if not old.exists():
        return  # this query takes no lock
    with transaction.atomic():
        for staging in old.select_for_update():
            drop_staging(staging)


def drop_staging(staging: Staging) -> None:
    """Drop a staging whose row is locked."""
    drop_groups(RecordGroup.objects.filter(staging=staging).values_list("pk", flat=True))
    drop_pages(IndexSegment.objects.filter(staging=staging).values_list("pk", flat=True))
    StagedPart.objects.filter(staging=staging).delete()
    RecordGroup.objects.filter(staging=staging).delete()
    IndexSegment.objects.filter(staging=staging).delete()
    Staging.objects.filter(pk=staging.pk).delete()
